// See pack.h.
#include "cpu/bf16/pack.h"

#include <algorithm>

#include "cpu/common/half.h"

namespace gable::cpu::bf16 {
namespace {

/// One value as its bf16 parts, greatest first.
void split_weight(float value, int parts, std::uint16_t* out) {
  for (int part = 0; part < parts; ++part) {
    const std::uint16_t half = f32_to_bf16(value);
    out[part * kWeightBlock] = half;
    value -= bf16_to_f32(half);
  }
}

/// Up to 32 output lanes of the weights.
struct Panel {
  std::int64_t first, lanes;  // first: element of the first lane's first weight
};

/// One (block, tap), all parts. Padding channels and lanes are zero.
void pack_block(const Conv2dProblem& p, const Terms& terms, const Panel& panel, std::int64_t block, std::int64_t tap,
                const void* weights, const WeightStrides& strides, std::uint16_t* out) {
  std::fill_n(out, terms.parts * kWeightBlock, std::uint16_t{0});
  const bool folded = terms.fold > 1;
  for (std::int64_t i = 0; i < kChannels; ++i) {
    const std::int64_t channel = block * kChannels + i;
    const std::int64_t kw = tap % terms.tap_columns + (folded ? channel / terms.pixel : 0);
    const std::int64_t c = folded ? channel % terms.pixel : channel;
    if (c >= p.group_c() || kw >= p.s) continue;
    const std::int64_t source =
        panel.first + c * strides.in + tap / terms.tap_columns * strides.row + kw * strides.column;
    for (std::int64_t lane = 0; lane < panel.lanes; ++lane) {
      const std::int64_t place = lane / 16 * (kWeightBlock / 2) + i / 2 * kLanes + lane % 16 * 2 + i % 2;
      split_weight(element_as_f32(weights, p.dtype, source + lane * strides.out), terms.parts, out + place);
    }
  }
}

}  // namespace

Packing packing_key(const Conv2dProblem& p, const Terms& terms) {
  const std::int64_t folded_pixel = terms.fold > 1 ? terms.pixel : 0;  // without folding, pixels do not show in weights
  return packing_of(p, "bf16 panels", {kLanes, kChannels, terms.parts, terms.fold, folded_pixel, 0});
}

std::int64_t packed_elements(const Geometry& g, const Terms& terms) {
  return g.groups * g.panels * terms.panel_elements();
}

void pack_weights(const Conv2dProblem& p, const Terms& terms, const void* weights, const WeightStrides& strides,
                  std::uint16_t* packed) {
  const std::int64_t panels = ceil_div(p.group_k(), kLanes);
  for (std::int64_t index = 0; index < p.groups * panels; ++index) {
    const std::int64_t first_lane = index % panels * kLanes;
    const Panel panel{(index / panels * p.group_k() + first_lane) * strides.out,
                      std::min<std::int64_t>(kLanes, p.group_k() - first_lane)};
    for (std::int64_t block = 0; block < terms.blocks; ++block) {
      for (std::int64_t tap = 0; tap < terms.tap_count(); ++tap, packed += terms.parts * kWeightBlock) {
        pack_block(p, terms, panel, block, tap, weights, strides, packed);
      }
    }
  }
}

}  // namespace gable::cpu::bf16
