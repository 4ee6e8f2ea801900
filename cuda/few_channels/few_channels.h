// Convolution of at most 8 input channels a group on the f32 units, each tensor touched once: a block stages the input
// tile with its halo as f32 planes in shared memory, a thread computes 2 rows x 4 or 6 columns x 6 or 8 channels in
// registers (weights are read as broadcasts), takes the 2x2 maximum, bias and activation there, and stores.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "cuda/common/description.h"
#include "cuda/common/halo_tile.h"

namespace gable::cuda {

/// A register tile that is compiled: for one kernel width and horizontal stride, or (0) any.
struct FewChannelsVariant;

class FewChannelsConv2d {
 public:
  static constexpr std::size_t kAlignment = 16;

  /// `device` is the current one.
  FewChannelsConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device);

  /// Empty, or why it can't run the problem.
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const;
  std::size_t packed_bytes() const;
  std::size_t workspace_bytes() const { return 0; }
  /// Packed are f32 [group][block of output channels][channel][kh][kw][output channel], zeros past the last channel.
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace, cudaStream_t stream) const;

 private:
  const FewChannelsVariant* variant_;
  TileChoice choice_;
};

}  // namespace gable::cuda
