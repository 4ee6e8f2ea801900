// W and Q of work on an NVIDIA GPU from its counters, through libgable_cupti.so.
#pragma once

#include <optional>

#include "perfcounters/sources/source.h"

namespace gable::perf {

class CuptiSource final : public CounterSource {
 public:
  std::string name() const override { return "cupti"; }
  Provenance provenance() const override { return Provenance::counter; }
  bool on_gpu() const override { return true; }
  /// Tries once to arm the counters of the first GPU.
  SourceStatus status() const override;
  PassPlan prepare(const CountOptions& options) override;
  /// The workload runs once unmeasured, so that CUDA loads modules and allocates, then once for each pass and
  /// repetition. `extra` holds the parts of each quantity, as gpu_metrics.h names them.
  Reading measure(const Workload& workload, const CountOptions& options) override;
  std::vector<KnownWork> known_work() const override;

 private:
  mutable std::optional<SourceStatus> status_;  ///< arming takes a tenth of a second
};

}  // namespace gable::perf
