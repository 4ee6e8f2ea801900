// See naive.h.
#include "cuda/ladder/naive.h"

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/device_code.cuh"
#include "cuda/common/packed_weights.h"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;

/// Strides of x in elements.
struct ImageStrides {
  std::int64_t n, c, h, w;
};

ImageStrides strides_of_x(const Conv2dProblem& p) {
  if (p.nhwc) return {p.h * p.w * p.c, 1, p.w * p.c, p.c};
  return {p.c * p.h * p.w, p.h * p.w, p.w, 1};
}

/// The convolution's value at output (k of the group, row, column); x points to the image's first channel of the group,
/// w to the group's weights of output channel k.
template <typename T>
__device__ float convolve(const Conv2dProblem& p, const ImageStrides& stride, const T* x, const T* w, std::int64_t row,
                          std::int64_t column) {
  const std::int64_t channels = p.group_c(), step = p.group_k();
  float sum = 0.0f;
  for (std::int64_t r = 0; r < p.r; ++r) {
    const std::int64_t ih = row * p.stride_h - p.pad_top + r * p.dilation_h;
    if (ih < 0 || ih >= p.h) continue;
    for (std::int64_t s = 0; s < p.s; ++s) {
      const std::int64_t iw = column * p.stride_w - p.pad_left + s * p.dilation_w;
      if (iw < 0 || iw >= p.w) continue;
      const T* pixel = x + ih * stride.h + iw * stride.w;
      const T* tap = w + (r * p.s + s) * channels * step;
      for (std::int64_t c = 0; c < channels; ++c) sum = fmaf(to_f32(pixel[c * stride.c]), to_f32(tap[c * step]), sum);
    }
  }
  return sum;
}

template <typename T>
__global__ void naive_kernel(Conv2dProblem p, ImageStrides stride, const T* x, const T* w, const float* bias, T* y) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.y_elements()) return;
  const std::int64_t out_h = p.out_h(), out_w = p.out_w();
  std::int64_t rest = index, k, row, column;
  if (p.nhwc) {
    k = rest % p.k, rest /= p.k;
    column = rest % out_w, rest /= out_w;
    row = rest % out_h, rest /= out_h;
  } else {
    column = rest % out_w, rest /= out_w;
    row = rest % out_h, rest /= out_h;
    k = rest % p.k, rest /= p.k;
  }
  const std::int64_t group = k / p.group_k();
  x += rest * stride.n + group * p.group_c() * stride.c;
  w += group * p.r * p.s * p.group_c() * p.group_k() + k % p.group_k();
  float best = -INFINITY;
  for (std::int64_t i = 0; i < p.pool.h; ++i) {
    for (std::int64_t j = 0; j < p.pool.w; ++j) {
      best = max_or_nan(best, convolve(p, stride, x, w, row * p.pool.stride_h + i, column * p.pool.stride_w + j));
    }
  }
  y[index] = from_f32<T>(activate(p.bias ? best + bias[k] : best, p.activation));
}

class NaivePlan final : public PackedOrderPlan {
 public:
  explicit NaivePlan(const Conv2dProblem& problem) : PackedOrderPlan(problem, packed_order(problem, 1, 1)) {}

  Conv2dDescription description() const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;
};

Conv2dDescription NaivePlan::description() const {
  return {.kernel = "naive",
          .tile = "one thread an output element",
          .staging = std::string(problem().nhwc ? "nhwc" : "nchw") + " read from global memory as it is",
          .fusion = "bias, activation and pool in the thread"};
}

void NaivePlan::run(const void* x, const void* packed, const float* bias, void* y, void*, cudaStream_t stream) const {
  const auto blocks = static_cast<unsigned>(ceil_div(problem().y_elements(), kThreads));
  with_type(problem().dtype, [&](auto zero) {
    using T = decltype(zero);
    naive_kernel<T><<<blocks, kThreads, 0, stream>>>(problem(), strides_of_x(problem()), static_cast<const T*>(x),
                                                     static_cast<const T*>(packed), bias, static_cast<T*>(y));
  });
  check_launch("naive");
  note_path(Path::naive);
}

}  // namespace

std::string Naive::refusal(const Conv2dProblem& problem, const cudaDeviceProp&) {
  return problem.math == Math::strict ? "" : "its arithmetic is strict";
}

std::unique_ptr<Conv2dPlan> Naive::make(const Conv2dProblem& problem, const cudaDeviceProp&) {
  return std::make_unique<NaivePlan>(problem);
}

}  // namespace gable::cuda
