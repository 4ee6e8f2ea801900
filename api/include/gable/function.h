// The functions of an Activate op (gable/ops.h), with their names.
#pragma once

#include <gable/export.h>

#include <cstdint>
#include <string_view>

namespace gable {

/// Functions of one number, as PyTorch has them.
enum class Function : std::uint8_t {
  relu,          ///< max(x, 0)
  relu6,         ///< min(max(x, 0), 6)
  tanh,          ///<
  sigmoid,       ///< 1 / (1 + exp(-x))
  hard_sigmoid,  ///< min(max(x + 3, 0), 6) / 6
  silu,          ///< x / (1 + exp(-x)), also called swish
  hard_swish,    ///< x * min(max(x + 3, 0), 6) / 6
  gelu,          ///< x * (1 + erf(x / sqrt(2))) / 2
  leaky_relu,    ///< x, or slope * x where x is negative (Activate::slope)
};

GABLE_API std::string_view to_string(Function value);
/// Inverse of to_string(). Throws Error(invalid_argument) that lists the known names.
GABLE_API Function parse_function(std::string_view name);

}  // namespace gable
