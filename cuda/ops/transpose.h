// y[b][j][i] = x[b][i][j] on device pointers: matrix transposes, and the reorders between nchw and nhwc, which are one
// transpose of [channels][pixels] an image.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gable::cuda {

/// `batch` dense row-major matrices of rows × columns. element_bytes is 2 or 4. Asynchronous on `stream`.
void transpose(const void* x, void* y, std::int64_t batch, std::int64_t rows, std::int64_t columns, int element_bytes,
               cudaStream_t stream);

}  // namespace gable::cuda
