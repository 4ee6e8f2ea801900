// Convolution with its epilogue as bf16 products with f32 accumulators, on a bf16 unit of this CPU. Storage is bf16
// (one product a term), or f16 or f32 whose values are split into bf16 parts (3 or 4 products a term for f16, which 2
// parts hold exactly; 3 or 6 for f32). The plan is used like that of cpu/direct/conv2d.h.
#pragma once

#include <cstddef>

#include "cpu/bf16/blocking.h"
#include "cpu/bf16/kernels.h"
#include "cpu/bf16/unit.h"
#include "cpu/common/aligned.h"
#include "cpu/common/description.h"
#include "cpu/common/parallel.h"

namespace gable::cpu {

/// Whether a plan writes its output with non-temporal stores, where lanes fill whole cache lines.
enum class OutputStores {
  by_size,       // if beyond_last_level() says that the output would only evict other data
  non_temporal,  // always: for tests
};

class Bf16Conv2dPlan {
 public:
  /// products: 1 for bf16 storage; 3 or 4 for f16; 3 or 6 for f32. `target` is what the code around the unit is
  /// compiled for. Precondition: bf16_refusal() is empty. Throws what checked() in check.h throws, and for a number of
  /// products that the type or the unit does not have.
  Bf16Conv2dPlan(const Conv2dProblem& problem, int products, const Bf16Unit& unit, const Target& target, int threads,
                 OutputStores stores = OutputStores::by_size);

  const Conv2dProblem& problem() const { return problem_; }
  Conv2dDescription description() const;
  std::size_t packed_bytes() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }

  /// Equal for plans whose packed weights are the same bytes.
  Packing packing() const;
  /// Packs weights as [group][panel][block][tap][part][2][16 channel pairs][16 lanes][2] of bf16. 64-byte alignment of
  /// `packed` helps.
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  float* thread_workspace(int thread);

  Conv2dProblem problem_;
  const Bf16Unit* unit_;
  const Target* target_;
  const Bf16Kernels* kernels_;
  int threads_;
  bf16::Blocking blocking_;
  bool non_temporal_;  // where y is aligned
  AlignedFloats workspace_;
  std::int64_t runs_ = 0;
  RunTimes run_times_;
};

}  // namespace gable::cpu
