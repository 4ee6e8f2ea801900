// Which compiled kernel of strips.h takes a problem, and how long its strips are: the cut of least estimated time.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/depthwise/strips.h"

namespace gable::cuda {

struct DepthwiseStripsCut {
  const DepthwiseStripsVariant* variant = nullptr;  // null: none takes the problem
  DepthwiseStrips strips{};
  double seconds = 0;  // estimated, inside a CUDA graph

  unsigned blocks() const {
    const int places = kDepthwiseThreads / strips.block_pairs;
    return static_cast<unsigned>((strips.positions + places - 1) / places * strips.channel_blocks);
  }
};

/// The problem is depthwise without a multiplier and a pool.
DepthwiseStripsCut best_strips_cut(const Conv2dProblem& problem, const cudaDeviceProp& device);

/// Strips of at most `rows` rows.
DepthwiseStripsCut strips_cut(const Conv2dProblem& problem, const cudaDeviceProp& device,
                              const DepthwiseStripsVariant& variant, int rows);

/// Whether the variant's kernel computes the problem on the device.
bool strips_fit(const Conv2dProblem& problem, const cudaDeviceProp& device, const DepthwiseStripsVariant& variant);

}  // namespace gable::cuda
