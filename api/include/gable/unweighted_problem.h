// Ops without weights as kernels take them, beside MaxPoolProblem in gable/problem.h: plain numbers, for CPU and GPU
// kernels alike. A backend makes them from valid ops (gable/ops.h). Nothing here is checked.
#pragma once

#include <gable/dtype.h>
#include <gable/function.h>

#include <cstdint>

namespace gable {

/// y[i] = function(x[i]), computed in f32 and rounded to the type. A NaN stays one. y may be x.
struct ActivateProblem {
  std::int64_t count = 0;
  DType dtype = DType::f32;
  Function function = Function::relu;
  float slope = 0;  // of leaky_relu
};

/// `rows` times: a_bytes of a, then b_bytes of b. Of NCHW a row is an image, of NHWC a pixel.
struct ConcatProblem {
  std::int64_t rows = 1;
  std::int64_t a_bytes = 0, b_bytes = 0;  // of a row
};

/// Rows of pixels of `channels` neighbouring elements (1 in NCHW, where each channel has rows of its own): each pixel
/// is repeated scale_w times, each row scale_h times.
struct UpsampleProblem {
  std::int64_t rows = 1;
  std::int64_t pixels = 1, channels = 1;  // of a row
  std::int64_t scale_h = 1, scale_w = 1;
  int element_bytes = 4;  // 2 or 4
};

/// y = a * b, computed in f32 and rounded to the type. `images` times: `repeats` runs of a, each multiplied by the same
/// `run` elements of b. In NHWC a run is a pixel. In NCHW it is one element, and a channel counts as an image. Tensors
/// of one shape are one run. y may be a, and b where repeats is 1.
struct MultiplyProblem {
  std::int64_t images = 1;
  std::int64_t repeats = 1, run = 1;
  DType dtype = DType::f32;

  std::int64_t count() const { return images * repeats * run; }
};

}  // namespace gable
