// See packing.h.
#include "cpu/planes/packing.h"

#include <algorithm>
#include <array>
#include <bit>

#include "cpu/common/half.h"

namespace gable::cpu::planes {
namespace {

/// A tap's weight of one lane, by channel of the group.
struct Lane {
  const SourceWeights& source;
  DType type;
  std::int64_t first, channels;

  float at(std::int64_t channel) const {
    return channel < channels ? element_as_f32(source.data, type, first + channel * source.strides.in) : 0.0f;
  }
};

/// The parts of one element: of an f32 weight itself, or of a pair of channels.
std::array<std::uint32_t, 3> element_parts(const Lane& lane, std::int64_t step, const TileUnit& unit, int parts) {
  std::array<std::uint32_t, 3> element{};
  if (!unit.multiplies_pairs()) {
    element[0] = std::bit_cast<std::uint32_t>(lane.at(step));
    return element;
  }
  for (int i = 0; i < 2; ++i) {
    float rest = lane.at(2 * step + i);
    for (int part = 0; part < parts; ++part) {
      const std::uint16_t half = f32_to_bf16(rest);
      element[static_cast<std::size_t>(part)] |= static_cast<std::uint32_t>(half) << (16 * i);
      rest -= bf16_to_f32(half);
    }
  }
  return element;
}

}  // namespace

Packing packing_key(const Blocking& b, const TileUnit& unit) {
  return packing_of(
      b.problem, "planes",
      {b.panels.lanes, unit.channels, b.terms.parts, unit.whole_tiles ? 1 : 0, b.by_lanes ? unit.positions : 0});
}

std::int64_t panel_elements(const Blocking& b, const TileUnit& unit) {
  const std::int64_t steps = unit.whole_tiles ? b.terms.blocks() * kBlockSteps : b.terms.steps;
  return steps * static_cast<std::int64_t>(b.taps.size()) * b.terms.parts * b.panels.lanes;
}

std::int64_t group_elements(const Blocking& b, const TileUnit& unit) {
  if (unit.whole_tiles) return b.panels.count * panel_elements(b, unit);
  const std::int64_t lanes = b.by_lanes ? round_up(b.problem.group_k(), unit.positions) : b.problem.group_k();
  return panel_elements(b, unit) / b.panels.lanes * lanes;
}

void pack_weights(const Blocking& b, const TileUnit& unit, const SourceWeights& source, std::uint32_t* packed) {
  const Conv2dProblem& p = b.problem;
  const std::int64_t taps = static_cast<std::int64_t>(b.taps.size());
  for (std::int64_t group = 0; group < p.groups; ++group) {
    for (std::int64_t panel = 0; panel < b.panels.count; ++panel) {
      const std::int64_t first_lane = panel * b.panels.lanes;
      const std::int64_t valid = std::min(b.panels.lanes, p.group_k() - first_lane);
      const std::int64_t lanes = unit.whole_tiles ? b.panels.lanes
                                 : b.by_lanes     ? round_up(valid, unit.positions)
                                                  : valid;
      for (std::int64_t block = 0; block < b.terms.steps; block += kBlockSteps) {
        const std::int64_t valid_steps = std::min(kBlockSteps, b.terms.steps - block);
        const std::int64_t steps = unit.whole_tiles ? kBlockSteps : valid_steps;
        const std::int64_t lane_pitch = unit.whole_tiles ? kBlockSteps : 1, step_pitch = unit.whole_tiles ? 1 : lanes;
        for (std::int64_t tap = 0; tap < taps; ++tap, packed += b.terms.parts * steps * lanes) {
          std::fill_n(packed, b.terms.parts * steps * lanes, 0u);
          for (std::int64_t lane = 0; lane < valid; ++lane) {
            const std::int64_t first = (group * p.group_k() + first_lane + lane) * source.strides.out +
                                       tap / p.s * source.strides.row + tap % p.s * source.strides.column;
            const Lane weights{source, p.dtype, first, p.group_c()};
            for (std::int64_t step = 0; step < valid_steps; ++step) {
              const auto element = element_parts(weights, block + step, unit, b.terms.parts);
              for (int part = 0; part < b.terms.parts; ++part) {
                packed[part * steps * lanes + lane * lane_pitch + step * step_pitch] =
                    element[static_cast<std::size_t>(part)];
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace gable::cpu::planes
