// See packed_weights.h.
#include "cuda/common/packed_weights.h"

#include "cuda/common/check.h"
#include "cuda/common/device_code.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void pack_kernel(Conv2dProblem p, PackedOrder order, const T* weights, WeightStrides strides, T* packed) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= order.elements()) return;
  std::int64_t rest = index, k = 0;
  if (!order.depth_innermost) k = rest % order.k, rest /= order.k;
  const std::int64_t depth = rest % order.c, tap = rest / order.c % order.taps;
  rest /= order.c * order.taps;
  if (order.depth_innermost) k = rest % order.k, rest /= order.k;
  if (order.swapped) k ^= 1;
  const std::int64_t of_bundle = k / p.group_k(), group = rest * order.bundle + of_bundle;
  const std::int64_t c = depth - of_bundle * p.group_c();
  T value = from_f32<T>(0.0f);
  if (of_bundle < order.bundle && group < p.groups && c >= 0 && c < p.group_c()) {
    value = weights[(rest * order.bundle * p.group_k() + k) * strides.out + c * strides.in + tap / p.s * strides.row +
                    tap % p.s * strides.column];
  }
  if constexpr (sizeof(T) == 4) {
    if (p.math == Math::tf32) value = round_to_tf32(value);
  }
  packed[index] = value;
}

}  // namespace

void pack_weights(const Conv2dProblem& problem, const PackedOrder& order, const void* weights,
                  const WeightStrides& strides, void* packed, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(order.elements(), kThreads));
  with_type(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    pack_kernel<T><<<blocks, kThreads, 0, stream>>>(problem, order, static_cast<const T*>(weights), strides,
                                                    static_cast<T*>(packed));
  });
  check_launch("pack_weights");
}

}  // namespace gable::cuda
