// exp(x) over its sum, along one dimension, on device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include <gable/unweighted_problem.h>

namespace gable::cuda {

/// Asynchronous on `stream`.
void softmax(const SoftmaxProblem& problem, const void* x, void* y, cudaStream_t stream);

}  // namespace gable::cuda
