// How the few-channel kernels cut a convolution into blocks: a block loads one tile of the input with its halo (whole
// rows, several images where they are small) into shared memory, once for all taps and output channels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

#include <gable/problem.h>

namespace gable::cuda {

/// Division of a by d through one multiplication, right while a * d < 2^32; a runtime division takes some 25
/// instructions.
struct Divisor {
  unsigned value = 1, reciprocal = 0;
};

constexpr Divisor divisor(int value) {
  const auto d = static_cast<unsigned>(value);
  return {d, static_cast<unsigned>(((std::uint64_t{1} << 32) + d - 1) / d)};
}

/// What both kernels take. Channels are those of one group unless stated otherwise.
struct HaloTile {
  const void* x;
  const void* packed;
  const float* bias;
  void* y;
  std::int64_t n;
  int c, h, w, k, groups;  // c and k of one group
  int kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int ho, wo;        // rows and columns of the convolution that are needed
  int out_h, out_w;  // of y
  bool nhwc, pool;
  DType type;
  Activation activation;
  int images, row_pairs;    // of a tile; several images only if row_pairs are all of them
  int bands, tiles;         // tiles an image, and in all (of one group and chunk)
  int in_rows, in_columns;  // of the input tile, of each image
  int pitch, plane, image;  // from row to row, channel to channel, image to image in shared memory; see each kernel
  int chunk;                // output channels a block
  Divisor by_rows, by_channels, by_columns, by_row_pairs;  // of in_rows, c, columns (or groups of them) and row_pairs
  int line_vector, line_lanes;  // elements of an access, and lanes of a warp, that load a row
  Divisor by_pairs;             // of the pairs of columns in a row, where pixels are loaded in pairs
};

HaloTile halo_tile(const Conv2dProblem& problem);

/// Sets the tile's images and row pairs, and the fields that follow from them.
void cut_rows(HaloTile& tile, int images, int row_pairs);

/// How a kernel is launched for a tile, and the estimated cost.
struct TileChoice {
  HaloTile tile;
  int threads = 0, blocks = 0;  // blocks for each group and chunk of output channels
  std::size_t shared_bytes = 0;
  double cost = 0;
};

/// A kernel as choose_tile() sees it. `block_cost` is the cost of one tile in issue slots of a multiprocessor.
/// `lay_out` fills in the fields that depend on the kernel's order in shared memory and returns its bytes.
struct TileKernel {
  void (*kernel)(HaloTile);
  int most_threads;
  std::function<std::size_t(HaloTile&)> lay_out;
  std::function<double(const HaloTile&, int threads)> tile_cost;
};

/// The cheapest of the rows and images a tile, and threads a block, that fit into shared memory; for the current
/// device. `tile.chunk` is given.
TileChoice choose_tile(HaloTile tile, const TileKernel& kernel, const cudaDeviceProp& device);

/// Whether a launch may overlap with the one before it (overlapped_launch.cuh). Blocks that start while others still
/// run are spread unevenly, which costs more than an early start saves unless each has a multiprocessor to itself.
bool may_overlap(const TileChoice& choice, const cudaDeviceProp& device);

/// Why neither kernel can run the problem; empty if one might.
std::string halo_tile_refusal(const Conv2dProblem& problem);

}  // namespace gable::cuda
