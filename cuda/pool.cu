// See pool.h. One thread an output element, in the output's memory order.
#include "cuda/pool.h"

#include "cuda/check.h"
#include "cuda/device_code.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void max_pool_kernel(MaxPoolProblem p, const T* x, T* y) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.n * p.c * p.out_h * p.out_w) return;
  const std::int64_t inner = p.nhwc ? p.c : 1;  // elements between neighbouring pixels
  const std::int64_t channel = p.nhwc ? index % p.c : 0;
  const std::int64_t pixel = index / inner;
  const std::int64_t column = pixel % p.out_w, row = pixel / p.out_w % p.out_h;
  const std::int64_t plane = pixel / (p.out_w * p.out_h);  // an image, or in nchw a channel of one
  x += plane * p.h * p.w * inner + channel;
  float best = -INFINITY;
  for (std::int64_t i = 0; i < p.window_h; ++i) {
    const std::int64_t ih = row * p.stride_h - p.pad_top + i;
    if (ih < 0 || ih >= p.h) continue;
    for (std::int64_t j = 0; j < p.window_w; ++j) {
      const std::int64_t iw = column * p.stride_w - p.pad_left + j;
      if (iw >= 0 && iw < p.w) best = max_or_nan(best, to_f32(x[(ih * p.w + iw) * inner]));
    }
  }
  y[index] = from_f32<T>(best);
}

}  // namespace

void max_pool(const MaxPoolProblem& problem, const void* x, void* y, cudaStream_t stream) {
  const std::int64_t elements = problem.n * problem.c * problem.out_h * problem.out_w;
  with_type(problem.type, [&](auto zero) {
    using T = decltype(zero);
    max_pool_kernel<T><<<static_cast<unsigned>(ceil_div(elements, kThreads)), kThreads, 0, stream>>>(
        problem, static_cast<const T*>(x), static_cast<T*>(y));
  });
  check_launch("max_pool");
}

}  // namespace gable::cuda
