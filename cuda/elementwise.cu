// See elementwise.h.
#include "cuda/elementwise.h"

#include "cuda/check.h"
#include "cuda/device_code.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void add_kernel(const T* a, const T* b, T* c, std::int64_t elements) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < elements) c[i] = from_f32<T>(to_f32(a[i]) + to_f32(b[i]));
}

}  // namespace

void add(const void* a, const void* b, void* c, std::int64_t elements, Type type, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(elements, kThreads));
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    add_kernel<T><<<blocks, kThreads, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b),
                                                   static_cast<T*>(c), elements);
  });
  check_launch("add");
}

}  // namespace gable::cuda
