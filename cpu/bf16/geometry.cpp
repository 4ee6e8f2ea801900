// See geometry.h.
#include "cpu/bf16/geometry.h"

#include "cpu/common/tiling.h"

namespace gable::cpu::bf16 {

namespace {

/// As many groups as fit the unit's width, on either side.
std::int64_t merged_groups(const Conv2dProblem& p, const Bf16Unit& unit) {
  return std::clamp<std::int64_t>(unit.merged_width / std::max(p.group_c(), p.group_k()), 1, p.groups);
}

}  // namespace

Geometry geometry_of(const Conv2dProblem& p, const Bf16Unit& unit) {
  const std::int64_t merged = merged_groups(p, unit);
  const bool pointwise = is_pointwise(p);
  const std::int64_t pool = p.pool.none() ? 1 : 2;
  const std::int64_t w = pointwise ? p.n * p.h * p.w : p.w;
  return {.n = pointwise ? 1 : p.n,
          .h = pointwise ? 1 : p.h,
          .w = w,
          .rows = pointwise ? 1 : p.out_h() * pool,
          .columns = pointwise ? w : p.out_w() * pool,
          .groups = ceil_div(p.groups, merged),
          .group_c = merged * p.group_c(),
          .group_k = merged * p.group_k(),
          .merged = merged,
          .panels = ceil_div(merged * p.group_k(), kLanes),
          .pool = pool,
          .c = p.c,
          .k = p.k};
}

Terms terms_of(const Conv2dProblem& p, const Geometry& g, int products, const Bf16Unit& unit) {
  const std::int64_t pixel = unit.loads_full_halves ? round_up(g.group_c, 2) : g.group_c;
  const std::int64_t fold = pixel * p.s <= kChannels && p.dilation_w == 1 ? p.s : 1;
  const std::int64_t channels = fold > 1 ? pixel * fold : g.group_c;
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

double padding_factor(const Conv2dProblem& p, const Geometry& g, const Terms& terms, const Bf16Unit& unit) {
  const std::int64_t last = unit.loads_full_halves ? kChannels : 2 * terms.last_pairs;
  const std::int64_t channels = ((terms.blocks - 1) * kChannels + last) * terms.tap_count();
  const double of_channels = static_cast<double>(channels) / static_cast<double>(p.group_c() * p.r * p.s);
  const std::int64_t lanes = round_up(g.group_k, kVector);
  return of_channels * static_cast<double>(lanes) / static_cast<double>(p.group_k());
}

}  // namespace gable::cpu::bf16
