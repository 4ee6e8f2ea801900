// Which tile the kernel pointwise_planes runs with, by a model of its time. Plain host arithmetic: testable without a
// GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include <gable/problem.h>

namespace gable::cuda {

/// Planes of a step, which has 64 bytes of depth.
constexpr std::int64_t planes_of_step(DType type) { return 64 / static_cast<std::int64_t>(size_of(type)); }

/// A tile that the kernel is compiled for: output channels by pixels.
struct PlanesCandidate {
  int channels, pixels;
  double rate;             // share of mma.sync's peak that full multiprocessors reach with it
  int threads, residents;  // of a block; blocks of a multiprocessor
};
std::span<const PlanesCandidate> planes_candidates();

/// Output channels and pixels of a block; the blocks of a cluster share the depth in `splits`. Several groups are
/// multiplied as one in a bundle, with weights of zero between them, since a tile has many more channels than a group
/// may have.
struct PlanesChoice {
  int channels = 0, pixels = 0, threads = 0, splits = 0, bundle = 0;
  double seconds = 0;  // estimate
};

/// Whether output pixels are the input's, one by one.
bool planes_are_line(const Conv2dProblem& problem);

/// The widest accesses of at most 16 bytes that divide planes, in pixels: 8, 4, 2 or 1. With strides input pixels are
/// loaded one by one.
struct PlanesAccess {
  int load, store;
};
PlanesAccess planes_access(const Conv2dProblem& problem);

/// Elements that indices into the input span, whatever the bundle: the last bundle is counted in whole steps and with
/// all of its groups, though planes behind the input's are not read.
std::int64_t planes_span(const Conv2dProblem& problem);

/// Tile and splits of the least estimated time. Numbers of `forced` that are not 0 are kept, for tests; throws
/// std::invalid_argument if no tile of the table has them, or if there are fewer groups or no clusters.
PlanesChoice choose_planes(const Conv2dProblem& problem, const cudaDeviceProp& device, const PlanesChoice& forced = {});

}  // namespace gable::cuda
