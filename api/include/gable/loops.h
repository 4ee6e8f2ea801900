// What a device does besides ops, for studies of the device itself: loops that only move bytes, and PageRank, which
// shows what irregular access costs. Each is the device's own; one that has none refuses with a reason.
#pragma once

#include <gable/export.h>
#include <gable/plan.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gable {

/// One pass goes once over `bytes`, which all arrays together have.
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
  std::int64_t bytes = 0;
};

/// Power iteration r'(v) = (1 - d) / n + d (sum of r(u) / out(u) over the edges u -> v, plus the rank of vertices
/// without out-edges / n), from the uniform vector. The graph is in host memory, read while the loop is made: the
/// in-edges of v come from sources[offsets[v]] to sources[offsets[v + 1]].
struct PagerankLoop {
  std::span<const std::int64_t> offsets;  ///< one more than the vertices
  std::span<const std::int32_t> sources;
  std::span<const std::int32_t> out_degrees;
  float damping = 0.85F;
};

struct LoopDetails {
  std::string kernel{};
  double bytes = 0;  ///< of a pass, read and written: exactly of a MemoryLoop, the least of PageRank's step
  double flop = 0;   ///< of a pass
};

class LoopImpl;

/// A loop with its memory in place.
class GABLE_API Loop {
 public:
  explicit Loop(std::shared_ptr<LoopImpl> impl) : impl_(std::move(impl)) {}

  const LoopDetails& details() const;
  /// So many passes; of PageRank: steps from the beginning. Asynchronous on a stream where the device is. Throws
  /// Error(invalid_argument) for less than one.
  void run(int passes, const Stream& stream = {}) const;
  /// Waits, then what the last run computed: PageRank's ranks; nothing of a MemoryLoop.
  std::vector<float> result() const;

 private:
  std::shared_ptr<LoopImpl> impl_;
};

}  // namespace gable
