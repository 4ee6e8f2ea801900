// Tensors to run on: reproducible random numbers, the poison that results must replace, and the check that memory
// suffices before it is asked for.
#pragma once

#include <gable/ops.h>
#include <gable/tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace gable::bench {

/// Host tensors of an op's inputs; those that it does not have are empty.
struct OpData {
  Tensor x;
  Tensor second;  ///< what is added to x
  Tensor weights;
  Tensor bias;
};

/// Uniform in [low, high), the same on every machine and for any number of threads.
void fill_random(const TensorView& host, std::uint64_t seed, float low, float high);

/// x and bias in [-1, 1), weights scaled by sqrt(3 / terms), so that results stay near 1 in every dtype.
OpData random_data(const Op& op, std::uint64_t seed = 1);

/// Where it has one; else nchw.
Layout output_layout(const Op& op);

/// Every byte 0xff: a NaN in every dtype, which no correct result leaves.
void poison(const TensorView& host);

/// Bytes that inputs, weights (twice: as given and packed), bias and `outputs` results take.
double bytes_needed(const Op& op, std::size_t outputs);

/// What can be allocated now without swapping: MemAvailable, or what the cgroup leaves if that is less.
double available_memory();

/// Throws Error(out_of_memory) when `bytes` is more than nine tenths of available_memory().
void require_memory(double bytes, const std::string& what);

}  // namespace gable::bench
