// Convolution of at most 8 input channels. With so few, Conv2dPlan's loop over input lanes is short and its vectors of
// output lanes may be mostly empty. A strip of the input serves two kinds of register tile (few_channels_kernels.h):
// lanes are output channels, or pixels if there are only a few output channels too. In f32 NHWC, tiles of channel lanes
// that touch no column of padding read the image itself. The 2x2 max-pool and the bias are applied in registers, before
// anything is stored.
//   blocking  which tile, and how units and strips are cut        packing  the order of packed weights
//   unit      the loops over one unit                              kernels  strips and tiles, once a target
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cpu/common/aligned.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"
#include "cpu/few_channels/few_channels_blocking.h"

namespace gable::cpu {

/// Why FewChannelsPlan is not made for the problem; empty if it is.
std::string few_channels_refusal(const Conv2dProblem& problem, const Target& target);

/// How long a run will last (estimate.h). Precondition: few_channels_refusal() is empty.
double few_channels_seconds(const Conv2dProblem& problem, const Target& target, int threads);

class FewChannelsPlan {
 public:
  /// Precondition: few_channels_refusal() is empty. Throws what checked() in check.h throws.
  FewChannelsPlan(const Conv2dProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }
  std::size_t packed_bytes() const;
  Packing packing() const;

  /// Weights to the order of few_channels_packing.h.
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  bool non_temporal() const;  // stores, where y is aligned to cache lines

  Conv2dProblem problem_;
  const Target* target_;
  const FewChannelsKernels* kernels_;
  int threads_;
  FewChannelsBlocking blocking_;
  std::vector<std::int32_t> offsets_;                // of each run of steps, in the strip
  std::vector<std::int32_t> image_offsets_;          // the same in the image, where tiles read it
  std::vector<std::int32_t> pixel_of_, channel_of_;  // of interleaved values; pixel lanes
  AlignedFloats workspace_;                          // a bias in whole vectors, then a part a thread
};

}  // namespace gable::cpu
