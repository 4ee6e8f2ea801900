// The loops over one unit of FewChannelsPlan: an image's block of output rows.
#pragma once

#include <cstdint>

#include "cpu/few_channels/few_channels_blocking.h"

namespace gable::cpu {

/// What the units of one run share.
struct FewChannelsRun {
  const Conv2dProblem& problem;
  const Target& target;
  const FewChannelsKernels& kernels;
  const FewChannelsBlocking& blocking;
  const std::int32_t* offsets;                // run_offsets() in the strip
  const std::int32_t* image_offsets;          // those in the image
  const std::int32_t *pixel_of, *channel_of;  // FewInterleaveCall's
  const void* x;
  const float* packed;
  const float* bias;  // whole vectors, never null
  bool non_temporal;  // stores of y
  void* y;
};

/// Unit `index` of n * row_blocks, in a thread's workspace.
void compute_few_channels_unit(const FewChannelsRun& run, std::int64_t index, float* workspace);

}  // namespace gable::cpu
