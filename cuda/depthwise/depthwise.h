// Depthwise 3x3 convolution, stride 1 or 2, each tensor touched once: a thread goes down a strip of the image with the
// weights and the sums of two or three output rows in registers, so that an input row is loaded once for all of them.
// Lanes are vectors of channels (nhwc) or neighbouring columns (nchw).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include <gable/problem.h>
#include "cuda/common/description.h"

namespace gable::cuda {

struct DepthwiseStrips {
  const void* x;
  const float* packed;
  const float* bias;
  void* y;
  std::int64_t threads;  // of work, over (image, strip, column group, vector), or (image, vector, strip, column group)
  int c, h, w, ho, wo, pad_top, pad_left;
  int vectors, column_groups, strips, rows;  // rows of the output a strip
  bool nhwc;
  Activation activation;
};

using DepthwiseKernel = void (*)(DepthwiseStrips);

class DepthwiseConv2d {
 public:
  static constexpr std::size_t kAlignment = 16;

  DepthwiseConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device);

  /// Empty, or why it can't run the problem.
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const;
  std::size_t packed_bytes() const;
  std::size_t workspace_bytes() const { return 0; }
  /// Packed are f32 [tap][channel].
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace, cudaStream_t stream) const;

 private:
  Conv2dProblem problem_;
  DepthwiseStrips strips_;
  DepthwiseKernel kernel_;
  int lanes_, columns_;
};

}  // namespace gable::cuda
