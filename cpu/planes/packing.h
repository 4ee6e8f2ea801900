// Weights in the order that tiles load them: [group][panel][block][tap][part][step][lane], where a panel has as many
// lanes as its tile, or whole vectors of them for pixels by lanes; for units of whole tiles
// [group][panel][block][tap][part][lane][step], padded with zeros. An element is an f32 weight, or the bf16 weights of
// a pair of channels.
#pragma once

#include <gable/problem.h>

#include <cstdint>

#include "cpu/planes/blocking.h"

namespace gable::cpu::planes {

Packing packing_key(const Blocking& blocking, const TileUnit& unit);

/// Elements of one group's packed weights, and from one panel to the next.
std::int64_t group_elements(const Blocking& blocking, const TileUnit& unit);
std::int64_t panel_elements(const Blocking& blocking, const TileUnit& unit);

struct SourceWeights {
  const void* data;  // of the problem's type
  const WeightStrides& strides;
};
void pack_weights(const Blocking& blocking, const TileUnit& unit, const SourceWeights& source, std::uint32_t* packed);

}  // namespace gable::cpu::planes
