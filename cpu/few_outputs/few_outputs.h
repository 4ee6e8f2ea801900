// Convolution of NHWC images with at most 8 output channels and any window, and matrix products with as few columns.
// Other kernels hold output channels in the lanes of a vector, and most lanes would stay empty; here lanes are input
// channels. Each tap reads its pixels once, for all outputs. A unit of work is a block of rows and pixels: a row's sums
// stay in L1 until their epilogue. Tiles whose windows reach into the padding at either end of a row read a strip, a
// copy of the unit's columns there with zeros beyond the image.
#pragma once

#include <cstddef>
#include <string>

#include "cpu/common/aligned.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"
#include "cpu/common/tiling.h"
#include "cpu/common/unit_window.h"
#include "cpu/few_outputs/few_outputs_kernels.h"

namespace gable::cpu {

/// Why FewOutputsPlan is not made for the problem; empty if it is.
std::string few_outputs_refusal(const Conv2dProblem& problem, const Target& target);

/// How long a run will last (estimate.h). Precondition: few_outputs_refusal() is empty.
double few_outputs_seconds(const Conv2dProblem& problem, const Target& target, int threads);

/// The same for plans with few_outputs_dot_kernels().
std::string few_outputs_dot_refusal(const Conv2dProblem& problem, const Target& target);
double few_outputs_dot_seconds(const Conv2dProblem& problem, const Target& target, int threads);

class FewOutputsPlan {
 public:
  /// Precondition: few_outputs_refusal() is empty. Throws what checked() in check.h throws.
  FewOutputsPlan(const Conv2dProblem& problem, const Target& target, int threads)
      : FewOutputsPlan(problem, few_outputs_kernels(target), target, threads) {}
  /// Precondition: the refusal of these kernels' plans is empty.
  FewOutputsPlan(const Conv2dProblem& problem, const FewOutputsKernels& kernels, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }
  std::size_t packed_bytes() const;
  Packing packing() const;

  /// Weights to [row][run][channel / step][output][channel of the step], with zeros beyond a run's last channel
  /// (FewOutputsCall).
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  /// Of one image; `sums` are those of a thread, before its strip.
  struct Operands {
    const void* x;
    const float* packed;
    void* y;
    float* sums;
  };
  /// The first column of image row r under the pixels lies `origin` + r * `pitch` elements after x.
  struct Input {
    const void* x;
    std::int64_t origin, pitch;
  };

  /// The pixels [begin, end) of the unit's rows.
  void run_in_place(const UnitWindow& unit, std::int64_t begin, std::int64_t end, const Operands& operands);
  void run_staged(const UnitWindow& unit, std::int64_t begin, std::int64_t end, const Operands& operands);
  void run_rows(const UnitWindow& unit, std::int64_t begin, std::int64_t end, const Input& input,
                const Operands& operands);

  std::size_t bias_floats() const { return line_floats(problem_.k * kernels_->lanes); }
  std::size_t sums_floats() const { return line_floats(grid_.pixels * problem_.k + kFewOutputsTile); }
  std::size_t thread_floats() const {
    return thread_part_floats(static_cast<std::int64_t>(sums_floats() + strip_floats_));
  }

  Conv2dProblem problem_;  // with its pixels in a row where they may be
  const Target* target_;
  const FewOutputsKernels* kernels_;
  int threads_;
  UnitGrid grid_;
  std::size_t strip_floats_;
  AlignedFloats workspace_;  // the bias of as many pixels as a vector has lanes; sums and a strip of each thread
};

}  // namespace gable::cpu
