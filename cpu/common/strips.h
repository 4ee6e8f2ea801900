// Strips: f32 copies in this thread's L1 or L2 of what a unit of work reads or has computed. A *staged* input is a copy
// in a strip with zeros for the padding, so that register tiles test no coordinates.
//   stage  input of any type and layout -> strip of f32
//   store  strip of f32 results -> max-pool, bias, activation, conversion, layout
// The kernels are compiled once a target (strip_kernels.cpp).
#pragma once

#include <gable/problem.h>

#include <array>
#include <cstdint>

#include "cpu/common/strides.h"
#include "cpu/common/target.h"

namespace gable::cpu {

/// Output channels are cut into tiles of at most this many lanes.
constexpr int kPartitionLanes = 128;
/// The store kernel works on blocks of this many pixels, in two L1 buffers of kStoreBlockFloats each.
constexpr int kStoreBlockPixels = 32;
constexpr int kStoreBlockFloats = kStoreBlockPixels * kPartitionLanes;

/// Source coordinates of consecutive strip positions along one axis. A span keeps every coordinate between the first
/// and the last tap (strip position = output*stride + tap*dilation). A gather keeps only the coordinates that a tap
/// reads (position = output*taps + tap).
struct AxisMap {
  std::int64_t output_step, tap_step;  // strip positions between outputs, between taps
  std::int64_t taps, stride, dilation;
  bool gather;

  constexpr std::int64_t positions(std::int64_t outputs) const {
    return outputs == 0 ? 0 : (outputs - 1) * output_step + (taps - 1) * tap_step + 1;
  }
  /// Source coordinate of a strip position, relative to that of (first output, first tap).
  constexpr std::int64_t source(std::int64_t position) const {
    return gather ? (position / taps) * stride + (position % taps) * dilation : position;
  }
};

/// The map that needs fewer positions: a gather if the stride exceeds the kernel, or few outputs have taps far apart.
constexpr AxisMap smaller_axis_map(std::int64_t outputs, std::int64_t taps, std::int64_t stride,
                                   std::int64_t dilation) {
  const AxisMap span{stride, dilation, taps, stride, dilation, false};
  const AxisMap gather{taps, 1, taps, stride, dilation, true};
  return span.positions(outputs) <= gather.positions(outputs) ? span : gather;
}

/// Both axes of a strip.
struct StripAxes {
  AxisMap rows, columns;
};

/// One image; x is its first staged channel.
struct ImageSource {
  const void* x;
  Strides strides;
  std::int64_t height, width;  // coordinates outside are padding
};

struct StageCall {
  ImageSource image;
  StripAxes axes;
  std::int64_t row_positions, column_positions;
  std::int64_t first_row, first_column;  // source coordinates of (first output, first tap)
  std::int64_t channels, in_lanes;
  float* strip;
};
using StageFunction = void (*)(const StageCall&);

/// f32 sums, [row][pixel][lane].
struct SumStrip {
  const float* first;
  std::int64_t row, px;
  int padded_lanes;  // whole vectors
};

struct StoreEpilogue {
  FusedPool pool;     // none where the strip already has the output's size
  const float* bias;  // whole vectors, or null
  Activation activation;
};

/// The part of y that is written; strides in elements.
struct StoreOutput {
  void* y;
  std::int64_t row, px, channel;
  std::int64_t rows, pixels;
  int lanes;
};

struct StoreCall {
  SumStrip strip;
  StoreEpilogue epilogue;
  StoreOutput output;
  float* block;  // 2 × kStoreBlockFloats
};
using StoreFunction = void (*)(const StoreCall&);

/// Indexed by DType.
struct StripKernels {
  /// nhwc: strip [row][in tile][column][in lane]; nchw: [row][channel][column]; nchw_lanes: [row][column][channel],
  /// transposed, with four channel rows of scratch memory behind the strip.
  std::array<StageFunction, 3> stage_nhwc, stage_nchw, stage_nchw_lanes;
  std::array<StoreFunction, 3> store_nhwc, store_nchw;
};

const StripKernels& strip_kernels(const Target& target);

}  // namespace gable::cpu
