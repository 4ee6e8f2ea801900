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

  /// Whether the reorders of a problem in NCHW may pad channels instead of the kernel's own copies: from pixel to pixel
  /// then lie `padded_pitches` elements. The other two are of the problem in NHWC.
  static bool takes_padded(const Conv2dProblem& problem);
  static PixelPitches padded_pitches(const Conv2dProblem& problem);
  static double seconds_padded(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make_padded(const Conv2dProblem& problem, const cudaDeviceProp& device);
};

/// Every layout and max-pool. In NCHW the reorders pad channels to whole vectors, so that there are no copies beside.
struct WgmmaWithReorders : WithReorders<Wgmma> {
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    if (!Wgmma::takes_padded(problem)) return WithReorders<Wgmma>::seconds(problem, device);
    return Wgmma::seconds_padded(without_reorders(problem), device) +
           reorder_seconds(problem, Wgmma::padded_pitches(problem));
  }
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    if (!Wgmma::takes_padded(problem)) return WithReorders<Wgmma>::make(problem, device);
    return with_reorders(problem, Wgmma::make_padded(without_reorders(problem), device),
                         Wgmma::padded_pitches(problem));
  }
};
using WgmmaConv2d = Conv2dKernel<WgmmaWithReorders>;

}  // namespace gable::cuda
