// Element by element, on device pointers: c = activation(a + b), and f32 rounded to another type.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <gable/problem.h>

namespace gable::cuda {

/// c = activation(a + b) of `count` elements. Sums are formed in f32 and rounded once.
struct Addition {
  std::int64_t count = 0;
  DType type = DType::f32;
  Activation activation = Activation::none;  // or relu
};

/// Asynchronous on `stream`. c may be a or b.
void add(const Addition& addition, const void* a, const void* b, void* c, cudaStream_t stream);

/// Each f32 rounded to `type`, nearest even. Asynchronous on `stream`.
void convert(const float* from, void* to, std::int64_t elements, DType type, cudaStream_t stream);

}  // namespace gable::cuda
