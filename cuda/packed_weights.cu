// See packed_weights.h.
#include "cuda/packed_weights.h"

#include "cuda/check.h"
#include "cuda/device_code.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void pack_kernel(Conv2dProblem p, PackedOrder order, const T* weights, WeightStrides strides, T* packed) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= order.elements()) return;
  const std::int64_t k = index % order.k, c = index / order.k % order.c;
  const std::int64_t tap = index / (order.k * order.c) % order.taps;
  const std::int64_t group = index / (order.k * order.c * order.taps);
  T value = from_f32<T>(0.0f);
  if (k < p.group_k() && c < p.group_c()) {
    value = weights[(group * p.group_k() + k) * strides.out + c * strides.in + tap / p.s * strides.row +
                    tap % p.s * strides.column];
  }
  packed[index] = value;
}

}  // namespace

void pack_weights(const Conv2dProblem& problem, const PackedOrder& order, const void* weights,
                  const WeightStrides& strides, void* packed, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(order.elements(), kThreads));
  with_type(problem.type, [&](auto zero) {
    using T = decltype(zero);
    pack_kernel<T><<<blocks, kThreads, 0, stream>>>(problem, order, static_cast<const T*>(weights), strides,
                                                    static_cast<T*>(packed));
  });
  check_launch("pack_weights");
}

}  // namespace gable::cuda
