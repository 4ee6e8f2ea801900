// y = a * b, where b may have one factor for each channel of an image, on device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include <gable/unweighted_problem.h>

namespace gable::cuda {

/// Asynchronous on `stream`.
void multiply(const MultiplyProblem& problem, const void* a, const void* b, void* y, cudaStream_t stream);

}  // namespace gable::cuda
