// The loops over one unit of NarrowGroupsPlan: rows × pixels of one block of groups.
#pragma once

#include <cstdint>

#include "cpu/narrow_groups/narrow_groups.h"

namespace gable::cpu {

/// What the units of one run share.
struct NarrowGroupsRun {
  const Conv2dProblem& problem;
  const NarrowGroupsKernels& kernels;
  const NarrowGroupsBlocking& blocking;
  const std::int32_t* source;  // SpreadCall's
  const void* x;
  const float* packed;
  const float* bias;  // of each block, block_bias floats
  std::int64_t block_bias;
  void* y;
};

/// Unit `index` of blocking.units. `strip` has room for the ring.
void compute_narrow_groups_unit(const NarrowGroupsRun& run, std::int64_t index, float* strip);

}  // namespace gable::cpu
