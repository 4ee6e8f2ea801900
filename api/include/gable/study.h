// Studies of a device itself: its ceilings, loops that only move bytes, and PageRank, which shows the cost of irregular
// access. Convolutions need none of this.
//
// A backend measures its own device with loops of its own, since only it can write them.
#pragma once

#include <gable/device.h>
#include <gable/export.h>
#include <gable/plan.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gable {

/// One measured limit of a device: a roof that its plans are held against. The vendor's formula stands beside it.
struct Ceiling {
  enum class Kind {
    compute,    ///< FLOP/s of `unit` on operands of `dtype`
    bandwidth,  ///< B/s of the memory level `level`
    rate,       ///< anything else, in `unit`
  };
  std::string name{};  ///< unique on its device: "wgmma f16", "dram copy", "launch and wait"
  Kind kind = Kind::rate;
  std::string unit{};             ///< compute: the arithmetic unit, "fma" or "wgmma"; rate: "B/s", "instruction/s", "s"
  std::string dtype{};            ///< compute: "f64", "f32", "tf32", "f16", "bf16", "i8" (integer operations)
  std::string level{};            ///< bandwidth: "dram", "l2" or "l1"; a GPU's shared memory is its l1
  std::size_t level_bytes = 0;    ///< bandwidth: the level's capacity; 0 where it is not known
  std::vector<double> samples{};  ///< in the order in which they were taken; not empty
  double theoretical = 0;         ///< the formula's value; 0 where it is not known
  std::string formula{};          ///< with its numbers, or why there is none
  std::string note{};             ///< what is counted, and anything unusual about the measurement
};
/// How device_ceilings() measures.
struct CeilingRequest {
  bool quick = false;                                   ///< fewer and shorter runs
  std::function<void(const std::string& next)> next{};  ///< called before each measurement, if set
  /// Called after the measurement of each roof, if set: `work()` runs the roof's loop once more, for some milliseconds,
  /// waits, and returns its FLOP or bytes. Used to measure energy, which takes longer than measuring the roof.
  std::function<void(const std::string& name, const std::function<double()>& work)> hold{};
};

/// A loop that only moves bytes. One pass goes once over `bytes`, the size of all its arrays together.
struct MemoryLoop {
  enum class Movement : std::uint8_t {
    read,       ///< sum of a
    copy,       ///< c = a
    triad,      ///< c = a + 3 b
    to_shared,  ///< a into the memory that a GPU's threads share
    pinned_to_device,
    device_to_pinned,
    pageable_to_device,
    device_to_pageable,
  };
  Movement movement = Movement::read;
  std::int64_t bytes = 0;  ///< at least 1; a device may need more and says so
};

/// Power iteration r'(v) = (1 - d) / n + d (sum of r(u) / out(u) over the edges u -> v, plus the rank of vertices
/// without out-edges / n), from the uniform vector. The graph lies in host memory and is read while the loop is made:
/// sources[offsets[v]] to sources[offsets[v + 1] - 1] are the in-edges of v.
struct PagerankLoop {
  std::span<const std::int64_t> offsets;  ///< one more than the vertices; the last is the number of edges
  std::span<const std::int32_t> sources;
  std::span<const std::int32_t> out_degrees;  ///< out(u)
  float damping = 0.85F;                      ///< d
};
/// What a loop does in one pass.
struct LoopDetails {
  std::string kernel{};
  double bytes = 0;  ///< read and written by one pass: exact for a MemoryLoop, the least possible for PageRank
  double flop = 0;   ///< of one pass
};

class LoopImpl;

/// A loop with its memory in place.
class GABLE_API Loop {
 public:
  explicit Loop(std::shared_ptr<LoopImpl> impl) : impl_(std::move(impl)) {}  ///< device_loop()'s

  const LoopDetails& details() const;  ///< kernel, and bytes and FLOP of a pass
  /// Runs `passes` passes; for PageRank, `passes` steps from the uniform vector. Asynchronous on a stream where the
  /// device is. Throws Error(invalid_argument) for less than one pass.
  void run(int passes, const Stream& stream = {}) const;
  /// Waits, then returns what the last run computed: PageRank's ranks; nothing for a MemoryLoop.
  std::vector<float> result() const;

 private:
  std::shared_ptr<LoopImpl> impl_;
};

/// Allocates the loop's memory on the device. Throws Error(invalid_argument) for a loop without bytes or a graph whose
/// arrays do not fit together, Error(unsupported) where the device has no such loop, Error(out_of_memory).
GABLE_API Loop device_loop(const Device& device, const MemoryLoop& loop);
GABLE_API Loop device_loop(const Device& device, const PagerankLoop& loop);

/// Measures the device's limits, in seconds rather than minutes. Empty where its backend has no loops for that.
GABLE_API std::vector<Ceiling> device_ceilings(const Device& device, const CeilingRequest& request = {});

}  // namespace gable
