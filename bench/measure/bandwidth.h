// Rows that only move bytes: the bandwidth of a memory level or a file. Each kind of device implements Bandwidth. A
// case that a device can't move is a refused row with the reason.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure/devices.h"
#include "bench/measure/measure.h"
#include "bench/measure/outcome.h"
#include "bench/workloads/cases.h"
#include "perfcounters/timing.h"

namespace gable::bench {

/// The loop of one case on one device. One call is one pass over the working set.
struct Mover {
  perf::Subject subject;
  const char* time_source = "clock";  ///< of the subject's times: "clock" or "event"
  std::string kernel;                 ///< the loop that moves the bytes
  int threads = 0;                    ///< 0 on a GPU
  double bytes = 0;                   ///< read and written in one call, exactly
  double flop = 0;
};

/// The bandwidth loops of one device.
class Bandwidth {
 public:
  virtual ~Bandwidth() = default;
  /// The mover is valid until the next call or until this object is destroyed. Throws Error(unsupported) or
  /// Error(out_of_memory).
  virtual Mover mover(const BandwidthCase& one) = 0;
};

/// Makes the loops for `cases`; the largest of them decide how much memory is allocated. Throws Error(unsupported) with
/// the reason if the device has no loops.
std::unique_ptr<Bandwidth> open_bandwidth(const OpenDevice& device, const std::vector<BandwidthCase>& cases);

/// Working sets beyond job.options.most_moved_bytes and cases that a device can't move are refused in `job.outcome`. On
/// a device with a single thread the one-thread rows are left out, since they equal the others.
void measure_bandwidths(const std::vector<BandwidthCase>& cases, const MeasureJob& job, const RowCallbacks& callbacks);

}  // namespace gable::bench
