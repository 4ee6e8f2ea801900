// The contract between DepthwisePlanesPlan and its per-target kernels: some channels, or rows of one channel, a call.
#pragma once

#include <cstdint>

#include <gable/problem.h>
#include "cpu/common/check.h"
#include "cpu/common/target.h"

namespace gable::cpu {

constexpr int kPlaneTaps = 3;  // a side of the kernel

/// Sizes in floats. The staged input rows of a call lie in stride x stride phases: phase (a, b) has the rows whose
/// index modulo the stride is a, and of those the columns whose index modulo the stride is b. So every tap of every
/// output is at a fixed distance, and one run of vectors passes through all rows. Results between two rows are dropped.
struct DepthwisePlanesBlocking {
  std::int64_t unit_rows, row_blocks;      // of the output
  std::int64_t unit_planes, plane_blocks;  // channels; more than one only where a unit has all their rows
  std::int64_t pitch;                      // from one row of a phase, or of the results, to the next
  std::int64_t phase;                      // from one phase to the next
  std::int64_t out_offset, plane_floats;   // in a channel's part of a thread's workspace
  std::int64_t thread_floats;
};

/// Planes of input channels, one after another.
struct PlanesInput {
  const void* x;               // the first channel's plane
  const void* end;             // of the whole tensor: vectors may be read up to here
  std::int64_t height, width;  // of a plane
  std::int64_t first_row;      // the first tap of the first output row reads it; may lie outside
  std::int64_t pad_left;
};

/// The same rows of the planes of output channels.
struct PlanesOutput {
  void* y;  // the first of `rows` rows of the first channel
  std::int64_t rows, columns;
  std::int64_t height;  // of a plane
};

struct DepthwisePlanesCall {
  PlanesInput input;
  PlanesOutput output;
  std::int64_t planes;   // channels
  const float* weights;  // nine a channel
  const float* bias;     // or null
  bool relu;
  float* workspace;  // of this thread
  const DepthwisePlanesBlocking* blocking;
};
using DepthwisePlanesFunction = void (*)(const DepthwisePlanesCall&);

struct DepthwisePlanesKernels {
  int lanes;
  int run_lanes;                      ///< of one step; a run computes up to so many results past its end
  DepthwisePlanesFunction run[3][2];  ///< indexed [Type][stride - 1]
};

const DepthwisePlanesKernels& depthwise_planes_kernels(const Target& target);

}  // namespace gable::cpu
