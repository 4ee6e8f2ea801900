// From command line options to cases: --problem, --suite or --file, with attributes and filters.
#pragma once

#include <gable/dtype.h>
#include <gable/shape.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/record/row.h"
#include "bench/workloads/cases.h"

namespace gable::bench {

/// The options as the user wrote them; an unset one has its default.
struct SelectionOptions {
  std::vector<std::string> problems;
  std::string suite;
  std::string file;
  std::optional<std::string> text{};  ///< of the file, once read_file() has read it
  std::vector<std::string> dtypes;    ///< suites: a filter; else the dtypes to run, f32 if empty
  std::string layout;
  std::string activation;
  std::string max_pool;
  std::vector<std::string> maths;  ///< strict if empty; each case runs in each of them
  std::vector<std::string> names;  ///< selects the cases whose name contains one of these
  bool bias = false;
  std::int64_t max_batch = 0;

  bool operator==(const SelectionOptions&) const = default;
};

struct Selection {
  std::vector<Case> cases;
  std::vector<BandwidthCase> bandwidths;  ///< of a suite, in f32
  std::vector<GraphCase> graphs;          ///< of a suite, in f32
  std::vector<Refusal> refused;           ///< entries of a list that gable can't express, and lists that can't be read
  int malformed = 0;                      ///< number of refused entries that can't be parsed, and of such lists
  std::vector<std::string> repeated;      ///< cases of a suite that --max-batch made equal to others; dropped
};

/// Reads the file of --file, if there is one, for more than one select(): a pipe gives its text once.
void read_file(SelectionOptions& options);

/// Applies --layout, --activation, --max-pool and --bias, but neither dtype nor math.
void apply_attributes(const SelectionOptions& options, Conv2d& conv);

/// Cases that differ only in their math are neighbours. Throws Error(invalid_argument) unless exactly one of problem,
/// suite and file is given and at least one case is selected; for --problem throws like parse_problem().
Selection select(const SelectionOptions& options, bool gpu);

}  // namespace gable::bench
