// Convolution + bias + activation + max-pool 2x2 in one kernel on the tensor cores of compute capability 9.0 (see
// kernel.cuh): f16, bf16, and f32 in tf32 arithmetic or in products of bf16 parts (a pass before the kernel cuts x into
// parts). If channels are not whole vectors of 16 bytes, tensors pass through padded copies.
#pragma once

#include "cuda/ops/with_reorders.h"
#include "cuda/wgmma/geometry.h"

namespace gable::cuda {

/// NHWC, without a pool or with one of 2x2.
struct Wgmma {
  static constexpr std::size_t kAlignment = 16;  // what tensor copies need

  static std::string missing(const cudaDeviceProp& device);
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
  /// With what the overrides fix, for tests and for fitting the model; throws std::invalid_argument if no tile fits.
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                          const WgmmaOverrides& overrides);
};
using WgmmaConv2d = Conv2dKernel<WithReorders<Wgmma>>;

}  // namespace gable::cuda
