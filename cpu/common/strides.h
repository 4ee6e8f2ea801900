// Where the elements of an image tensor lie, in either layout.
#pragma once

#include <gable/problem.h>

#include <cstdint>

namespace gable::cpu {

/// Distances in elements between neighbours along each axis.
struct Strides {
  std::int64_t image, row, pixel, channel;
};

constexpr Strides nhwc_strides(std::int64_t channels, std::int64_t h, std::int64_t w) {
  return {h * w * channels, w * channels, channels, 1};
}
constexpr Strides nchw_strides(std::int64_t channels, std::int64_t h, std::int64_t w) {
  return {channels * h * w, w, 1, h * w};
}
constexpr Strides x_strides(const Conv2dProblem& p) {
  return p.nhwc ? nhwc_strides(p.c, p.h, p.w) : nchw_strides(p.c, p.h, p.w);
}
/// The strides of y, the pooled output.
constexpr Strides y_strides(const Conv2dProblem& p) {
  return p.nhwc ? nhwc_strides(p.k, p.out_h(), p.out_w()) : nchw_strides(p.k, p.out_h(), p.out_w());
}

inline const void* advance(const void* data, DType type, std::int64_t elements) {
  return static_cast<const char*>(data) + elements * static_cast<std::int64_t>(size_of(type));
}
inline void* advance(void* data, DType type, std::int64_t elements) {
  return static_cast<char*>(data) + elements * static_cast<std::int64_t>(size_of(type));
}

}  // namespace gable::cpu
