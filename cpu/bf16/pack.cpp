// See pack.h.
#include "cpu/bf16/pack.h"

#include <algorithm>
#include <optional>

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

class Packer {
 public:
  Packer(const Conv2dProblem& problem, const Terms& terms, const SourceWeights& source)
      : p_(problem), terms_(terms), source_(source) {}

  /// One (block, tap), all parts. Padding channels and lanes are zero.
  void pack(const Panel& panel, std::int64_t block, std::int64_t tap, std::uint16_t* out) const {
    std::fill_n(out, terms_.parts * kWeightBlock, std::uint16_t{0});
    for (std::int64_t i = 0; i < kChannels; ++i) {
      const std::optional<std::int64_t> offset = offset_of(block * kChannels + i, tap);
      if (offset) pack_channel(panel, panel.first + *offset, out + i / 2 * kLanes + i % 2);
    }
  }

 private:
  /// Elements from a lane's first weight to that of a position's channel and a tap; none in padding.
  std::optional<std::int64_t> offset_of(std::int64_t channel, std::int64_t tap) const {
    const bool folded = terms_.fold > 1;
    const std::int64_t kw = tap % terms_.tap_columns + (folded ? channel / terms_.pixel : 0);
    const std::int64_t c = folded ? channel % terms_.pixel : channel;
    if (c >= p_.group_c() || kw >= p_.s) return std::nullopt;
    const WeightStrides& strides = source_.strides;
    return c * strides.in + tap / terms_.tap_columns * strides.row + kw * strides.column;
  }
  void pack_channel(const Panel& panel, std::int64_t first, std::uint16_t* out) const {
    for (std::int64_t lane = 0; lane < panel.lanes; ++lane) {
      const float value = element_as_f32(source_.data, p_.dtype, first + lane * source_.strides.out);
      split_weight(value, terms_.parts, out + lane / 16 * (kWeightBlock / 2) + lane % 16 * 2);
    }
  }

  const Conv2dProblem& p_;
  const Terms& terms_;
  const SourceWeights& source_;
};

}  // namespace

Packing packing_key(const Conv2dProblem& p, const Terms& terms) {
  const std::int64_t folded_pixel = terms.fold > 1 ? terms.pixel : 0;  // without folding, pixels do not show in weights
  return packing_of(p, "bf16 panels", {kLanes, kChannels, terms.parts, terms.fold, folded_pixel, 0});
}

std::int64_t packed_elements(const Geometry& g, const Terms& terms) {
  return g.groups * g.panels * terms.panel_elements();
}

void pack_weights(const Conv2dProblem& p, const Terms& terms, const SourceWeights& source, std::uint16_t* packed) {
  const Packer packer(p, terms, source);
  const std::int64_t panels = ceil_div(p.group_k(), kLanes);
  for (std::int64_t index = 0; index < p.groups * panels; ++index) {
    const std::int64_t first_lane = index % panels * kLanes;
    const Panel panel{(index / panels * p.group_k() + first_lane) * source.strides.out,
                      std::min<std::int64_t>(kLanes, p.group_k() - first_lane)};
    for (std::int64_t block = 0; block < terms.blocks; ++block) {
      for (std::int64_t tap = 0; tap < terms.tap_count(); ++tap, packed += terms.parts * kWeightBlock) {
        packer.pack(panel, block, tap, packed);
      }
    }
  }
}

}  // namespace gable::cpu::bf16
