// Depthwise convolution of NCHW images: any window, stride, dilation, padding and number of outputs an input channel.
// Lanes are neighbouring pixels of a row and tiles go down a column, so that each vector that is loaded serves the taps
// of one column of the kernel. Rows are staged as f32 with their padding, unless they can be read in place. Short rows
// would leave lanes unused. For small images, as many planes as a vector has lanes are therefore transposed, and lanes
// are channels.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cpu/common/aligned.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"
#include "cpu/depthwise/depthwise_planes_kernels.h"
#include "cpu/depthwise/depthwise_tile.h"

namespace gable::cpu {

/// Why DepthwisePlanesPlan is not made for the problem; empty if it is.
std::string depthwise_planes_refusal(const Conv2dProblem& problem, const Target& target);

/// Pixels of a row that vectors of one width compute; the last vector may overlap the one before it.
struct RowSection {
  const DepthwiseTiles* tiles;
  const PlaneKernels* planes;
  std::int64_t lanes, first, vectors, last;  // last: pixel of the last vector, from `first`
};

/// A unit: some channels of an image, or rows of one channel.
struct PlanesBlocking {
  Conv2dProblem problem;                   // as the loops compute it: pointwise planes as one row
  bool transposes;                         // lanes are channels: groups of planes are transposed to pixels and back
  bool in_place;                           // tiles read the image
  bool stores_rows;                        // tiles write f32 rows in the workspace, else y
  std::int64_t unit_planes, plane_blocks;  // of output channels
  std::int64_t unit_rows, row_blocks;
  std::vector<RowSection> sections;
  std::vector<Positions> positions;
  std::int64_t position_step, output_step;  // of tiles, in rows
  int tile_stride;
  std::int64_t row_runs;                     // runs of a kernel column
  std::vector<std::vector<AxisTile>> tiles;  // of each block of rows
  std::vector<std::vector<TapRun>> runs;     // of each section
  std::vector<TapRange> columns;             // where planes are transposed: the kernel columns inside, for each output
  // A plane's part of a thread's workspace, in floats: input rows, then results. The weights' vectors come first.
  // Where planes are transposed, a group's part: input pixels, output pixels, scratch.
  std::int64_t pitch, phase_floats, input_floats, result_pitch, plane_floats, weight_floats, thread_floats;
};

/// Precondition: depthwise_planes_refusal() is empty.
PlanesBlocking depthwise_planes_blocking(const Conv2dProblem& problem, const Target& target, int threads);

/// How long a run will last (estimate.h). Precondition: depthwise_planes_refusal() is empty.
double depthwise_planes_seconds(const Conv2dProblem& problem, const Target& target, int threads);

class DepthwisePlanesPlan {
 public:
  /// Precondition: depthwise_planes_refusal() is empty. Throws what checked() in check.h throws.
  DepthwisePlanesPlan(const Conv2dProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }
  std::size_t packed_bytes() const;

  /// What pack()'s result depends on; not on images, epilogue or threads.
  Packing packing() const;
  /// Weights of the problem's type to f32 [channel][column][row].
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  struct Run;
  class Unit;

  Conv2dProblem problem_;
  const Target* target_;
  int threads_;
  PlanesBlocking blocking_;
  AlignedFloats workspace_;  // a part for each thread; the padding of rows, where nothing is staged, stays zero
};

}  // namespace gable::cpu
