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
  std::int64_t group;         // after merging
  std::int64_t first, lanes;  // the first lane, of all groups
};

class Packer {
 public:
  Packer(const Conv2dProblem& problem, const Geometry& geometry, const Terms& terms, const SourceWeights& source)
      : p_(problem), g_(geometry), terms_(terms), source_(source) {}

  /// One (block, tap), all parts. Padding channels and lanes are zero.
  void pack(const Panel& panel, std::int64_t block, std::int64_t tap, std::uint16_t* out) const {
    std::fill_n(out, terms_.parts * kWeightBlock, std::uint16_t{0});
    for (std::int64_t i = 0; i < kChannels; ++i) {
      if (i >= terms_.block_channels) break;
      const std::int64_t channel = terms_.first_channel(block) + i;
      const std::optional<Source> from = source_of(panel.group, channel, tap);
      if (!from) continue;
      const bool in_two = terms_.is_in_two_blocks(channel) || terms_.is_in_two_taps(kernel_row_of(channel, tap));
      pack_channel(panel, *from, in_two ? 0.5f : 1.0f, out + i / 2 * kLanes + i % 2);
    }
  }

 private:
  /// Weights that read one channel: of the lanes of its group, `offset` elements after a lane's first weight.
  struct Source {
    std::int64_t group;  // of the problem
    std::int64_t offset;
  };
  /// The weights of a position's channel and a tap; none in padding.
  std::optional<Source> source_of(std::int64_t group, std::int64_t channel, std::int64_t tap) const {
    if (terms_.gathers()) return source_of_window(channel, tap);
    const bool folded = terms_.fold > 1;
    const std::int64_t kw = tap % terms_.tap_columns + (folded ? channel / terms_.pixel : 0);
    const std::int64_t c = folded ? channel % terms_.pixel : channel;
    if (c >= g_.channels_of(group) || kw >= p_.s) return std::nullopt;
    const WeightStrides& strides = source_.strides;
    return Source{group * g_.merged + c / p_.group_c(),
                  c % p_.group_c() * strides.in + tap / terms_.tap_columns * strides.row + kw * strides.column};
  }
  /// The kernel row of a gathered channel.
  std::int64_t kernel_row_of(std::int64_t channel, std::int64_t tap) const {
    return terms_.kernel_row(tap / terms_.tap_columns) + channel / p_.c / p_.s;
  }
  /// Of a gathered window's channel.
  std::optional<Source> source_of_window(std::int64_t channel, std::int64_t tap) const {
    const std::int64_t pixel = channel / p_.c;
    if (pixel >= terms_.gathered_rows * p_.s) return std::nullopt;
    const WeightStrides& strides = source_.strides;
    return Source{
        0, channel % p_.c * strides.in + kernel_row_of(channel, tap) * strides.row + pixel % p_.s * strides.column};
  }
  void pack_channel(const Panel& panel, const Source& from, float share, std::uint16_t* out) const {
    const std::int64_t begin = std::max(from.group * p_.group_k() - panel.first, std::int64_t{0});
    const std::int64_t end = std::min((from.group + 1) * p_.group_k() - panel.first, panel.lanes);
    for (std::int64_t lane = begin; lane < end; ++lane) {
      const std::int64_t element = (panel.first + lane) * source_.strides.out + from.offset;
      split_weight(share * element_as_f32(source_.data, p_.dtype, element), terms_.parts,
                   out + lane / kVector * (kWeightBlock / 2) + lane % kVector * 2);
    }
  }

  const Conv2dProblem& p_;
  const Geometry& g_;
  const Terms& terms_;
  const SourceWeights& source_;
};

}  // namespace

Packing packing_key(const Conv2dProblem& p, const Geometry& g, const Terms& terms) {
  const std::int64_t folded_pixel = terms.fold > 1 ? terms.pixel : 0;  // without folding, pixels do not show in weights
  return packing_of(p, "bf16 panels",
                    {kLanes, terms.blocks > 1 ? terms.block_channels : kChannels, terms.parts,
                     terms.gathers() ? -terms.gathered_rows : terms.fold, folded_pixel, g.merged});
}

std::int64_t packed_elements(const Geometry& g, const Terms& terms) {
  return g.groups * g.panels * terms.panel_elements();
}

void pack_weights(const Conv2dProblem& p, const Geometry& g, const Terms& terms, const SourceWeights& source,
                  std::uint16_t* packed) {
  const Packer packer(p, g, terms, source);
  for (std::int64_t index = 0; index < g.groups * g.panels; ++index) {
    const std::int64_t group = index / g.panels, of_group = index % g.panels;
    const Panel panel{group, group * g.group_k + of_group * kLanes, g.lanes_of(group, of_group)};
    for (std::int64_t block = 0; block < terms.blocks; ++block) {
      for (std::int64_t tap = 0; tap < terms.tap_count(); ++tap, packed += terms.parts * kWeightBlock) {
        packer.pack(panel, block, tap, packed);
      }
    }
  }
}

}  // namespace gable::cpu::bf16
