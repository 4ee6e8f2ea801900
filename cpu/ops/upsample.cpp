// Copies. A row of output is made once, in the output itself, and copied from there while it is in L1 or L2. A unit of
// work is about 64 KiB of output.
#include "cpu/ops/upsample.h"

#include <algorithm>
#include <cstring>

#include <gable/problem.h>
#include "cpu/common/coverage.h"
#include "cpu/common/parallel.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kUpsampleUnitBytes = 1 << 16;

template <int kScale, typename T>
void repeat_elements(const T* x, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (int j = 0; j < kScale; ++j) y[kScale * i + j] = x[i];
  }
}

template <typename T>
void repeat_elements(const T* x, T* y, std::int64_t count, std::int64_t scale) {
  if (scale == 2) return repeat_elements<2>(x, y, count);
  if (scale == 3) return repeat_elements<3>(x, y, count);
  if (scale == 4) return repeat_elements<4>(x, y, count);
  for (std::int64_t i = 0; i < count; ++i) std::fill_n(y + i * scale, scale, x[i]);
}

template <typename T>
void repeat_pixels(const UpsampleProblem& p, const T* x, T* y) {
  if (p.channels == 1) return repeat_elements(x, y, p.pixels, p.scale_w);
  const auto bytes = static_cast<std::size_t>(p.channels) * sizeof(T);
  for (std::int64_t i = 0; i < p.pixels; ++i) {
    for (std::int64_t j = 0; j < p.scale_w; ++j) {
      std::memcpy(y + (i * p.scale_w + j) * p.channels, x + i * p.channels, bytes);
    }
  }
}

template <typename T>
void upsample_as(const UpsampleProblem& p, const void* x_data, void* y_data, int threads) {
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  const std::int64_t in = p.pixels * p.channels, out = in * p.scale_w;  // of a row
  const std::int64_t bytes = out * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t rows = std::max<std::int64_t>(1, kUpsampleUnitBytes / (p.scale_h * bytes));  // of input, in a unit
  parallel_units(threads, ceil_div(p.rows, rows), [&](std::int64_t unit, int) {
    for (std::int64_t row = unit * rows; row < std::min(p.rows, (unit + 1) * rows); ++row) {
      T* const first = y + row * p.scale_h * out;
      repeat_pixels(p, x + row * in, first);
      for (std::int64_t i = 1; i < p.scale_h; ++i) std::memcpy(first + i * out, first, static_cast<std::size_t>(bytes));
    }
  });
}

}  // namespace

void upsample(const UpsampleProblem& problem, const void* x, void* y, int threads) {
  note_path(problem.channels == 1 ? Path::upsample_elements : Path::upsample_pixels, best_target());
  const auto upsample_elements = problem.element_bytes == 2 ? upsample_as<std::uint16_t> : upsample_as<std::uint32_t>;
  upsample_elements(problem, x, y, threads);
}

}  // namespace gable::cpu
