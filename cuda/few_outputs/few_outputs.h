// Convolutions of NHWC images with few output channels on the tensor cores of sm_80 and later (mma.sync), for f16, bf16
// and f32 as tf32: class heads, masks, the last layer of networks that make images. Other kernels pad so few channels
// to tiles of 32 or 64, and read each pixel once for each tap.
//
// Here columns of the matrix product are taps of a row × output channels, so that a pixel is read from memory to
// registers once for all columns. A warp takes a strip of 32 or 16 pixels down the image. Each row of pixels is
// multiplied by the weights of every row of the window, whose sums belong to as many rows of output and stay in
// registers until the last one is there. Then the columns' sums go to shared memory and are added up from where the
// taps lie: of 3 taps and 32 pixels, 30 outputs. Warps wait for no other, unless channels are shared between them.
//
//   few_outputs_cut.h   strips and their estimated time
#pragma once

#include <memory>
#include <string>

#include "cuda/common/conv2d_plan.h"
#include "cuda/few_outputs/few_outputs_cut.h"

namespace gable::cuda {

/// NHWC, one group, no pool. Not a stride and a dilation of rows together.
struct FewOutputs {
  static constexpr std::size_t kAlignment = 16;

  static std::string missing(const cudaDeviceProp& device);
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  /// With a cut of the caller's choice, for tests.
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                          const FewOutputsOverrides& forced);
};
using FewOutputsConv2d = Conv2dKernel<FewOutputs>;

}  // namespace gable::cuda
