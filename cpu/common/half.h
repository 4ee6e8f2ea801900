// f16 and bf16 as 16-bit patterns, converted one value at a time: for packing weights and for tests. The kernels have
// vector forms of the same functions (vector-inl.h). To f32 is exact; from f32 rounds to nearest, ties to even, keeps
// infinities, turns a NaN quiet, and produces subnormals.
#pragma once

#include <bit>
#include <cstdint>

#include <gable/problem.h>

namespace gable::cpu {

inline float f16_to_f32(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = (half & 0x7fffu) << 13;
  if (magnitude >= (31u << 23)) return std::bit_cast<float>(sign | 0x7f800000u | magnitude);
  // 2^112 moves the exponent from bias 15 to bias 127 and normalises subnormals on the way.
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

inline std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    // Adding 0.5 lets the float adder round at the weight of f16's last subnormal bit, 2^-24.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

inline float bf16_to_f32(std::uint16_t half) { return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16); }

inline std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Element `index` of an array of the given storage type.
inline float element_as_f32(const void* data, DType type, std::int64_t index) {
  if (type == DType::f32) return static_cast<const float*>(data)[index];
  const std::uint16_t half = static_cast<const std::uint16_t*>(data)[index];
  return type == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
}

}  // namespace gable::cpu
