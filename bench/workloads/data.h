// Tensors to run on: reproducible random inputs, outputs filled with NaNs, and a check of the available memory before
// allocation.
#pragma once

#include <gable/ops.h>
#include <gable/tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gable::bench {

/// Host tensors of an op's inputs; inputs that it does not have are empty.
struct OpData {
  Tensor x;
  Tensor second;  ///< of an addition or a concat
  Tensor weights;
  Tensor bias;

  /// Those that the op has, in this order.
  std::vector<ConstTensorView> inputs() const;
};

/// Uniform in [low, high), the same on every machine and for any number of threads.
void fill_random(const TensorView& host, std::uint64_t seed, float low, float high);

/// x and bias in [-1, 1), weights scaled by sqrt(3 / terms), so that results stay near 1 in every dtype.
OpData random_data(const Op& op, std::uint64_t seed = 1);

/// The op's layout, or nchw if it has none.
Layout output_layout(const Op& op);

/// Sets every byte to 0xff, a NaN in every dtype. A correct result leaves none.
void poison(const TensorView& host);

/// Bytes of inputs, weights, bias, and of `outputs` results with packed weights each.
double bytes_needed(const Op& op, std::size_t outputs);

/// The approximate time to fill bytes_needed() at 1 GB/s, for time limits.
double seconds_to_make(const Op& op, std::size_t outputs);

/// Bytes that can be allocated now without swapping: MemAvailable, or the rest of the cgroup's limit if that is less.
double available_memory();

/// Throws Error(out_of_memory) if `bytes` is more than nine tenths of available_memory().
void require_memory(double bytes, const std::string& what);

}  // namespace gable::bench
