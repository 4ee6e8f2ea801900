// Depthwise convolution in NCHW with a window of 3x3, 5x5 or 7x7. A block copies a run of contiguous input into shared
// memory, whole planes (an image's channel) or rows of one, and its threads go down columns of the output: lanes of a
// warp are neighbouring pixels, so that a warp's reads and stores are contiguous.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include <gable/problem.h>

#include "cuda/common/coverage.h"
#include "cuda/common/parameters.h"

namespace gable::cuda {

inline constexpr int kDepthwisePlanesThreads = 128;

/// Extents in elements.
struct DepthwisePlanes {
  Tensors tensors;  // packed: [tap][channel]
  int c, h, w, ho, wo, pad_top, pad_left;
  int planes;        // of all images
  int block_planes;  // planes a block; more than one only if they are whole
  int block_strips;  // strips of a plane a block
  int row_blocks;    // blocks down a plane
  int rows;          // of the output a strip
  Activation activation;
};

using DepthwisePlanesKernel = void (*)(DepthwisePlanes);

/// A compiled kernel: `window` x `window` taps, strides alike.
struct DepthwisePlanesVariant {
  int window, stride;
  int blocks;  // for which registers suffice on one multiprocessor
  Path path;
  DepthwisePlanesKernel kernel;
};

struct DepthwisePlanesCut {
  const DepthwisePlanesVariant* variant = nullptr;  // null: none takes the problem
  DepthwisePlanes planes{};
  std::size_t shared_bytes = 0;  // of a block
  double seconds = 0;            // estimated, inside a CUDA graph

  unsigned blocks() const {
    return static_cast<unsigned>((planes.planes + planes.block_planes - 1) / planes.block_planes * planes.row_blocks);
  }
};

std::span<const DepthwisePlanesVariant> depthwise_planes_variants(DType dtype);

/// The problem is depthwise without a multiplier and a pool.
DepthwisePlanesCut best_planes_cut(const Conv2dProblem& problem, const cudaDeviceProp& device);

}  // namespace gable::cuda
