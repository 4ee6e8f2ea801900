// Times of cases on devices, for `gable bench` and `gable roofline`: the devices of a case take turns in one run, so
// that their ratio is not affected by the machine's drift.
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
  double seconds_total = 0;     ///< 0: no limit. Else budgets shrink to fit, and cases beyond it are refused as such
  double most_moved_bytes = 0;  ///< of a bandwidth's working set; 0: no limit
};

/// One device's row of one case, and what ran it.
struct Measured {
  const Case* one = nullptr;
  const OpRunner* runner = nullptr;
  Row row{};
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

/// A GPU's cases and a CPU's may differ, so a call has one list for its devices. Neighbours that differ in their math
/// alone take turns as devices do. Refusals go to `outcome`.
void measure_cases(const std::vector<Case>& cases, const std::vector<OpenDevice>& devices,
                   const MeasureOptions& options, Outcome& outcome, const MeasureCallbacks& callbacks);

}  // namespace gable::bench
