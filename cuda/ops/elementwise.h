// Element by element, on device pointers: c = a + b, and f32 rounded to another type.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <gable/problem.h>

namespace gable::cuda {

/// Asynchronous on `stream`. Sums are formed in f32 and rounded once.
void add(const void* a, const void* b, void* c, std::int64_t elements, DType type, cudaStream_t stream);

/// Each f32 rounded to `type`, nearest even. Asynchronous on `stream`.
void convert(const float* from, void* to, std::int64_t elements, DType type, cudaStream_t stream);

}  // namespace gable::cuda
