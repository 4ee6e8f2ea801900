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

/// The two pixels of a row (or the rows of an image) between which a pixel of output lies, and their shares. Where it
/// lies on one, that is both, half and half: a share of 0 would make a NaN of the infinity beside it.
struct Between {
  std::int64_t first = 0, second = 0;
  float first_share = 0.5f, second_share = 0.5f;
};

/// Of pixel `at` of a row of `size` pixels made `scale` times as long. With align_corners the ends stay the ends; else
/// pixel i covers [i, i + 1) before and [i * scale, (i + 1) * scale) afterwards, and ends are repeated. Each share is
/// within a rounding or two of its fraction, also a small one.
constexpr Between between(std::int64_t at, std::int64_t size, std::int64_t scale, bool align_corners) {
  const std::int64_t parts = align_corners ? size * scale - 1 : 2 * scale;
  const std::int64_t place = align_corners ? at * (size - 1) : 2 * at + 1 - scale;  // in 1 / parts of a pixel
  const std::int64_t first = place <= 0 || size == 1 ? 0 : place / parts, rest = place <= 0 ? 0 : place % parts;
  if (rest == 0 || first + 1 >= size) return {first, first};
  const float share = static_cast<float>(rest) / static_cast<float>(parts);
  const float other = static_cast<float>(parts - rest) / static_cast<float>(parts);
  return {first, first + 1, other, share};
}

/// `images` of rows of pixels of `channels` neighbouring elements (in NCHW a channel is an image of pixels of one
/// element), interpolated between the four nearest pixels in f32 and rounded to the type.
struct BilinearProblem {
  std::int64_t images = 1, rows = 1;
  std::int64_t pixels = 1, channels = 1;  // of a row
  std::int64_t scale_h = 1, scale_w = 1;
  bool align_corners = false;
  DType dtype = DType::f32;
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

/// y[i] = exp(x[i] - m) / sum over i of exp(x[i] - m), with m = max over i of x[i], for each of rows * columns vectors
/// of `count` elements that lie `columns` apart. Computed in f32 and rounded to the type; y may be x.
struct SoftmaxProblem {
  std::int64_t rows = 1, count = 1, columns = 1;
  DType dtype = DType::f32;
};

}  // namespace gable
