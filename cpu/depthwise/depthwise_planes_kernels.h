// What the NCHW depthwise kernel does around its register tiles, compiled once a target: rows of a plane to padded f32
// rows, weights to vectors, and f32 results to rows of a plane.
#pragma once

#include <gable/problem.h>

#include <cstdint>

#include "cpu/common/target.h"

namespace gable::cpu {

/// Rows of a plane as tiles read them. Column i of the padded row lies in phase i % stride, at i / stride. Everything
/// outside the image is zero from the start and stays zero.
struct PlaneRows {
  const void* x;      // the first row
  const void* x_end;  // of the whole tensor: vectors may be read up to here
  std::int64_t rows, width;
  void* strip;  // [phase][row][pitch], of f32 or of x's type
  std::int64_t pitch, phase_elements;
  std::int64_t pad_left, stride;
};

/// f32 results to rows of y that follow one another. Whole vectors are stored; the next row overwrites what they write
/// past a row's end. Nothing is written from `y_end` on.
struct PlaneResults {
  const float* results;
  std::int64_t pitch;
  void* y;
  const void* y_end;
  std::int64_t rows, width;
  bool tanh;
};

/// Transposes consecutive planes, at most as many as a vector has lanes, to or from [pixel][plane] with one vector's
/// elements for each pixel. Pixels are f32; those of y are of its type unless tanh follows.
struct PlaneGroup {
  void* planes;  // x, which is only read, or y
  void* pixels;
  std::int64_t count, size;
  bool tanh;
};

/// Planes of a 1x1 window, whose outputs are one product each: y = x * weight + bias, pixel by pixel.
struct ScaledPlanes {
  const void* x;         // the plane of the first output
  std::int64_t repeats;  // outputs of the same input plane
  const float* weights;  // one a plane
  const float* bias;     // likewise, or null
  void* y;
  std::int64_t planes, pixels;
  float least;  // outputs below become this; minus infinity: none
  bool tanh;
};

struct PlaneKernels {
  struct Staging {
    void (*rows)(const PlaneRows&);
    /// Rows whose columns are pixels of so many channels, fewer than lanes; `width` counts elements, `pad_left` pixels.
    void (*pixels)(const PlaneRows&, std::int64_t channels);
  };
  int lanes;
  /// Indexed by DType: to strips of x's type, or of f32.
  Staging staged[3], staged_as_f32[3];
  void (*finish[3])(const PlaneResults&);
  void (*to_pixels[3])(const PlaneGroup&);
  void (*from_pixels[3])(const PlaneGroup&);
  void (*scale[3])(const ScaledPlanes&);
  /// As in vector-inl.h.
  void (*transpose)(const float* x, std::int64_t x_stride, float* y, std::int64_t y_stride, std::int64_t rows,
                    std::int64_t columns);
  /// Each of `count` weights as a vector.
  void (*spread)(const float* weights, std::int64_t count, float* vectors);
};

const PlaneKernels& depthwise_plane_kernels(const Target& target);

}  // namespace gable::cpu
