// c = a + b, element by element, on device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/types.h"

namespace gable::cuda {

/// Asynchronous on `stream`. Sums are formed in f32 and rounded once.
void add(const void* a, const void* b, void* c, std::int64_t elements, Type type, cudaStream_t stream);

}  // namespace gable::cuda
