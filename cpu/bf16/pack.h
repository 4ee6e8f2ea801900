// Weights in the order that bf16 units load them: [group][panel][block][tap][part][2][16 channel pairs][16 lanes][2].
#pragma once

#include <cstdint>

#include <gable/problem.h>
#include "cpu/bf16/geometry.h"

namespace gable::cpu::bf16 {

/// What the bytes depend on besides the weights.
Packing packing_key(const Conv2dProblem& problem, const Geometry& geometry, const Terms& terms);

std::int64_t packed_elements(const Geometry& geometry, const Terms& terms);

/// Weights of problem.dtype.
struct SourceWeights {
  const void* data;
  const WeightStrides& strides;
};
/// Writes packed_elements() elements.
void pack_weights(const Conv2dProblem& problem, const Geometry& geometry, const Terms& terms,
                  const SourceWeights& source, std::uint16_t* packed);

}  // namespace gable::cpu::bf16
