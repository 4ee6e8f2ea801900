// What the max-pool's per-target kernels take: one output row.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/ops/pool.h"

namespace gable::cpu {

/// The part of a window that lies inside the input.
struct WindowRange {
  std::int64_t begin, end;
};
inline WindowRange window_range(std::int64_t out, std::int64_t stride, std::int64_t pad, std::int64_t window,
                                std::int64_t size) {
  const std::int64_t first = out * stride - pad;
  return {std::max<std::int64_t>(first, 0), std::min(first + window, size)};
}

/// One output row: an image's row for nhwc, a channel's row for nchw.
struct PoolRow {
  const MaxPoolProblem& problem;
  const void* x;  // the image, or the channel
  std::int64_t out_row;
  void* y;            // the output row
  float* scratch;     // nchw: two rows of f32, of input and of output width
  bool non_temporal;  // nhwc: non-temporal stores; all channels are whole vectors, and y is aligned to them
};

}  // namespace gable::cpu
