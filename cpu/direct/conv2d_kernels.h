// The contract between the convolution's loop nest (conv2d_run.cpp, plain C++) and its per-target kernels
// (conv2d_kernels.cpp, compiled once a target): argument structs and a table of function pointers.
// A unit of work goes through up to three kernels:
//   stage  input of any type and layout -> f32 strip with its padding, in this thread's L1/L2 (skipped where the input
//          already is f32 NHWC and the unit touches no padding)
//   tile   f32 -> f32: all taps and input lanes of one register tile (tile-inl.h)
//   store  f32 strip -> max-pool, bias, activation, conversion, layout (skipped where the tile stores the result
//   itself)
#pragma once

#include <array>
#include <cstdint>

#include <gable/problem.h>
#include "cpu/common/target.h"

namespace gable::cpu {

/// DESIGN's partition tile: output channels are cut into tiles of at most this many lanes.
constexpr int kPartitionLanes = 128;
constexpr int kMaxTilePixels = 14;
constexpr int kMaxPairPixels = 6;
constexpr int kMaxImagePairPixels = 7;
constexpr int kMaxTileVectors = 2;
/// The store kernel works on blocks of this many pixels, in two L1 buffers of kStoreBlockFloats each.
constexpr int kStoreBlockPixels = 32;
constexpr int kStoreBlockFloats = kStoreBlockPixels * kPartitionLanes;

/// One register tile: 1 or 2 output rows × pixels × vectors of output lanes. Two rows are the same row of two images,
/// or of a depthwise convolution neighbours under a 2×2 pool. Strides are in floats. Input element (row, pixel, kh, kw,
/// in tile, lane) is x[row*x_row + pixel*x_px + kh*x_kh + kw*x_kw + tile*x_tile + lane*x_lane].
struct TileCall {
  const float* x;
  std::int64_t x_row, x_px, x_kh, x_kw, x_tile, x_lane;
  /// Weights [in tile][kh][kw][in lane][vectors × lanes], of every tap; only kh in [kh_begin, kh_end) is used.
  const float* weights;
  std::int64_t kernel_h, kernel_w, kh_begin, kh_end;
  /// Taps that read padding leave out an edge of the tile: kw < left_taps the first pixel and kw >= right_tap the last.
  /// No tap leaves out both.
  std::int64_t left_taps, right_tap;
  /// For prefetching: the first taps of a kernel row that read other pixels than earlier ones moved on, and how many
  /// pixels the last tap reads beyond the first one's.
  std::int64_t asking_taps, halo;
  /// Input lanes: in_tiles tiles of in_lanes, the last one of last_in_lanes.
  std::int64_t in_tiles, in_lanes, last_in_lanes;
  /// Partial sums of earlier input channels are added when load_partial; store_partial ends the tile there.
  float* partial;
  std::int64_t partial_row, partial_px;
  bool load_partial, store_partial;
  /// The sums of the row above, partial_px a pixel: the tile, of one row, stores the 2×2 max-pool of both. Or null.
  const float* above;
  /// Output: `lanes` valid lanes a pixel; two rows are y_row apart, those of a depthwise pair stored as their pool.
  /// Bias has whole vectors, or is null; sums start from it, or from earlier sums. With `stream`, all lanes are valid,
  /// y is aligned to vectors, and stores pass the caches by.
  float* y;
  std::int64_t y_row, y_px;
  int lanes;
  const float* bias;
  bool relu, stream;
};
using TileFunction = void (*)(const TileCall&);

/// Source coordinates of consecutive strip positions along one axis. A span keeps every coordinate between the first
/// and the last tap (strip position = output*stride + tap*dilation); a gather keeps only those that a tap reads
/// (position = output*taps + tap) and is chosen where that is less, as for strided 1×1.
struct AxisMap {
  std::int64_t output_step, tap_step;  // strip positions between outputs, between taps
  std::int64_t taps, stride, dilation;
  bool gather;

  std::int64_t positions(std::int64_t outputs) const { return (outputs - 1) * output_step + (taps - 1) * tap_step + 1; }
  /// Source coordinate of a strip position, relative to that of (first output, first tap).
  std::int64_t source(std::int64_t position) const {
    return gather ? (position / taps) * stride + (position % taps) * dilation : position;
  }
};

struct StageCall {
  const void* x;                        // the unit's first channel of its image
  std::int64_t x_row, x_px, x_channel;  // element strides
  std::int64_t height, width;           // of the source; coordinates outside are zero
  AxisMap rows, columns;
  std::int64_t row_positions, column_positions;
  std::int64_t first_row, first_column;  // source coordinates of (first output, first tap)
  std::int64_t channels, in_lanes;
  float* strip;
};
using StageFunction = void (*)(const StageCall&);

struct StoreCall {
  const float* strip;  // [row][pixel][lane], lanes in whole vectors
  std::int64_t strip_row, strip_px;
  int lanes, padded_lanes;
  std::int64_t rows, pixels;                                  // of the output
  std::int64_t pool_h, pool_w, pool_stride_h, pool_stride_w;  // 1 where the strip is already the output's size
  const float* bias;                                          // whole vectors, or null
  Activation activation;
  void* y;
  std::int64_t y_row, y_px, y_channel;  // element strides
  float* block;                         // 2 × kStoreBlockFloats
};
using StoreFunction = void (*)(const StoreCall&);

struct Conv2dKernels {
  int lanes;            // f32 lanes of a vector
  int max_pixels;       // widest tile [1 row]
  int max_pair_pixels;  // widest row-pair tile of depthwise, even
  int max_image_pair_pixels;
  /// Indexed [vectors][pixels]; row-pair tiles exist for even pixels.
  TileFunction tile[kMaxTileVectors + 1][kMaxTilePixels + 1];
  TileFunction image_pair[kMaxTileVectors + 1][kMaxImagePairPixels + 1];
  TileFunction depthwise[kMaxTileVectors + 1][kMaxTilePixels + 1];
  TileFunction depthwise_row_pair[kMaxTileVectors + 1][kMaxPairPixels + 1];
  /// Indexed by Type. nhwc: strip [row][in tile][column][in lane]; nchw: [row][channel][column]; nchw_lanes:
  /// [row][column][channel], transposed, for depthwise.
  std::array<StageFunction, 3> stage_nhwc, stage_nchw, stage_nchw_lanes;
  std::array<StoreFunction, 3> store_nhwc, store_nchw;
};

const Conv2dKernels& conv2d_kernels(const Target& target);

}  // namespace gable::cpu
