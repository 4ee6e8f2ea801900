// Rows that only move bytes: what a memory level, or a file, gives. A kind of device brings its loops as a Bandwidth;
// what it can't move is a refused row with the reason.
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

/// A case as a device runs it. One call goes once over the working set.
struct Mover {
  perf::Subject subject;
  const char* time_source = "clock";  ///< of the subject's times: "clock" or "event"
  std::string kernel;                 ///< how the bytes are moved
  int threads = 0;                    ///< 0 on a GPU
  double bytes = 0;                   ///< read and written by a call, exactly
  double flop = 0;
};

/// What moves bytes on one device.
class Bandwidth {
 public:
  virtual ~Bandwidth() = default;
  /// The mover works until the next call, or until this object ends. Throws Error(unsupported) or Error(out_of_memory).
  virtual Mover mover(const BandwidthCase& one) = 0;
};

/// For `cases`, the largest of which decide how much memory is taken. Throws Error(unsupported) with the reason where
/// the device has no loops.
std::unique_ptr<Bandwidth> open_bandwidth(const OpenDevice& device, const std::vector<BandwidthCase>& cases);

/// Working sets beyond job.options.most_moved_bytes, and what a device can't move, are refused in `job.outcome`. Where
/// a device has but one thread, the rows of one thread are left out: the others are the same.
void measure_bandwidths(const std::vector<BandwidthCase>& cases, const MeasureJob& job, const RowCallbacks& callbacks);

}  // namespace gable::bench
