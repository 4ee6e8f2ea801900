// Convolution of 3 to 8 input channels a group on the tensor cores, each tensor touched once: implicit GEMM out of a
// staged input tile, so that a kernel tap costs an address, not a copy. Any kernel size, stride and dilation; f16,
// bf16, and f32 as tf32. The 2x2 maximum, bias and activation happen in registers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "cuda/common/description.h"
#include "cuda/common/halo_tile.h"

namespace gable::cuda {

struct FewChannelsMmaVariant;

class FewChannelsMma {
 public:
  static constexpr std::size_t kAlignment = 16;

  /// `device` is the current one.
  FewChannelsMma(const Conv2dProblem& problem, const cudaDeviceProp& device);

  /// Empty, or why it can't run the problem.
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const;
  std::size_t packed_bytes() const;
  std::size_t workspace_bytes() const { return 0; }
  /// Packed are the fragments of the matrix instruction, in the order in which a warp reads them.
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace, cudaStream_t stream) const;

 private:
  const FewChannelsMmaVariant* variant_;
  TileChoice choice_;
};

}  // namespace gable::cuda
