// How few_channels cuts a convolution: the register tile of a thread, the input tile of a block, and the time of a run
// by a model.
#pragma once

#include <span>

#include "cuda/common/coverage.h"
#include "cuda/common/halo_tile.h"

namespace gable::cuda::few_channels {

/// A register tile that is compiled: for one filter width and horizontal stride, or (0) any.
struct Variant {
  int channels, columns, kernel_w, stride_w, threads;
  Path path;
  void (*kernel)(HaloTile);
};

/// All that are compiled.
std::span<const Variant> variants();

constexpr std::int64_t kMaxChannels = 8;  // of the input, a group
constexpr int kWindowSlack = 16;          // a row is read in whole vectors, up to this many floats past its end

constexpr int pad_to(int value, int unit) { return (value + unit - 1) / unit * unit; }

/// The variant that computes the least for the problem, padding included.
const Variant& choose_variant(const Conv2dProblem& problem);

/// The tile for the cheapest number of output channels a block.
TileChoice choose_chunk(const Conv2dProblem& problem, const Variant& variant, const cudaDeviceProp& device);

/// Estimated, of a run.
double seconds_of(const TileChoice& choice, const Variant& variant);

/// Bytes of shared memory of the smallest tile: one row pair, one block of channels.
std::size_t least_shared_bytes(const Conv2dProblem& problem, const Variant& variant);

}  // namespace gable::cuda::few_channels
