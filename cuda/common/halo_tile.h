// How the few-channel kernels cut a convolution into blocks: a block loads one tile of the input with its halo (whole
// rows, several images where they are small) into shared memory, once for all taps and output channels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

#include <gable/problem.h>

#include "cuda/common/parameters.h"

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

/// An image; channels are those of one group.
struct HaloExtents {
  int c, h, w, k, groups;
};

struct HaloOutput {
  int ho, wo;        // rows and columns of the convolution that are needed
  int out_h, out_w;  // of y
};

struct HaloFormat {
  bool nhwc, pool;
  DType type;
  Activation activation;
};

/// The rows of a tile: cut_rows().
struct HaloCut {
  int images, row_pairs;  // of a tile; several images only if row_pairs are all of them
  int bands, tiles;       // tiles an image, and in all (of one group and chunk)
  int in_rows;            // of the input tile, of each image
};

/// The input tile in shared memory, in the kernel's own order and unit.
struct HaloShared {
  int in_columns;           // of the input tile
  int pitch, plane, image;  // from row to row, channel to channel (or phase to phase), image to image
};

/// Divisors that a thread finds its place by.
struct HaloDivisors {
  Divisor rows, channels;  // HaloCut::in_rows, HaloExtents::c
  Divisor columns;         // columns, or groups of them
  Divisor row_pairs;       // HaloCut::row_pairs
};

/// How a row is loaded.
struct HaloLine {
  int vector, lanes;           // elements of an access, and lanes of a warp that take one row
  Divisor pairs;               // where pixels are loaded in pairs: of the pairs of columns in a row
  Divisor units, pixel_units;  // where they are loaded in units: of a row, of a pixel
  Divisor stride;              // where columns lie by their phases
};

/// What both kernels take. halo_tile() sets what follows from the problem, cut_rows() `cut`, the kernel the rest.
struct HaloTile {
  Tensors tensors;
  std::int64_t n;  // images
  HaloExtents extents;
  Window window;
  HaloOutput output;
  HaloFormat format;
  HaloCut cut;
  HaloShared shared;
  int chunk;  // output channels a block
  HaloDivisors by;
  HaloLine line;
};

HaloTile halo_tile(const Conv2dProblem& problem);

/// Sets `cut` for so many images and row pairs, and the divisors that follow from it.
void cut_rows(HaloTile& tile, int images, int row_pairs);

/// How a kernel is launched for a tile, and the estimated cost.
struct TileChoice {
  HaloTile tile;
  int threads = 0, blocks = 0;  // blocks for each group and chunk of output channels
  std::size_t shared_bytes = 0;
  double cost = 0;
  std::int64_t rounds = 0;    // tiles that a place for a block computes one after the other
  std::int64_t together = 0;  // blocks of a multiprocessor
};

/// A kernel as choose_tile() sees it. `lay_out` fills in the fields that depend on the kernel's order in shared memory
/// and returns its bytes. `tile_cost` is the cost of one tile in issue slots of a multiprocessor.
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

/// Bytes of the input and the output.
double halo_bytes(const HaloTile& tile);

/// Why a kernel for so many input channels a group can't run the problem; empty if it might.
std::string halo_tile_refusal(const Conv2dProblem& problem, std::int64_t most_channels);

}  // namespace gable::cuda
