// How the grouped_mma kernel cuts a convolution: a block takes a slab of output channels and a tile of pixels, a warp
// 16 of these channels. Plain host arithmetic, no CUDA call: testable without a GPU.
#pragma once

#include <cstdint>
#include <optional>

#include <gable/problem.h>

namespace gable::cuda {

inline constexpr int kMmaOutputs = 16;    ///< output channels of a warp: two products' columns
inline constexpr int kMmaStepBytes = 32;  ///< of input channels in one step: the depth of a product

/// Output channels of a warp and the input channels that they need: those of the groups that they lie in, in steps of
/// 32 bytes from a multiple of 16 bytes on. Weights are zero where an output channel doesn't see an input channel.
struct MmaChannels {
  int group_c = 1, group_k = 1;
  int vector = 8;       ///< channels of 16 bytes
  bool halves = false;  ///< each half of the 16 output channels has its own steps, which are then fewer in all
  int steps = 1;
  int warps = 4;  ///< warps of a slab that have different channels
  int slabs = 1;
  int slab_vectors = 8;  ///< vectors of input channels that a slab reads

  constexpr int first_input(int output) const { return output / group_k * group_c & -vector; }
};

/// Output pixels of a block: rows x columns of `images`, numbered through. Several images only if the tile has all
/// their pixels.
struct MmaTile {
  int rows = 1, columns = 1, images = 1;
  int in_rows = 1, in_columns = 1;  ///< of the input of one image
  int tiles_x = 1, tiles_y = 1, tiles_n = 1;

  constexpr int pixels() const { return rows * columns * images; }
};

struct MmaCut {
  MmaChannels channels;
  MmaTile tile;
  int pixel_warps = 2;  ///< warps of a block that have the same channels
  int products = 4;     ///< of 16 pixels that a warp computes at a time, 2 or 4
  int pixel_bytes = 0;  ///< from pixel to pixel in shared memory: 16 more than the channels, so that banks differ
  int weight_bytes = 0, input_bytes = 0;  ///< of shared memory
  double cycles = 0;                      ///< estimated time

  int threads() const { return 32 * channels.warps * pixel_warps; }
  int shared_bytes() const { return weight_bytes + input_bytes; }
};

/// The cut of the least estimated time whose tile fits `shared_bytes`. Empty if none does.
std::optional<MmaCut> find_mma_cut(const Conv2dProblem& problem, int multiprocessors, int shared_bytes);

}  // namespace gable::cuda
