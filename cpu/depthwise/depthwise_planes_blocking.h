// How a depthwise convolution of NCHW images is cut.
//   unit     some channels of an image, or rows of one channel; spread over threads
//   section  pixels of a row that vectors of one width compute
//   tile     outputs of a column x a vector of pixels (depthwise_tile.h)
// Transposed, a unit is as many channels as a vector has lanes, and a tile's vector is these channels of one pixel.
// NHWC images of few channels are one plane whose rows are all channels of all their pixels.
#pragma once

#include <gable/problem.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cpu/common/target.h"
#include "cpu/common/tiling.h"
#include "cpu/depthwise/depthwise_planes_kernels.h"
#include "cpu/depthwise/depthwise_tile.h"

namespace gable::cpu {

/// Why DepthwisePlanesPlan is not made for the problem; empty if it is.
std::string depthwise_planes_refusal(const Conv2dProblem& problem, const Target& target);

/// The last vector may overlap the one before it.
struct RowSection {
  const DepthwiseTiles* tiles;
  const PlaneKernels* planes;
  std::int64_t lanes, first, vectors, last;  // last: pixel of the last vector, from `first`
};

/// How the rows are cut into tiles.
struct RowCut {
  std::vector<Positions> positions;
  std::int64_t position_step, output_step;   // of tiles, in rows
  int stride;                                // of outputs, in positions
  std::vector<std::vector<AxisTile>> tiles;  // of each block of rows
  std::vector<std::vector<TapRun>> runs;     // of each section
};

/// A thread's workspace, in floats: the weights as vectors, then a part for each plane: input rows, then results.
/// Transposed, there is one part for the unit: input pixels, then output pixels.
struct PlanesWorkspace {
  std::int64_t pitch, phase_floats, input_floats;  // of input rows
  std::int64_t result_pitch;
  std::int64_t plane_floats, weight_floats, thread_floats;
};

struct PlanesBlocking {
  Conv2dProblem problem;                   // as the loops compute it: pointwise planes as one row, NHWC as one plane
  std::int64_t channels;                   // neighbours in a row: those of NHWC, else 1
  std::int64_t phases;                     // vectors of a row until their first channel is the same again
  bool scales;                             // each output is one product: planes are multiplied by their weight
  bool transposes;                         // lanes are channels: groups of planes are transposed to pixels and back
  bool in_place;                           // tiles read the image
  bool stores_rows;                        // tiles write f32 rows in the workspace, else y
  DType tile_type;                         // that tiles read and write: f32 if they write rows, else the problem's
  std::int64_t unit_planes, plane_blocks;  // of output channels
  std::int64_t unit_rows, row_blocks;
  std::int64_t row_runs;  // runs of a kernel column
  std::vector<RowSection> sections;
  RowCut rows;
  std::vector<TapRange> columns;  // if planes are transposed: the kernel columns inside the image, for each output
  PlanesWorkspace workspace;
};

/// Vectors of a row of pixels of so many channels until the first channel is the same again.
std::int64_t vector_phases(std::int64_t channels, std::int64_t lanes);

/// Whether as many f32 planes as a vector has lanes, and their pixels, are more than L1 holds.
bool transposed_planes_exceed_l1(const Conv2dProblem& problem, std::int64_t lanes);

/// Precondition: depthwise_planes_refusal() is empty.
PlanesBlocking depthwise_planes_blocking(const Conv2dProblem& problem, const Target& target, int threads);

}  // namespace gable::cpu
