// Device code that every kernel shares: conversion between storage types and f32, activations, division by constants.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include <gable/problem.h>

namespace gable::cuda {

__device__ __forceinline__ float to_f32(float value) { return value; }
__device__ __forceinline__ float to_f32(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_f32(__nv_bfloat16 value) { return __bfloat162float(value); }

/// Rounds to nearest even.
template <typename T>
__device__ __forceinline__ T from_f32(float value);
template <>
__device__ __forceinline__ float from_f32<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half from_f32<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_f32<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

/// Rounds to tf32, 10 bits of mantissa, to nearest with ties away from zero.
__device__ __forceinline__ float round_to_tf32(float value) {
#if __CUDA_ARCH__ >= 800
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
#else
  return value;  // these GPUs have no kernel for tf32
#endif
}

/// The greater; a NaN wins, as it does in every other backend.
__device__ __forceinline__ float max_or_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float greater;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(greater) : "f"(a), "f"(b));
  return greater;
#else
  return a > b || a != a ? a : b;
#endif
}

/// Errs by at most 3 * 2^-23 of its value, without the branches of tanhf: 1 - 2 / (exp(2|x|) + 1), and near 0, where
/// that cancels, an odd polynomial through Chebyshev's nodes.
__device__ __forceinline__ float tanh_f32(float x) {
  const float magnitude = fabsf(x);
  const float far = 1.0f - __fdividef(2.0f, __expf(2.0f * magnitude) + 1.0f);
  const float u = x * x;
  float series = fmaf(u, 1.72957520e-2f, -5.31467447e-2f);
  series = fmaf(u, series, 1.33284640e-1f);
  series = fmaf(u, series, -3.33332875e-1f);
  return magnitude < 0.55f ? fmaf(x * u, series, x) : copysignf(far, x);
}

__device__ __forceinline__ float activate(float value, Activation activation) {
  if (activation == Activation::relu) return max_or_nan(value, 0.0f);
  return activation == Activation::tanh ? tanh_f32(value) : value;
}

/// `bias[i % channels]` added to each value, and the activation: one branch for all of them.
template <int count, int channels>
__device__ __forceinline__ void finish_all(float (&values)[count], const float (&bias)[channels],
                                           Activation activation) {
#pragma unroll
  for (int i = 0; i < count; ++i) values[i] += bias[i % channels];
  if (activation == Activation::relu) {
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = max_or_nan(values[i], 0.0f);
  } else if (activation == Activation::tanh) {
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = tanh_f32(values[i]);
  }
}

/// Calls `body` with a value of the storage type, which turns a run-time DType into a template argument.
template <typename Body>
void with_type(DType type, Body&& body) {
  switch (type) {
    case DType::f32:
      return body(float{});
    case DType::f16:
      return body(__half{});
    case DType::bf16:
      return body(__nv_bfloat16{});
  }
}

}  // namespace gable::cuda
