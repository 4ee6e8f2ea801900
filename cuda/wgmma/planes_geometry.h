// How pointwise_planes by wgmma cuts a problem: steps of 64 input channels, chunks of 64 pixels, slices of 64 output
// channels, tiles of some slices and chunks, and what fits a multiprocessor. Plain host arithmetic.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <gable/problem.h>
#include "cuda/wgmma/planes_arguments.h"

namespace gable::cuda::wgmma::planes {

/// The widest access that divides planes: 16 by tensor copies, 8, 4 or 2.
int access_bytes(const Conv2dProblem& problem);

/// Whole pairs, as the widest tile reads them.
std::int64_t slices_of(const Conv2dProblem& problem);
std::int64_t steps_of(const Conv2dProblem& problem);
std::int64_t chunks_of_image(const Conv2dProblem& problem);
std::int64_t tiles_of(const Conv2dProblem& problem, int slices, int chunks);

constexpr int kAlignmentBytes = 1024;  // stages begin at multiples, dynamic shared memory does not
constexpr int stage_bytes(int slices, int chunks) { return slices * kWgmmaWeightBytes + chunks * kChunkBytes; }

/// Blocks of a multiprocessor: two where one each would not hold all.
int residents_of(const Conv2dProblem& problem, int slices, int chunks, const cudaDeviceProp& device);
int stages_of(const Conv2dProblem& problem, int slices, int chunks, const cudaDeviceProp& device);

}  // namespace gable::cuda::wgmma::planes
