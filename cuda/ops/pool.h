// Max-pool on device pointers: the maximum over each window; padding counts as minus infinity, a NaN wins.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/types.h"

namespace gable::cuda {

struct MaxPoolProblem {
  std::int64_t n = 1, c = 1, h = 1, w = 1;
  std::int64_t window_h = 1, window_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_left = 0;
  std::int64_t out_h = 1, out_w = 1;
  Type type = Type::f32;
  bool nhwc = true;
};

/// Asynchronous on `stream`.
void max_pool(const MaxPoolProblem& problem, const void* x, void* y, cudaStream_t stream);

}  // namespace gable::cuda
