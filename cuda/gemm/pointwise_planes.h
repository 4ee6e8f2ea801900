// 1x1 convolutions of 16-bit types, and of f32 as tf32, in NCHW on the tensor cores (mma.sync), without reorders: an
// image's output planes are the weights' matrix times its input planes, so tiles are output channels by pixels, and the
// pixels of a batch are one line of columns.
//
//   A, weights     as implicit_gemm packs them: 64 bytes of input channels of each output channel of a tile
//   B, pixels      32 planes of a tile's pixels (16 in tf32), copied by cp.async in the widest accesses that divide a
//                  plane, and transposed by ldmatrix; with strides, and of odd planes, single pixels of 16 bits pass
//                  through registers. Operands of tf32 are single words, which lanes read as they lie
//   accumulators   rows are channels and columns pixels, as stores need them
//
// A tile's pixels may lie in two images: no access does. Where tiles are few, a cluster of 2 to 8 blocks shares a
// tile's depth and adds up the sums through its shared memory. Groups have tiles of their own, or a bundle of several
// is one product with zeros among its weights, where a group's channels would not fill a tile. Deep sums of 16 bits are
// wgmma's on compute capability 9.0 (cuda/wgmma/planes.h), where that is estimated to be faster.
#pragma once

#include "cuda/common/conv2d_plan.h"
#include "cuda/gemm/planes_choice.h"

namespace gable::cuda {

struct PointwisePlanes {
  static constexpr std::size_t kAlignment = 16;

  static std::string missing(const cudaDeviceProp& device);
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
  /// By mma.sync, with a tile and splits of the caller's choice, for tests.
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                          const PlanesChoice& forced);
};
using PointwisePlanesConv2d = Conv2dKernel<PointwisePlanes>;

}  // namespace gable::cuda
