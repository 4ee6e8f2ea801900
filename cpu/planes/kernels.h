// The kernels around the tiles, compiled once for each target: input into the strip (staging.cpp), sums into the output
// (epilogue.cpp).
#pragma once

#include <gable/problem.h>

#include <cstdint>

#include "cpu/common/target.h"
#include "cpu/planes/tile_unit.h"

namespace gable::cpu::planes {

/// Coordinates along one axis of a plane: `count` of them, `step` apart, from `first` on, in a plane of `size`.
/// Coordinates outside are padding.
struct StageAxis {
  std::int64_t first, step, count, size;
};

/// Stages the rows and columns of one phase of one image, for all steps. Positions of padding become zero.
struct StageCall {
  const void* x;          // the first channel's plane
  std::int64_t plane;     // elements from one channel to the next
  std::int64_t channels;  // of the image; later channels of the strip's steps are zero
  StageAxis rows, columns;
  float* strip;                    // 16 elements beyond the last row are overwritten
  std::int64_t steps, step, part;  // how many steps; elements from one step and part to the next
  bool prefetches;                 // rows of later channels, since x lies beyond L2
};
using StageFunction = void (*)(const StageCall&);

/// Consecutive pixels of one output row: where they lie in a lane of sums and in a plane of y.
struct Piece {
  std::int64_t sums, y, count;
};

/// Pool, bias, activation, conversion and store.
struct FinishCall {
  const float* sums;  // 64 elements beyond the last sum of a lane may be read; of pixels by lanes: [pixel][lane]
  std::int64_t lane;  // elements from one lane to the next; of pixels by lanes: from one pixel to the next
  int lanes;
  const Piece* pieces;
  std::int64_t piece_count;
  const float* bias;  // of each lane, or null
  Activation activation;
  FusedPool pool;
  std::int64_t row;  // elements from one row of sums to the next, for the pool
  void* y;
  std::int64_t plane;  // elements from one output channel to the next
  bool non_temporal;
  float* transposed;  // for sums of pixels by lanes: a buffer of kTransposedFloats
};
/// Sums of pixels by lanes are finished in groups of up to kMaxPositions + kMaxPixels - 1 pixels.
constexpr std::int64_t kTransposedPitch = kMaxPositions + kMaxPixels + 2;
constexpr std::int64_t kTransposedFloats = kTransposedPitch * kMaxLanes + kMaxPositions;
using FinishFunction = void (*)(const FinishCall&);

/// By the type of the image.
struct StageKernels {
  StageFunction f32[3];                 // one channel a step
  StageFunction bf16_pairs, f16_pairs;  // of 1 and 2 parts
  StageFunction f32_pairs[4];           // by the number of parts

  StageFunction function(const TileUnit& unit, DType type, int parts) const {
    if (!unit.multiplies_pairs()) return f32[static_cast<int>(type)];
    return type == DType::bf16 ? bf16_pairs : type == DType::f16 ? f16_pairs : f32_pairs[parts];
  }
};
const StageKernels& stage_kernels(const Target& target);

/// By the type of y.
struct FinishKernels {
  FinishFunction lanes[3];   // of sums [lane][position]
  FinishFunction pixels[3];  // of sums [pixel][lane]
};
const FinishKernels& finish_kernels(const Target& target);

}  // namespace gable::cpu::planes
