// The order of FewChannelsPlan's packed weights: [panel][step][channel], where a step is one tap of one input channel.
// Steps are [kh][kw][channel] where the strip interleaves channels, else [kh][channel][kw]. Panels are
//   channel lanes  whole vectors of output channels; lanes past the last channel are zero
//   pixel lanes    nearly equal blocks of output channels, without padding
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/few_channels/few_channels_blocking.h"

namespace gable::cpu {

/// Output channels with the padding of the last panel.
std::int64_t padded_channels(const Conv2dProblem& problem, const FewTileShape& tile, int lanes);

/// `packed` has padded_channels() times few_channels_steps() floats.
void pack_few_channels(const Conv2dProblem& problem, const FewChannelsBlocking& blocking, int lanes,
                       const void* weights, const WeightStrides& strides, float* packed);

/// Plans of both kinds of tile share weights where their panels are alike.
Packing few_channels_packing(const Conv2dProblem& problem, const FewChannelsBlocking& blocking, int lanes);

/// Where each run of steps begins in the strip, in the order of the packed weights.
std::vector<std::int32_t> run_offsets(const Conv2dProblem& problem, const FewStrip& strip);

}  // namespace gable::cpu
