// The order of packed weights that the ladder's kernels share: [group][tap][input channel][output channel], output
// channels innermost so that neighbouring threads read neighbouring weights, both channels padded with zeros to what
// the kernel's tile asks for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include <gable/problem.h>

namespace gable::cuda {

struct PackedOrder {
  std::int64_t groups = 1, taps = 1, c = 1, k = 1;  // c and k of a group, padded
  bool depth_innermost = false;
  bool swapped = false;  // neighbouring output channels 2i and 2i + 1; k is even then

  constexpr std::int64_t elements() const { return groups * taps * c * k; }
};

/// Channels of a group rounded up to multiples of `c_multiple` and `k_multiple`.
constexpr PackedOrder packed_order(const Conv2dProblem& p, std::int64_t c_multiple, std::int64_t k_multiple) {
  return {p.groups, p.r * p.s, round_up(p.group_c(), c_multiple), round_up(p.group_k(), k_multiple)};
}

/// Device pointers of problem.dtype; f32 with Math::tf32 is rounded to it. Asynchronous on `stream`.
void pack_weights(const Conv2dProblem& problem, const PackedOrder& order, const void* weights,
                  const WeightStrides& strides, void* packed, cudaStream_t stream);

}  // namespace gable::cuda
