// How an Upsample op (gable/ops.h) makes pixels, with the names of the ways.
#pragma once

#include <gable/export.h>

#include <cstdint>
#include <string_view>

namespace gable {

/// Modes of PyTorch's Upsample.
enum class Interpolation : std::uint8_t {
  nearest,                 ///< equal ones
  bilinear,                ///< between the four nearest pixels, whose centres keep their places (align_corners=False)
  bilinear_align_corners,  ///< the same, where the centres of the corner pixels stay the corners
};

GABLE_API std::string_view to_string(Interpolation value);
/// Inverse of to_string(). Throws Error(invalid_argument) that lists the known names.
GABLE_API Interpolation parse_interpolation(std::string_view name);

}  // namespace gable
