// How a depthwise convolution of any window is cut.
//   unit   (image, rows × pixels of output, out tile of ≤ 128 channels); spread over threads
//   panel  the lanes of one register tile: 2 vectors of channels
//   tile   a register tile. Where the image is f32 NHWC, only tiles that touch columns of padding read a staged strip.
// A unit computes all its rows and pixels with one panel before it takes the next panel.
#pragma once

#include <gable/problem.h>

#include <cstddef>
#include <cstdint>

#include "cpu/common/strips.h"
#include "cpu/common/tiling.h"
#include "cpu/common/unit_input.h"
#include "cpu/common/unit_output.h"
#include "cpu/common/unit_window.h"
#include "cpu/depthwise/depthwise_staged_kernels.h"

namespace gable::cpu {

/// Offsets of the parts of one thread's workspace, in floats; the staged input comes first.
struct StagedWorkspaceParts {
  std::size_t strip, block, bias;
  std::size_t floats;  // of all
};

struct DepthwiseStagedBlocking {
  Conv2dProblem problem;  // as the loops compute it: after with_pixels_in_a_row()
  bool row_pair;          // a tile has two convolution rows and stores their 2×2 max-pool
  bool tile_stores;       // the tile stores the final result; else the store kernel finishes a strip
  bool non_temporal;      // its stores are non-temporal, where y is aligned to vectors
  bool never_staged;      // the input is always read in place
  std::int64_t tile_pixels, panel_lanes, vector_lanes;
  StripAxes axes;
  UnitGrid units;
  StagedWorkspaceParts workspace;
};

DepthwiseStagedBlocking choose_blocking(const Conv2dProblem& problem, const DepthwiseStagedKernels& kernels,
                                        int threads);

/// The convolution pixels of a window, cut into register tiles.
inline Tiles tiles_of(const DepthwiseStagedBlocking& b, const UnitWindow& window) {
  return {window.conv_pixels, b.tile_pixels, b.row_pair ? 2 : 1};
}

/// The channels of a unit.
UnitLanes lanes_of(const DepthwiseStagedBlocking& blocking, const UnitPlace& place);

/// The pixels of a unit that are read in place.
PixelRange pixels_in_place(const DepthwiseStagedBlocking& blocking, const UnitWindow& window, const UnitLanes& lanes);

}  // namespace gable::cpu
