// See estimate.h.
#include "cpu/common/estimate.h"

#include <algorithm>

#include "cpu/common/cache.h"
#include "cpu/common/core.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

constexpr double kHertz = 3e9;
/// Of what L2 does not keep; the second on cores that do not halve vectors: weights in the L3 of a Zen 5.
constexpr double kBytesPerSecond = 30e9, kWholeBytesPerSecond = 90e9;

/// The taps that read the image for any output.
std::int64_t taps_read(const WindowAxis& axis) {
  const std::int64_t begin = axis.inside(axis.outputs - 1).begin, end = axis.inside(0).end;
  return std::max<std::int64_t>(0, end - begin);
}

}  // namespace

double fma_cycles(const Target& target, std::int64_t lanes) {
  const bool halves = target.name == "avx512" && splits_512_bits();
  return halves && lanes > 8 ? 1 : 0.5;
}

double weights_cycles(const Conv2dProblem& p) {
  constexpr double kFromL1 = 0.6, kFromL2 = 1.35;
  const std::int64_t bytes = p.k * p.group_c() * p.r * p.s * static_cast<std::int64_t>(sizeof(float));
  return bytes <= l1_bytes() ? kFromL1 : kFromL2;
}

double whole_vector_share(std::int64_t lanes) {
  constexpr double kShare = 0.55;
  return lanes < 16 || is_fitted_to_nchw(core_kind()) ? 1 : kShare;
}

double kernel_rows_inside(const Conv2dProblem& p) {
  const WindowAxis axis = row_axis(p);
  const std::int64_t reach = (axis.taps - 1) * axis.dilation;
  const auto outputs_before = [&](std::int64_t row) {  // whose first tap lies before this row
    return std::clamp<std::int64_t>(ceil_div(std::max<std::int64_t>(0, row + axis.pad), axis.stride), 0, axis.outputs);
  };
  // Of the outputs that read the image at all, those in the middle read it with all taps.
  const std::int64_t begin = outputs_before(-reach), end = outputs_before(axis.size);
  const std::int64_t middle = std::min(outputs_before(0), end);
  const std::int64_t after = std::clamp(outputs_before(axis.size - reach), middle, end);
  std::int64_t rows = (after - middle) * axis.taps;
  const auto add = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t output = first; output < last; ++output) {
      const TapRange taps = axis.inside(output);
      rows += taps.end - taps.begin;
    }
  };
  add(begin, middle);
  add(after, end);
  return static_cast<double>(rows);
}

double region_cycles(int threads) {
  constexpr double kOfTwo = 4000, kOfAnother = 670;
  return threads > 1 ? kOfTwo + kOfAnother * (threads - 2) : 0;
}

double break_even_cycles(int threads) { return threads > 1 ? region_cycles(threads) * threads / (threads - 1) : 0; }

double region_seconds(int threads) { return region_cycles(threads) / kHertz; }

double estimated_seconds(const Conv2dProblem& p, double cycles, std::int64_t units, int threads) {
  const auto busy = static_cast<double>(ceil_div(units, threads)) / static_cast<double>(units);
  const auto element = static_cast<std::int64_t>(size_of(p.dtype));
  const std::int64_t read = p.n * p.c * std::min(p.h, p.ho * p.r) * std::min(p.w, p.wo * p.s);  // with a stride not all
  const std::int64_t weights = p.k * p.group_c() * taps_read(row_axis(p)) * taps_read(column_axis(p));
  const auto bytes = static_cast<double>(element * (read + p.y_elements()) + 4 * weights);
  const double speed = is_fitted_to_nchw(core_kind()) ? kBytesPerSecond : kWholeBytesPerSecond;
  const double memory = bytes > static_cast<double>(l2_bytes()) ? bytes / speed : 0;
  const auto sharers = static_cast<double>(std::min<std::int64_t>(units, threads));
  const double region = units > 1 ? region_seconds(threads) : 0;
  return std::max(cycles * busy / kHertz, memory / sharers) + region;
}

}  // namespace gable::cpu
