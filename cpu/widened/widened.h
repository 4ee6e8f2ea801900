// 1x1 convolution of f16 and bf16 in NHWC as f32 arithmetic: the pixels of a piece are widened to f32 in L2, the f32
// kernel of 1x1 convolutions computes them, and its outputs are narrowed. For CPUs without a unit for the type.
// An element costs a conversion on either side, a pixel C·K products: few beside those from about 16 channels on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cpu/common/aligned.h"
#include "cpu/common/description.h"
#include "cpu/pointwise/pointwise.h"
#include "cpu/widened/widened_kernels.h"

namespace gable::cpu {

/// Why WidenedPointwisePlan is not made for the problem; empty if it is.
std::string widened_pointwise_refusal(const Conv2dProblem& problem, const Target& target);

/// Output pixels of a piece, whose f32 inputs and outputs fit a quarter of L2, with enough pieces for the threads.
std::int64_t widened_piece_pixels(const Conv2dProblem& problem, int threads);
/// So many output pixels as a dense problem in f32.
Conv2dProblem widened_piece(const Conv2dProblem& problem, std::int64_t pixels);

/// How long a run will last (estimate.h). Precondition: widened_pointwise_refusal() is empty.
double widened_pointwise_seconds(const Conv2dProblem& problem, const Target& target, int threads);

class WidenedPointwisePlan {
 public:
  /// Precondition: widened_pointwise_refusal() is empty. Throws what checked() in check.h throws.
  WidenedPointwisePlan(const Conv2dProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const;
  std::size_t packed_bytes() const { return pieces_.front().packed_bytes(); }
  Packing packing() const;

  /// PointwisePlan's order, in f32.
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  struct Piece {
    std::int64_t first, pixels;  // of the output, all images
  };
  Piece piece(std::int64_t index) const;
  void widen(const void* x, const Piece& piece, float* strip) const;

  Conv2dProblem problem_;
  const Target* target_;
  const WidenedKernels* kernels_;
  int threads_;
  std::int64_t pixels_, piece_pixels_, piece_count_;
  std::vector<PointwisePlan> pieces_;  // of whole pieces, one a thread, and one of the last piece
  AlignedFloats workspace_;            // inputs and outputs of a piece, for each thread
};

}  // namespace gable::cpu
