// The counters that can count a callable of this process. Sources that need a process of their own can't: a callable
// can't be started there. `gable measure -- program` counts whole programs and their regions.
#pragma once

#include <gable/measure.h>

#include <optional>
#include <string>

#include "bench/counting/row_counters.h"
#include "bench/record/study.h"

namespace gable::bench {

class OwnCounters {
 public:
  OwnCounters(CounterUse use, bool on_gpu);

  RowCounters& rows() { return rows_; }
  /// Throws Error(unsupported) with each source's reason and cure if none works here.
  void require(const std::string& callable) const;
  /// "3 of 3 checks with known work passed".
  std::string calibration(const std::string& source, perf::Metric metric) const;
  /// The reason of each source that can't give `metric`; empty if all can.
  std::string unavailable(perf::Metric metric) const;

 private:
  bool on_gpu_;
  RowCounters rows_;
};

/// Opened at their first use; a process calibrates them once.
OwnCounters& own_counters(CounterUse use, bool on_gpu);

/// Status and calibration of all that were opened; none if none was.
std::optional<CountersEntry> opened_counters();

}  // namespace gable::bench
