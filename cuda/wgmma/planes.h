// 1x1 convolutions of 16-bit types in NCHW by wgmma, without reorders: pointwise_planes on compute capability 9.0.
//
//   A, weights     64 output channels x 64 input channels, packed as the matrix unit reads them
//   B, pixels      64 planes x 64 pixels of an image, which the matrix unit transposes: tensor copies where planes are
//                  whole 16 bytes, else 8 or 4 bytes at a time by cp.async, or single pixels through registers
//   accumulators   rows are channels and columns pixels, as stores need them
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

/// Output channels and pixels of a block, in 64s.
struct WgmmaPlanesChoice {
  int slices = 0, chunks = 0;
  double seconds = 0;  // estimate
};

struct WgmmaPlanes {
  static bool takes(const Conv2dProblem& problem, const cudaDeviceProp& device);
  /// Numbers of `forced` that are not 0 are kept, for tests.
  static WgmmaPlanesChoice choose(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                  const WgmmaPlanesChoice& forced = {});
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                          const WgmmaPlanesChoice& choice);
};

}  // namespace gable::cuda
