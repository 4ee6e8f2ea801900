// Transposes and layout changes of 2- and 4-byte elements. They move bits: NaN payloads included.
#pragma once

#include <cstdint>

#include <gable/problem.h>
#include "cpu/common/target.h"

namespace gable::cpu {

/// y[c*y_stride + r] = x[r*x_stride + c] for r in [0, rows), c in [0, columns); strides in elements.
struct Transpose2d {
  std::int64_t rows = 1, columns = 1, x_stride = 1, y_stride = 1;
};

/// element_bytes is 2 or 4. x and y must not overlap.
void transpose(const Transpose2d& shape, const void* x, void* y, int element_bytes, const Target& target, int threads);

/// Units of work in which threads share the rows of matrices of `rows` x `columns`.
std::int64_t transpose_units(std::int64_t matrices, std::int64_t rows, std::int64_t columns);

/// n images of c × h × w elements, of 2 or 4 bytes each.
struct Images {
  std::int64_t n, c, h, w;
  int element_bytes;
};

/// Layout changes of dense images. x and y must not overlap.
void nchw_to_nhwc(const Images& images, const void* x, void* y, const Target& target, int threads);
void nhwc_to_nchw(const Images& images, const void* x, void* y, const Target& target, int threads);

}  // namespace gable::cpu
