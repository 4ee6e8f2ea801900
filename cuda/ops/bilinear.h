// Images upsampled by bilinear interpolation, on device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include <gable/unweighted_problem.h>

namespace gable::cuda {

/// Asynchronous on `stream`.
void upsample_bilinear(const BilinearProblem& problem, const void* x, void* y, cudaStream_t stream);

}  // namespace gable::cuda
