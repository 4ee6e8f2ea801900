// How long a tile of pointwise_planes by wgmma takes, as a model whose constants are fitted to an H200.
#pragma once

#include <cuda_runtime_api.h>

#include <gable/problem.h>

namespace gable::cuda::wgmma::planes {

/// Seconds of a run with tiles of so many slices and chunks, launch included.
double seconds_of(const Conv2dProblem& problem, int slices, int chunks, const cudaDeviceProp& device);

}  // namespace gable::cuda::wgmma::planes
