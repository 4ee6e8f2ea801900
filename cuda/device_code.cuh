// Device code that every kernel shares: conversion between storage types and f32, activations, division by constants.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/conv2d_problem.h"

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

/// To 10 bits of mantissa, to nearest, ties away from zero: what the tensor cores take as tf32.
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
__device__ __forceinline__ float max_or_nan(float a, float b) { return a > b || a != a ? a : b; }

__device__ __forceinline__ float activate(float value, Activation activation) {
  if (activation == Activation::relu) return value < 0.0f ? 0.0f : value;
  return activation == Activation::tanh ? tanhf(value) : value;
}

/// Calls `body` with a value of the storage type: the way from a run-time Type to a template argument.
template <typename Body>
void with_type(Type type, Body&& body) {
  switch (type) {
    case Type::f32:
      return body(float{});
    case Type::f16:
      return body(__half{});
    case Type::bf16:
      return body(__nv_bfloat16{});
  }
}

}  // namespace gable::cuda
