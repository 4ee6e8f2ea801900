// See geometry.h.
#include "cpu/bf16/geometry.h"

#include "cpu/common/tiling.h"

namespace gable::cpu::bf16 {

Geometry geometry_of(const Conv2dProblem& p) {
  const bool pointwise = is_pointwise(p);
  const std::int64_t pool = p.pool.none() ? 1 : 2;
  const std::int64_t w = pointwise ? p.n * p.h * p.w : p.w;
  return {.n = pointwise ? 1 : p.n,
          .h = pointwise ? 1 : p.h,
          .w = w,
          .rows = pointwise ? 1 : p.out_h() * pool,
          .columns = pointwise ? w : p.out_w() * pool,
          .groups = p.groups,
          .group_c = p.group_c(),
          .group_k = p.group_k(),
          .panels = ceil_div(p.group_k(), kLanes),
          .pool = pool};
}

Terms terms_of(const Conv2dProblem& p, int products, const Bf16Unit& unit) {
  const std::int64_t pixel = unit.loads_full_halves ? round_up(p.group_c(), 2) : p.group_c();
  const std::int64_t fold = pixel * p.s <= kChannels && p.dilation_w == 1 ? p.s : 1;
  const std::int64_t channels = fold > 1 ? pixel * fold : p.group_c();
  const std::int64_t blocks = ceil_div(channels, kChannels);
  return {.products = products,
          .parts = parts_of(products),
          .fold = fold,
          .pixel = pixel,
          .blocks = blocks,
          .last_pairs = static_cast<int>(ceil_div(channels - (blocks - 1) * kChannels, 2)),
          .last_is_single = fold > 1 && channels % 2 == 1,
          .tap_rows = p.r,
          .tap_columns = fold > 1 ? 1 : p.s};
}

double padding_factor(const Conv2dProblem& p, const Terms& terms, const Bf16Unit& unit) {
  const std::int64_t last = unit.loads_full_halves ? kChannels : 2 * terms.last_pairs;
  const std::int64_t channels = ((terms.blocks - 1) * kChannels + last) * terms.tap_count();
  const double of_channels = static_cast<double>(channels) / static_cast<double>(p.group_c() * p.r * p.s);
  const std::int64_t lanes = ceil_div(p.group_k(), kLanes) * kLanes;
  return of_channels * static_cast<double>(lanes) / static_cast<double>(p.group_k());
}

}  // namespace gable::cpu::bf16
