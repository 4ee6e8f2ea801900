// W and Q of timed rows from counter sources: which source gives which quantity (--counters).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure/measure.h"
#include "bench/record/study.h"
#include "perfcounters/sources/calibration.h"
#include "perfcounters/sources/source.h"

namespace gable::bench {

enum class CounterMode { automatic, counter, simulated, analytic };

/// "auto", "counter", "simulated", "analytic". Throws Error(invalid_argument).
CounterMode parse_counter_mode(std::string_view text);

/// A quantity as one source gave it, or why each source did not.
struct FoundQuantity {
  perf::Quantity quantity;
  const perf::CounterSource* source = nullptr;
  std::vector<std::string> reasons;
};

class RowCounters {
 public:
  /// `sources` best first; each is calibrated before it is believed. `helper` is the gable program that runs workloads
  /// in processes of their own, `seconds_limit` the longest that one such process may take.
  RowCounters(CounterMode mode, std::vector<std::unique_ptr<perf::CounterSource>> sources, std::string helper,
              double seconds_limit);

  /// Throws Error(unsupported) with every source's reason and cure when the mode names a kind of source and none of
  /// that kind works on any of these devices.
  void require_sources(const std::vector<OpenDevice>& devices) const;

  /// The row with W and Q from counters: each quantity from the best source of the mode that gives it, else analytic
  /// with the reason.
  Row count(const Measured& measured);

  /// Rows for which a source gave something.
  int rows_counted() const { return rows_counted_; }
  /// The mode names a kind of source, and that gave nothing for any of the rows.
  bool gave_nothing() const;

  /// The mode, each source's status and what its calibration read; none in analytic mode.
  std::optional<CountersEntry> entry() const;
  /// The same for people, a line each.
  std::vector<std::string> summary() const;

 private:
  std::map<perf::Metric, FoundQuantity> ask_sources(const Measured& measured, CounterDetails& details);
  bool wants(const perf::CounterSource& source, DeviceKind kind) const;

  CounterMode mode_;
  std::vector<std::unique_ptr<perf::CalibratedSource>> sources_;
  std::string helper_;
  double seconds_limit_;
  int rows_ = 0;
  int rows_counted_ = 0;
};

/// A row's workload, as sources need it. `measured` must outlive it.
perf::Workload workload_of(const Measured& measured, const std::string& helper);

}  // namespace gable::bench
