// See implicit.h.
#include "cuda/implicit.h"

#include <algorithm>

namespace gable::cuda {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 31;

}  // namespace

ImplicitGemm implicit_gemm_of(const Conv2dProblem& p, int c_multiple, int k_multiple) {
  const auto i = [](std::int64_t value) { return static_cast<int>(value); };
  const std::int64_t padded_c = round_up(p.group_c(), c_multiple);
  const bool pooled = !p.pool.none();
  return {.rows = i(p.n * p.out_h() * p.out_w() * (pooled ? 4 : 1)),
          .columns = i(p.group_k()),
          .depth = i(p.r * p.s * padded_c),
          .padded_c = i(padded_c),
          .padded_k = i(round_up(p.group_k(), k_multiple)),
          .groups = i(p.groups),
          .group_c = i(p.group_c()),
          .c = i(p.c),
          .h = i(p.h),
          .w = i(p.w),
          .k = i(p.k),
          .s = i(p.s),
          .taps = i(p.r * p.s),
          .out_h = i(p.out_h()),
          .out_w = i(p.out_w()),
          .stride_h = i(p.stride_h),
          .stride_w = i(p.stride_w),
          .pad_top = i(p.pad_top),
          .pad_left = i(p.pad_left),
          .dilation_h = i(p.dilation_h),
          .dilation_w = i(p.dilation_w),
          .pooled = pooled,
          .bias = p.bias,
          .activation = p.activation};
}

std::string implicit_refusal(const Conv2dProblem& p) {
  const std::int64_t weights = p.k * round_up(p.group_c(), 8) * p.r * p.s;
  // Padding lies outside x; the offsets of its pixels are formed all the same.
  const std::int64_t reach =
      p.n * (p.h + p.pad_top + p.r * p.dilation_h) * (p.w + p.pad_left + p.s * p.dilation_w) * p.c;
  if (std::max({reach, p.conv_elements(), weights}) >= kMostElements) {
    return "a tensor has 2^31 elements or more; its indices have 32 bits";
  }
  constexpr std::int64_t kMostGroups = 65535 / 16;  // a grid's y holds groups and parts of the depth
  if (p.groups > kMostGroups) {
    return std::to_string(p.groups) + " groups; it takes at most " + std::to_string(kMostGroups);
  }
  return "";
}

}  // namespace gable::cuda
