// Depthwise 3x3 convolution of NCHW images, stride 1 or 2. Lanes are pixels, and vectors run on from one row into the
// next, so that small images fill them too. DepthwiseStagedPlan takes what this one refuses.
#pragma once

#include <cstddef>
#include <string>

#include "cpu/common/aligned.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"
#include "cpu/depthwise/depthwise_planes_kernels.h"

namespace gable::cpu {

/// Why DepthwisePlanesPlan is not made for the problem; empty if it is.
std::string depthwise_planes_refusal(const Conv2dProblem& problem, const Target& target);

class DepthwisePlanesPlan {
 public:
  /// Precondition: depthwise_planes_refusal() is empty. Throws what checked() in check.h throws.
  DepthwisePlanesPlan(const Conv2dProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }
  std::size_t packed_bytes() const;

  /// What pack()'s result depends on; not on images, epilogue or threads.
  Packing packing() const;
  /// Weights of the problem's type to f32 [channel][tap].
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  Conv2dProblem problem_;
  const Target* target_;
  const DepthwisePlanesKernels* kernels_;
  int threads_;
  DepthwisePlanesBlocking blocking_;
  AlignedFloats workspace_;  // a part a thread
};

}  // namespace gable::cpu
