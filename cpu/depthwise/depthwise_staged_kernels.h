// The contract between DepthwiseStagedPlan and its register tiles, compiled once a target.
#pragma once

#include <cstdint>

#include "cpu/common/target.h"
#include "cpu/common/tiling.h"
#include "cpu/common/unit_input.h"
#include "cpu/common/unit_output.h"

namespace gable::cpu {

constexpr int kMaxStagedPixels = 14;
constexpr int kMaxStagedPairPixels = 6;
constexpr int kMaxStagedVectors = 2;

/// One register tile: 1 convolution row × pixels × vectors of channels, or two rows that a 2×2 max-pool joins. Lane i
/// of the output reads lane i of the input. Kernel rows outside `rows` read padding and are skipped.
struct DepthwiseStagedCall {
  InputTile x;           // a tile's lanes are neighbours
  const float* weights;  // [kh][kw][vectors × lanes]
  std::int64_t kernel_w;
  TapRange rows;
  OutputTile y;
};
using DepthwiseStagedFunction = void (*)(const DepthwiseStagedCall&);

struct DepthwiseStagedKernels {
  int lanes;            // f32 lanes of a vector
  int max_pixels;       // of a tile of one row
  int max_pair_pixels;  // of a tile of two rows, before the pool; even
  /// Indexed [vectors][pixels]; tiles of two rows exist for even pixels.
  DepthwiseStagedFunction row[kMaxStagedVectors + 1][kMaxStagedPixels + 1];
  DepthwiseStagedFunction row_pair[kMaxStagedVectors + 1][kMaxStagedPairPixels + 1];
};

const DepthwiseStagedKernels& depthwise_staged_kernels(const Target& target);

}  // namespace gable::cpu
