// What one launch of the wgmma kernel takes, on host and device: the plan's part, made once, and the call's addresses.
#pragma once

#include <cuda.h>

#include <gable/problem.h>
#include "cuda/common/halo_tile.h"
#include "cuda/wgmma/geometry.h"

namespace gable::cuda {

/// How items are numbered and where their tiles lie, in output pixels.
struct WgmmaTiles {
  int items;
  Divisor by_channel_tiles, by_pixel_tiles, by_tiles_x, by_tiles_y, by_out_w, by_out_h;
  int width, height, images;  ///< from one tile to the next
  int stride_w, stride_h;
  int first_x, first_y;  ///< for boxes by tap: where the first filter of an image starts
  bool by_tap, pixels_first;
};

/// What one block of a cluster does of an item: boxes, numbered through all channel blocks, and their steps.
struct WgmmaShare {
  int begin, end;            ///< boxes
  int channel_block, index;  ///< of the first box
  int first_step, steps;
};

/// The steps of an item.
struct WgmmaReduction {
  int channel_blocks, parts, box_count, tap_count;
  int split;  ///< blocks of a cluster that share the reduction of one item, a power of two
  WgmmaSchedule schedule;
  WgmmaShare shares[kWgmmaMaxSplit];
};

/// WgmmaSlices for the device.
struct WgmmaChannels {
  Divisor by_parts, by_group_k;
  int width, unit, last, group_c, input_mask;
  bool grouped;
};

/// Shared memory.
struct WgmmaStages {
  int boxes, box_stage_bytes, box_bytes, weights, output_bytes;
  int group_pitch;        ///< bytes between groups of eight pixels
  bool resident_weights;  ///< all weights stay in shared memory
};

/// Where channels are no whole vectors of 16 bytes, tensor copies cannot store them. Threads then store outputs one by
/// one from shared memory, to a batch that is one line of `pixels`.
struct WgmmaWords {
  void* y;  ///< null: tensor copies
  int pixels;
};

/// The epilogue.
struct WgmmaOutput {
  int channels;
  int row;                                 ///< pixels in a row of the tile
  int chunk_x, chunk_y, chunks_per_image;  ///< from one chunk of a store to the next, in output pixels
  bool pool;
  bool windows;  ///< see WgmmaSlices
  Activation activation;
  WgmmaWords words;
};

/// The kernel's parameter; it lies in the constant bank. What a block reads before its first copy lies together,
/// because each line of the bank is fetched anew for a launch.
struct WgmmaArguments {
  CUtensorMap x, y;
  const unsigned char* weights;  ///< see pack.h
  const float* bias;             ///< or null
  WgmmaStages stages;
  WgmmaTiles tiles;
  WgmmaChannels channels;
  WgmmaOutput output;
  WgmmaReduction reduction;
  WgmmaBox boxes[kWgmmaMaxBoxes];
  short shifts[kWgmmaMaxSteps];
};

/// The plan's part. The problem's channels are whole vectors of 16 bytes.
WgmmaArguments wgmma_arguments(const Conv2dProblem& problem, const WgmmaGeometry& geometry);

namespace wgmma {

constexpr int kConsumers = kWgmmaConsumers;
constexpr int kWarpgroup = 128;
constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
/// Of a block with one item: its consumers and two producers.
constexpr int item_threads(int consumers) { return consumers * kWarpgroup + 2 * 32; }

}  // namespace wgmma
}  // namespace gable::cuda
