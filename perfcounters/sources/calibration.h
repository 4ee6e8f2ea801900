// A source is trusted only after it has measured kernels of known W and Q correctly. Counters do lie: a virtual PMU may
// count nothing or the wrong thing, an event may have another weight on a new CPU, neighbours may use the memory.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perfcounters/sources/calibration_cache.h"
#include "perfcounters/sources/source.h"

namespace gable::perf {

/// One known kernel against one quantity of a source.
struct CalibrationCheck {
  std::string kernel;
  Metric metric = Metric::flop;
  double expected = 0;
  std::optional<double> measured{};
  double tolerance = 0;  ///< relative
  double allowance = 0;  ///< absolute
  std::string reason{};  ///< why there is no measured value
  bool passed = false;
  bool kept = false;  ///< measured by an earlier process
};

struct Calibration {
  std::string source;
  std::vector<CalibrationCheck> checks;

  /// Empty when the quantity is trusted: it was checked, and each check passed. Otherwise the numbers that failed.
  std::string refusal(Metric metric) const;
};

/// Runs the source's known kernels for those of `metrics` that the source provides on this machine. A kernel whose
/// readings are in `kept`, and pass, is not run; readings of a calibration that passed are stored there.
Calibration calibrate(CounterSource& source, const std::vector<Metric>& metrics, CalibrationCache& kept);
inline Calibration calibrate(CounterSource& source, const std::vector<Metric>& metrics) {
  CalibrationCache none;
  return calibrate(source, metrics, none);
}

/// A source that is calibrated before its first measurement, for the metrics requested there. It refuses metrics whose
/// calibration failed. `kept` is for sources with a calibration_identity().
class CalibratedSource final : public CounterSource {
 public:
  explicit CalibratedSource(std::unique_ptr<CounterSource> source, CalibrationCache kept = {});

  std::string name() const override { return source_->name(); }
  Provenance provenance() const override { return source_->provenance(); }
  bool on_gpu() const override { return source_->on_gpu(); }
  SourceStatus status() const override { return source_->status(); }
  PassPlan prepare(const CountOptions& options) override { return source_->prepare(options); }
  Reading measure(const Workload& workload, const CountOptions& options) override;
  std::vector<KnownWork> known_work() const override { return source_->known_work(); }

  /// What measure() does first, for metrics that are not calibrated yet.
  void calibrate(const std::vector<Metric>& metrics);

  /// All checks so far.
  const Calibration& calibration() const { return calibration_; }
  /// What could not be read from or written to the cache.
  const std::vector<std::string>& words() const { return kept_.words(); }

 private:
  std::unique_ptr<CounterSource> source_;
  CalibrationCache kept_;
  Calibration calibration_;
  std::vector<Metric> calibrated_;
};

}  // namespace gable::perf
