// One axis of a convolution, rows or columns: which source pixels the outputs read.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/bf16/geometry.h"
#include "cpu/common/tiling.h"

namespace gable::cpu::bf16 {

struct Axis {
  std::int64_t size, taps, stride, pad, dilation;
  std::int64_t pitch;  // elements from pixel to pixel

  /// Source pixels from an output's first tap to its last.
  std::int64_t reach() const { return (taps - 1) * dilation; }
  TapRange taps_of(std::int64_t out) const { return taps_inside(out * stride - pad, size, dilation, taps); }
};
inline Axis row_axis(const Conv2dProblem& p, const Geometry& g) {
  return {g.h, p.r, p.stride_h, p.pad_top, p.dilation_h, g.w * p.c};
}
inline Axis column_axis(const Conv2dProblem& p, const Geometry& g) {
  return {g.w, p.s, p.stride_w, p.pad_left, p.dilation_w, p.c};
}

/// Outputs whose taps all fall inside the image.
inline std::int64_t outputs_inside(const Axis& axis) {
  const std::int64_t room = axis.size - 1 - axis.reach() + axis.pad;
  return room < 0 ? 0 : room / axis.stride - ceil_div(axis.pad, axis.stride) + 1;
}

/// The most source pixels that `outs` outputs read; a single tap reads one for each.
inline std::int64_t source_size(const Axis& axis, std::int64_t outs) {
  return axis.taps == 1 ? outs : std::min(axis.size, (outs - 1) * axis.stride + axis.reach() + 1);
}

/// The source rows (or columns) that some outputs read, `step` apart.
struct SourceRange {
  std::int64_t first, count, step;
  /// The range without its first `some` rows, in an image of `size` rows.
  SourceRange without_first(std::int64_t some, std::int64_t size) const {
    const std::int64_t begin = first + some * step;
    return {begin, std::min(count, ceil_div(size - begin, step)), step};
  }
};
/// The source range of outputs [first_out, first_out + outs). A single tap skips the pixels between its strides.
inline SourceRange source_range(const Axis& axis, std::int64_t first_out, std::int64_t outs) {
  const std::int64_t step = axis.reach() == 0 ? axis.stride : 1;
  const std::int64_t low = std::max<std::int64_t>(0, first_out * axis.stride - axis.pad);
  const std::int64_t high = std::min(axis.size, (first_out + outs - 1) * axis.stride - axis.pad + axis.reach() + 1);
  return {low, ceil_div(high - low, step), step};
}

}  // namespace gable::cpu::bf16
