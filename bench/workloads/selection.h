// From the command line's words to cases: --problem, --suite or --file, with their attributes and filters.
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

/// The options as they are written; an unset one has its default.
struct SelectionOptions {
  std::vector<std::string> problems;
  std::string suite;
  std::string file;
  std::vector<std::string> dtypes;  ///< suites: a filter; else what to run, f32 if none
  std::string layout;
  std::string activation;
  std::string max_pool;
  std::vector<std::string> maths;  ///< strict if none; several: each case once in each
  std::vector<std::string> names;  ///< parts of cases' names: those that contain one of them
  bool bias = false;
  std::int64_t max_batch = 0;
};

struct Selection {
  std::vector<Case> cases;
  std::vector<BandwidthCase> bandwidths;  ///< of a suite, in f32
  std::vector<GraphCase> graphs;          ///< of a suite, in f32
  std::vector<Refusal> refused;           ///< entries of a list that gable can't express
  int malformed = 0;                      ///< of those, entries that can't be read at all
  std::vector<std::string> repeated;  ///< cases of a suite that --max-batch made equal to others, which stand for them
};

/// Sets what --layout, --activation, --max-pool and --bias say; neither dtype nor math.
void apply_attributes(const SelectionOptions& options, Conv2d& conv);

/// Cases that differ in their math alone follow one another. Throws Error(invalid_argument) unless exactly one of
/// problem, suite and file is given and something is left to do, and what parse_problem() throws for --problem.
Selection select(const SelectionOptions& options, bool gpu);

}  // namespace gable::bench
