// Names of the enumerations, and conversions between f32 and the 16-bit formats by their bit patterns.
#include <gable/dtype.h>
#include <gable/error.h>
#include <gable/function.h>
#include <gable/interpolation.h>

#include <array>
#include <bit>
#include <string>
#include <utility>

namespace gable {
namespace {

template <typename Enum, std::size_t kCount>
using Names = std::array<std::pair<Enum, std::string_view>, kCount>;

constexpr Names<DType, 3> kDTypes{{{DType::f32, "f32"}, {DType::f16, "f16"}, {DType::bf16, "bf16"}}};
constexpr Names<Layout, 2> kLayouts{{{Layout::nchw, "nchw"}, {Layout::nhwc, "nhwc"}}};
constexpr Names<Math, 4> kMaths{
    {{Math::strict, "strict"}, {Math::tf32, "tf32"}, {Math::split3, "split3"}, {Math::split6, "split6"}}};
constexpr Names<Activation, 3> kActivations{
    {{Activation::none, "none"}, {Activation::relu, "relu"}, {Activation::tanh, "tanh"}}};
constexpr Names<Function, 9> kFunctions{{{Function::relu, "relu"},
                                         {Function::relu6, "relu6"},
                                         {Function::tanh, "tanh"},
                                         {Function::sigmoid, "sigmoid"},
                                         {Function::hard_sigmoid, "hard_sigmoid"},
                                         {Function::silu, "silu"},
                                         {Function::hard_swish, "hard_swish"},
                                         {Function::gelu, "gelu"},
                                         {Function::leaky_relu, "leaky_relu"}}};
constexpr Names<Interpolation, 3> kInterpolations{{{Interpolation::nearest, "nearest"},
                                                   {Interpolation::bilinear, "bilinear"},
                                                   {Interpolation::bilinear_align_corners, "bilinear_align_corners"}}};

template <typename Enum, std::size_t kCount>
std::string_view name_of(const Names<Enum, kCount>& names, Enum value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  return "?";
}

template <typename Enum, std::size_t kCount>
Enum parse(const Names<Enum, kCount>& names, std::string_view what, std::string_view text) {
  std::string known;
  for (const auto& [value, name] : names) {
    if (name == text) return value;
    known += known.empty() ? "" : ", ";
    known += name;
  }
  throw Error(ErrorCode::invalid_argument,
              "unknown " + std::string(what) + " '" + std::string(text) + "': one of " + known);
}

}  // namespace

std::string_view to_string(DType value) { return name_of(kDTypes, value); }
std::string_view to_string(Layout value) { return name_of(kLayouts, value); }
std::string_view to_string(Math value) { return name_of(kMaths, value); }
std::string_view to_string(Activation value) { return name_of(kActivations, value); }
std::string_view to_string(Function value) { return name_of(kFunctions, value); }
std::string_view to_string(Interpolation value) { return name_of(kInterpolations, value); }

DType parse_dtype(std::string_view name) { return parse(kDTypes, "dtype", name); }
Layout parse_layout(std::string_view name) { return parse(kLayouts, "layout", name); }
Math parse_math(std::string_view name) { return parse(kMaths, "math mode", name); }
Activation parse_activation(std::string_view name) { return parse(kActivations, "activation", name); }
Function parse_function(std::string_view name) { return parse(kFunctions, "function", name); }
Interpolation parse_interpolation(std::string_view name) { return parse(kInterpolations, "interpolation", name); }

std::uint16_t bf16_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // quiet, and never an infinity
  const std::uint32_t round_to_even = 0x7FFFu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>((bits + round_to_even) >> 16);
}

float float_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

std::uint16_t f16_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 65520 and above
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 aligns the mantissa so that the FPU rounds to f16's subnormal spacing, to nearest even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3F000000u));
  }
  const std::uint32_t rebiased = magnitude - 0x38000000u;
  const std::uint32_t round_to_even = 0xFFFu + ((rebiased >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rebiased + round_to_even) >> 13));
}

float float_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = (std::uint32_t{bits} & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float subnormal = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
}

}  // namespace gable
