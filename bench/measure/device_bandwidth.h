// Bandwidths by the loops of a device's backend: the levels of its memory, and copies from and to the host.
#pragma once

#include <gable/study.h>

#include "bench/measure/bandwidth.h"

namespace gable::bench {

class DeviceBandwidth final : public Bandwidth {
 public:
  /// Throws Error(unsupported) if the device has no such loops.
  explicit DeviceBandwidth(const OpenDevice& device);
  Mover mover(const BandwidthCase& one) override;

 private:
  Device device_;
};

/// Times a loop with the device's events; one call is one pass.
perf::Subject subject_of(const Device& device, const Loop& loop);

}  // namespace gable::bench
