// W and Q of timed rows from counter sources. Chooses the source of each quantity (--counters).
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/record/row.h"
#include "bench/record/study.h"
#include "perfcounters/sources/calibration.h"
#include "perfcounters/sources/source.h"

namespace gable::bench {

enum class CounterMode { automatic, counter, simulated, analytic };

/// "auto", "counter", "simulated", "analytic". Throws Error(invalid_argument).
CounterMode parse_counter_mode(std::string_view text);

/// The beginning of the reason of a row that was not counted because the time was over.
constexpr const char* kNotCounted = "not counted: the time was over";

/// A quantity from one source, or the reason of every source that has none.
struct FoundQuantity {
  perf::Quantity quantity;
  const perf::CounterSource* source = nullptr;
  std::vector<std::string> reasons;
};

class RowCounters {
 public:
  /// `sources`, best first; each is calibrated before it is used. `seconds_limit` is the time limit of one process that
  /// runs a workload for them. `kept`: calibrations of earlier processes.
  RowCounters(CounterMode mode, std::vector<std::unique_ptr<perf::CounterSource>> sources, double seconds_limit,
              const perf::CalibrationCache& kept = {});

  /// Every source's reason and cure, a line each, when the mode names a kind of source and none of that kind works on
  /// any of these kinds of devices; else empty.
  std::string missing_sources(const std::vector<DeviceKind>& devices) const;
  /// Throws Error(unsupported) with every source's reason and cure when the mode names a kind of source and none of
  /// that kind works on any of these kinds of devices.
  void require_sources(const std::vector<DeviceKind>& devices) const;

  /// Whether a source of this mode counts on such devices here.
  bool counts(DeviceKind kind) const;

  /// The row with W and Q of `workload`, which is the row's work, from counters. Each quantity comes from the best
  /// source that the mode allows and that has it; if none has it, it is analytic, with the reason. `seconds` limits it:
  /// a source that took longer for another row, not counting calibration, is not used.
  Row count(Row row, const perf::Workload& workload, double seconds = std::numeric_limits<double>::infinity());

  /// Whether count() found neither W nor Q of this row; the row then has the reason.
  static bool has_no_count(const Row& row);

  /// True if the mode names a kind of source and no source of that kind gave a quantity of any row.
  bool gave_nothing() const;

  /// The mode and each source's status and calibration; none in analytic mode.
  std::optional<CountersEntry> entry() const;
  /// The same as text, a line for each source.
  std::vector<std::string> summary() const;

 private:
  struct Source {
    std::unique_ptr<perf::CalibratedSource> source;
    double longest = 0;  ///< seconds that it took for a row
  };

  std::map<perf::Metric, FoundQuantity> measure_quantities(const perf::Workload& workload, double seconds, Row& row);
  bool wants(const perf::CounterSource& source, DeviceKind kind) const;

  CounterMode mode_;
  std::vector<Source> sources_;
  double seconds_limit_;
  int rows_ = 0;
  int rows_counted_ = 0;
};

}  // namespace gable::bench
