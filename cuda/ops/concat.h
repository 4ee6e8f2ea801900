// The channels of two tensors in one, on device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include <gable/unweighted_problem.h>

namespace gable::cuda {

/// Asynchronous on `stream`.
void concat(const ConcatProblem& problem, const void* a, const void* b, void* y, cudaStream_t stream);

}  // namespace gable::cuda
