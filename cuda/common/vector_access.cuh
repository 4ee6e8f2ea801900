// Several elements next to each other in one access of up to 16 bytes, converted from and to f32.
#pragma once

#include <type_traits>

#include "cuda/common/device_code.cuh"

namespace gable::cuda {

/// The widest access that divides `bytes`, at most 16.
template <int bytes>
struct AccessOf {
  using Type = std::conditional_t<
      bytes % 16 == 0, uint4,
      std::conditional_t<bytes % 8 == 0, uint2, std::conditional_t<bytes % 4 == 0, unsigned, unsigned short>>>;
};

/// `count` values next to each other, in the widest stores; `to` is aligned to them.
template <typename T, int count>
__device__ __forceinline__ void store_vector(T* to, const float (&values)[count]) {
  constexpr int bytes = count * static_cast<int>(sizeof(T));
  using Access = typename AccessOf<bytes>::Type;
  union {
    T elements[count];
    Access accesses[bytes / sizeof(Access)];
  } run;
#pragma unroll
  for (int i = 0; i < count; ++i) run.elements[i] = from_f32<T>(values[i]);
#pragma unroll
  for (int i = 0; i < static_cast<int>(bytes / sizeof(Access)); ++i) reinterpret_cast<Access*>(to)[i] = run.accesses[i];
}

template <typename T, int count>
__device__ __forceinline__ void load_vector(const T* from, float (&values)[count]) {
  constexpr int bytes = count * static_cast<int>(sizeof(T));
  using Access = typename AccessOf<bytes>::Type;
  union {
    T elements[count];
    Access accesses[bytes / sizeof(Access)];
  } run;
#pragma unroll
  for (int i = 0; i < static_cast<int>(bytes / sizeof(Access)); ++i)
    run.accesses[i] = __ldg(reinterpret_cast<const Access*>(from) + i);
#pragma unroll
  for (int i = 0; i < count; ++i) values[i] = to_f32(run.elements[i]);
}

}  // namespace gable::cuda
