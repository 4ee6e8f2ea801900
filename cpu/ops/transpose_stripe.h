// What a transpose hands to its per-target kernel: the part that a thread takes at a time.
#pragma once

#include <cstdint>

namespace gable::cpu {

constexpr std::int64_t kTileRows = 64;
constexpr std::int64_t kTileRowBytes = 512;

/// Up to kTileRows rows of a matrix; strides in elements. With `non_temporal`, whole tiles take non-temporal stores,
/// and y and its rows are aligned to cache lines.
struct TransposeStripe {
  const void* x;
  std::int64_t x_stride;
  void* y;
  std::int64_t y_stride, rows, columns;
  bool non_temporal;
};

}  // namespace gable::cpu
