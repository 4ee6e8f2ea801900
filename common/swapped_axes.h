// A convolution whose rows and columns change places: what walks along rows then walks along columns.
#pragma once

#include <gable/problem.h>

#include <utility>

namespace gable {

constexpr Conv2dProblem with_axes_swapped(Conv2dProblem p) {
  std::swap(p.h, p.w);
  std::swap(p.r, p.s);
  std::swap(p.ho, p.wo);
  std::swap(p.stride_h, p.stride_w);
  std::swap(p.pad_top, p.pad_left);
  std::swap(p.dilation_h, p.dilation_w);
  std::swap(p.pool.h, p.pool.w);
  std::swap(p.pool.stride_h, p.pool.stride_w);
  return p;
}

}  // namespace gable
