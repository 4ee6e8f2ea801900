// Times cases on devices. The devices of a case take turns in one run, so the machine's drift does not affect their
// ratio.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bench/measure/op_runner.h"
#include "bench/measure/outcome.h"
#include "bench/workloads/cases.h"
#include "perfcounters/timing.h"

namespace gable::bench {

struct MeasureOptions {
  std::vector<perf::Cache> caches{perf::Cache::warm};
  double seconds_each = 1;  ///< budget of one device on one case with one cache state
  int max_runs = 50;
  double seconds_total = 0;     ///< 0: no limit. Else budgets shrink to fit, and cases that come later are refused
  double most_moved_bytes = 0;  ///< of a bandwidth's working set; 0: no limit
};

/// One device's row of one case, and what ran it.
struct Measured {
  const Case* one = nullptr;
  const OpRunner* runner = nullptr;
  Row row{};
};

/// Where and how to measure, and where refusals go.
struct MeasureJob {
  const std::vector<OpenDevice>& devices;
  const MeasureOptions& options;
  Outcome& outcome;
};

using Progress = std::function<void(std::size_t done, std::size_t total, const std::string& what)>;

/// For rows that have no plan.
struct RowCallbacks {
  Progress progress;
  std::function<void(Row)> report;
};

struct MeasureCallbacks {
  Progress progress;
  std::function<void(const Measured&)> report;
};

/// Measures every case on every device of the job. Neighbouring cases that differ in their math alone take turns, as
/// devices do.
void measure_cases(const std::vector<Case>& cases, const MeasureJob& job, const MeasureCallbacks& callbacks);

}  // namespace gable::bench
