// Times cases on devices. The devices of a case take turns in one run, so that drift of the machine does not affect
// their ratio.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bench/measure/known_rows.h"
#include "bench/measure/op_runner.h"
#include "bench/measure/outcome.h"
#include "bench/workloads/cases.h"
#include "perfcounters/timing.h"

namespace gable::bench {

/// The beginning of the reason of a case that was not measured because the time was over.
constexpr const char* kOutOfTime = "not measured: the time was over";

struct MeasureOptions {
  std::vector<perf::Cache> caches{perf::Cache::warm};
  double seconds_each = 1;  ///< budget of one device on one case with one cache state
  int max_runs = 50;
  double seconds_total = 0;  ///< limit of the whole run; 0: none. Budgets shrink to fit; cases beyond it are refused
  double share_beside_times = 0;  ///< share of it for what `report` does with a row (counting); the rest is for T
  int rounds = 1;               ///< this run is one of so many (rounds.h): cases that can, take this part of their time
  bool scale = false;           ///< short convolutions run with twice the batch as well (Scaling)
  double most_moved_bytes = 0;  ///< limit of a bandwidth's working set; 0: none
  std::function<double()> clock{};  ///< seconds, by which limits and budgets are spent; empty: the host's steady clock
};

/// One device's row of one case, and the runner that it was measured with.
struct Measured {
  const Case* one = nullptr;
  const OpRunner* runner = nullptr;
  Row row{};
};

/// What all rows of a study share: the devices, the options, the list of refusals, and the rows that are already known.
struct MeasureJob {
  const std::vector<OpenDevice>& devices;
  const MeasureOptions& options;
  Outcome& outcome;
  KnownRows& known;
};

using Progress = std::function<void(std::size_t done, std::size_t total, const std::string& what)>;

/// Runs rows that have no plan.
struct RowCallbacks {
  Progress progress;
  std::function<void(Row)> report;  ///< also of known rows
};

struct MeasureCallbacks {
  Progress progress;
  /// `spare`: the seconds that it may take so that all remaining cases still get their T; infinite without a limit.
  /// Returns the seconds that do not count against the time limit (energy).
  std::function<double(const Measured&, double spare)> report;
  std::function<void(Row)> keep{};  ///< of known rows
};

/// Measures every case on every device of the job. Neighbouring cases that differ only in their math take turns, like
/// devices. If all rows of the cases that take turns are known, they are kept; otherwise all are measured.
void measure_cases(const std::vector<Case>& cases, const MeasureJob& job, const MeasureCallbacks& callbacks);

}  // namespace gable::bench
