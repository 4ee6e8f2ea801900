// Element types, memory layouts and math modes, with their names, and the 16-bit float conversions.
#pragma once

#include <gable/export.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gable {

/// Storage types. Accumulation is in f32 for all of them (f64 in the reference backend).
enum class DType : std::uint8_t { f32, f16, bf16 };

/// Order of a rank-4 tensor in memory. Shapes are always given as (N, C, H, W), whatever the layout; tensors of a lower
/// rank are row-major under both names.
enum class Layout : std::uint8_t { nchw, nhwc };

/// How products of f32 tensors are formed.
enum class Math : std::uint8_t {
  strict,  ///< the dtype's own arithmetic
  tf32,    ///< inputs rounded to 10 mantissa bits (GPU tensor cores)
  split3,  ///< inputs cut into two bf16 parts, 3 products: relative error near 2^-16 a term
  split6,  ///< inputs cut into three bf16 parts, 6 products: errs like strict f32
};

enum class Activation : std::uint8_t { none, relu, tanh };

/// Bytes of an element.
constexpr std::size_t size_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

GABLE_API std::string_view to_string(DType value);
GABLE_API std::string_view to_string(Layout value);
GABLE_API std::string_view to_string(Math value);
GABLE_API std::string_view to_string(Activation value);

/// Inverse of to_string(). Throws Error(invalid_argument) that lists the known names.
GABLE_API DType parse_dtype(std::string_view name);
GABLE_API Layout parse_layout(std::string_view name);
GABLE_API Math parse_math(std::string_view name);
GABLE_API Activation parse_activation(std::string_view name);

/// Bit patterns of IEEE binary16 and bfloat16; round to nearest even, NaN stays NaN, overflow becomes infinity.
GABLE_API std::uint16_t f16_from_float(float value);
GABLE_API float float_from_f16(std::uint16_t bits);
GABLE_API std::uint16_t bf16_from_float(float value);
GABLE_API float float_from_bf16(std::uint16_t bits);

}  // namespace gable
