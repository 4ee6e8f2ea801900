// The order of packed weights that the kernels of ladder, gemm and grouped share: [group][tap][input channel][output
// channel], output channels innermost so that neighbouring threads read neighbouring weights, both padded with zeros to
// multiples that the kernel's tile needs.
#pragma once

#include <cstddef>

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

struct PackedOrder {
  std::int64_t groups = 1, taps = 1, c = 1, k = 1;  // c and k of a group, padded
  bool depth_innermost = false;                     // [group][output channel][tap][input channel]
  bool swapped = false;                             // output channels 2i and 2i + 1 change places; k is even then
  std::int64_t bundle = 1;                          // groups that are packed as one, with zeros between them

  constexpr std::int64_t elements() const { return groups * taps * c * k; }
};

/// Channels of a group, or of a bundle of groups, rounded up to multiples of `c_multiple` and `k_multiple`.
constexpr PackedOrder packed_order(const Conv2dProblem& p, std::int64_t c_multiple, std::int64_t k_multiple,
                                   std::int64_t bundle = 1) {
  return {.groups = ceil_div(p.groups, bundle),
          .taps = p.r * p.s,
          .c = round_up(bundle * p.group_c(), c_multiple),
          .k = round_up(bundle * p.group_k(), k_multiple),
          .bundle = bundle};
}

/// The packing of weights in this order.
constexpr Packing packing_of_order(const Conv2dProblem& p, const PackedOrder& order) {
  return packing_of(p, "ladder",
                    {order.c, order.k, order.depth_innermost ? 1 : 0, order.swapped ? 1 : 0,
                     p.math == Math::tf32 ? 1 : 0, order.bundle});
}

/// Device pointers of problem.dtype; f32 with Math::tf32 is rounded to it. Asynchronous on `stream`.
void pack_weights(const Conv2dProblem& problem, const PackedOrder& order, const void* weights,
                  const WeightStrides& strides, void* packed, cudaStream_t stream);

/// The part of a plan that packs its weights in this order.
class PackedOrderPlan : public Conv2dPlan {
 public:
  Packing packing() const final { return packing_of_order(problem_, order_); }
  std::size_t packed_bytes() const final {
    return static_cast<std::size_t>(order_.elements()) * size_of(problem_.dtype);
  }
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const final {
    pack_weights(problem_, order_, weights, strides, packed, stream);
  }

 protected:
  PackedOrderPlan(const Conv2dProblem& problem, const PackedOrder& order) : problem_(problem), order_(order) {}

  const Conv2dProblem& problem() const { return problem_; }
  const PackedOrder& order() const { return order_; }

 private:
  const Conv2dProblem problem_;
  const PackedOrder order_;
};

}  // namespace gable::cuda
