// Convolutions in groups of few output channels, NHWC, in f32 arithmetic. Lanes of a vector are the output channels of
// as many groups as fit. Each lane needs an input channel of its own group, so a broadcast is no use. Instead the strip
// holds a "spread" vector for each input channel of a group: each lane has that channel of its own group. A strip row
// costs a permutation and a store for each vector, and serves all taps: 9 products of a 3×3. Inputs of 16 bits are
// widened on the way into the strip, and a tile narrows its results as it stores them. With AVX512-BF16 the strip has
// pairs of bf16 channels as they lie, 32 bits in place of a float, and a step multiplies two channels
// (narrow_groups_dot.cpp). Groups of 4 or 8 outputs and 8, 12, 16... inputs take the channels as they lie with AVX-512,
// a quad of four with each load (quads-inl.h); with AVX512-BF16 groups of 16 outputs too, by
// four pairs (narrow_groups_dot.cpp).
//   block   the groups of one vector: lanes / group_k of them; with quads of pairs those whose inputs fill one, if more
//   strip   a ring of a block's rows, spread or copied, as many as the taps of one output row span; in L1
//   unit    (image, rows, pixels, block). Rows go down the image, so each is spread once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/common/aligned.h"
#include "cpu/common/description.h"
#include "cpu/common/unit_window.h"
#include "cpu/narrow_groups/narrow_groups_kernels.h"

namespace gable::cpu {

/// Why NarrowGroupsPlan is not made for the problem; empty if it is.
std::string narrow_groups_refusal(const Conv2dProblem& problem, const Target& target);
/// The same for plans with narrow_groups_dot_kernels().
std::string narrow_groups_dot_refusal(const Conv2dProblem& problem, const Target& target);

struct NarrowGroupsBlocking {
  std::int64_t block_groups;  // groups of one block; the last one may have fewer
  std::int64_t blocks;
  std::int64_t span;           // rows of the ring
  std::int64_t strip_columns;  // of a unit's row
  std::int64_t strip_row;      // floats
  UnitGrid units;
};

NarrowGroupsBlocking narrow_groups_blocking(const Conv2dProblem& problem, const NarrowGroupsKernels& kernels,
                                            int threads);

/// How long a run will last (estimate.h). Precondition: narrow_groups_refusal() is empty.
double narrow_groups_seconds(const Conv2dProblem& problem, const Target& target, int threads);
double narrow_groups_dot_seconds(const Conv2dProblem& problem, const Target& target, int threads);

class NarrowGroupsPlan {
 public:
  /// Precondition: narrow_groups_refusal() is empty. Throws what checked() in check.h throws.
  NarrowGroupsPlan(const Conv2dProblem& problem, const Target& target, int threads)
      : NarrowGroupsPlan(problem, narrow_groups_kernels(target, problem), target, threads) {}
  /// Precondition: the refusal of these kernels' plans is empty.
  NarrowGroupsPlan(const Conv2dProblem& problem, const NarrowGroupsKernels& kernels, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }
  std::size_t packed_bytes() const;
  Packing packing() const;

  /// Weights to [block][kh][kw][input channel of a group, or pair of them][lane].
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  void pack_quads(const void* weights, const WeightStrides& strides, float* packed) const;

  std::int64_t thread_floats() const {
    return static_cast<std::int64_t>(thread_part_floats(blocking_.span * blocking_.strip_row));
  }
  std::int64_t steps() const { return narrow_groups_steps(problem_, *kernels_); }
  /// Output lanes of a block: a vector, or with quads those of its groups.
  std::int64_t block_lanes() const {
    return kernels_->quads ? blocking_.block_groups * problem_.group_k() : kernels_->lanes;
  }
  std::int64_t block_weights() const { return problem_.r * problem_.s * steps() * block_lanes(); }
  /// Floats of a block's bias: with quads each output has four lanes.
  std::int64_t block_bias() const { return block_lanes() * (kernels_->quads ? kQuad : 1); }

  Conv2dProblem problem_;
  const Target* target_;
  const NarrowGroupsKernels* kernels_;
  int threads_;
  NarrowGroupsBlocking blocking_;
  std::vector<std::int32_t> source_;  // SpreadCall's
  /// The bias in whole vectors, and a strip for each thread.
  AlignedFloats workspace_;
};

}  // namespace gable::cpu
