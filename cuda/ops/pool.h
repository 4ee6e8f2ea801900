// Max-pool on device pointers: the maximum over each window; padding counts as minus infinity, a NaN wins.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <gable/problem.h>

namespace gable::cuda {

/// Asynchronous on `stream`.
void max_pool(const MaxPoolProblem& problem, const void* x, void* y, cudaStream_t stream);

}  // namespace gable::cuda
