// Max-pooling, one output row a unit of work.
// NHWC: lanes are channels; a vector of maxima stays in a register for its whole window: 64 B read and 16 comparisons a
// step on AVX-512. NCHW: lanes are columns; first the maximum down the window's rows into an L1 row of f32, then along
// it, vectors for stride 1, one output at a time for others.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/ops/pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/ops/pool.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

#include "cpu/common/cache.h"
#include "cpu/common/check.h"
#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/stream-inl.h"
#include "cpu/common/vector-inl.h"
#include "cpu/ops/pool_row.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

template <DType kType>
void pool_row_nhwc(const PoolRow& call) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const MaxPoolProblem& p = call.problem;
  const Storage<kType>* x = static_cast<const Storage<kType>*>(call.x);
  Storage<kType>* y = static_cast<Storage<kType>*>(call.y);
  const WindowRange rows = window_range(call.out_row, p.stride_h, p.pad_top, p.window_h, p.h);
  for (std::int64_t out = 0; out < p.out_w; ++out) {
    const WindowRange columns = window_range(out, p.stride_w, p.pad_left, p.window_w, p.w);
    for (std::int64_t channel = 0; channel < p.c; channel += lanes) {
      const int count = static_cast<int>(std::min(lanes, p.c - channel));
      const bool whole = count == lanes;
      auto best = hn::Set(d, -INFINITY);
      for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        for (std::int64_t column = columns.begin; column < columns.end; ++column) {
          const Storage<kType>* pixel = x + (row * p.w + column) * p.c + channel;
          best = nan_max(d, best, whole ? load_as_f32<kType>(d, pixel) : load_first_as_f32<kType>(d, pixel, count));
        }
      }
      Storage<kType>* maxima = y + out * p.c + channel;
      if (call.non_temporal) {
        stream_f32_as<kType>(d, best, maxima);
      } else {
        store_first_f32_as<kType>(d, best, maxima, count);
      }
    }
  }
  if (call.non_temporal) hwy::FlushStream();
}

HWY_INLINE float nan_max(float a, float b) { return std::isnan(a) || a >= b ? a : b; }

/// Maximum of `rows` input rows into scratch[0, w).
template <DType kType>
HWY_INLINE void max_of_rows(const PoolRow& call, WindowRange rows) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = call.problem.w;
  const Storage<kType>* x = static_cast<const Storage<kType>*>(call.x);
  for (std::int64_t column = 0; column < width; column += lanes) {
    const int count = static_cast<int>(std::min(lanes, width - column));
    auto best = hn::Set(d, -INFINITY);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const Storage<kType>* values = x + row * width + column;
      best =
          nan_max(d, best, count == lanes ? load_as_f32<kType>(d, values) : load_first_as_f32<kType>(d, values, count));
    }
    store_first(d, best, call.scratch + column, count);
  }
}

template <DType kType>
void pool_row_nchw(const PoolRow& call) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const MaxPoolProblem& p = call.problem;
  max_of_rows<kType>(call, window_range(call.out_row, p.stride_h, p.pad_top, p.window_h, p.h));
  const float* row = call.scratch;
  float* pooled = call.scratch + p.w;
  std::int64_t out = 0;
  while (out < p.out_w) {
    // With stride 1, a vector of neighbouring windows reads vectors of neighbouring inputs, unless padding cuts a
    // window.
    const std::int64_t first = out * p.stride_w - p.pad_left;
    if (p.stride_w == 1 && first >= 0 && first + p.window_w - 1 + lanes <= p.w && out + lanes <= p.out_w) {
      auto best = hn::LoadU(d, row + first);
      for (std::int64_t i = 1; i < p.window_w; ++i) best = nan_max(d, best, hn::LoadU(d, row + first + i));
      hn::StoreU(best, d, pooled + out);
      out += lanes;
      continue;
    }
    const WindowRange columns = window_range(out, p.stride_w, p.pad_left, p.window_w, p.w);
    float best = row[columns.begin];
    for (std::int64_t column = columns.begin + 1; column < columns.end; ++column) best = nan_max(best, row[column]);
    pooled[out++] = best;
  }
  convert_from_f32<kType>(pooled, static_cast<Storage<kType>*>(call.y), p.out_w);
}

using PoolFunction = void (*)(const PoolRow&);

PoolFunction pool_function(DType type, bool nhwc) {
  constexpr std::array<PoolFunction, 3> by_channel = {&pool_row_nhwc<DType::f32>, &pool_row_nhwc<DType::f16>,
                                                      &pool_row_nhwc<DType::bf16>};
  constexpr std::array<PoolFunction, 3> by_column = {&pool_row_nchw<DType::f32>, &pool_row_nchw<DType::f16>,
                                                     &pool_row_nchw<DType::bf16>};
  return (nhwc ? by_channel : by_column)[static_cast<std::size_t>(type)];
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {
namespace {

auto pool_function_of(const Target& target, DType type, bool nhwc) {
  GABLE_CPU_RETURN_OF(target, pool_function(type, nhwc));
}

void at_least(const char* name, std::int64_t value, std::int64_t least) {
  check_at_least("max_pool", name, value, least);
}

void below(const char* name, std::int64_t value, std::int64_t limit) {
  if (value < limit) return;
  throw std::invalid_argument(std::string("max_pool: ") + name + " is " + std::to_string(value) + ", must be below " +
                              std::to_string(limit) + " for every window to touch the input");
}

const MaxPoolProblem& checked(const MaxPoolProblem& p, const Target& target, int threads) {
  at_least("n", p.n, 1);
  at_least("c", p.c, 1);
  at_least("h", p.h, 1);
  at_least("w", p.w, 1);
  at_least("window_h", p.window_h, 1);
  at_least("window_w", p.window_w, 1);
  at_least("stride_h", p.stride_h, 1);
  at_least("stride_w", p.stride_w, 1);
  at_least("out_h", p.out_h, 1);
  at_least("out_w", p.out_w, 1);
  at_least("pad_top", p.pad_top, 0);
  at_least("pad_left", p.pad_left, 0);
  at_least("threads", threads, 1);
  below("pad_top", p.pad_top, p.window_h);
  below("pad_left", p.pad_left, p.window_w);
  below("the last window's first row", (p.out_h - 1) * p.stride_h - p.pad_top, p.h);
  below("the last window's first column", (p.out_w - 1) * p.stride_w - p.pad_left, p.w);
  if (!target.supported) {
    throw std::invalid_argument("max_pool: target " + std::string(target.name) + " is not supported by this CPU");
  }
  return p;
}

}  // namespace

MaxPoolPlan::MaxPoolPlan(const MaxPoolProblem& problem, const Target& target, int threads)
    : problem_(checked(problem, target, threads)),
      target_(&target),
      threads_(threads),
      thread_floats_(problem.nhwc ? 0 : static_cast<std::size_t>(round_up(problem.w + problem.out_w, 16))),
      workspace_(thread_floats_ * static_cast<std::size_t>(threads)) {}

void MaxPoolPlan::run(const void* x, void* y) {
  const MaxPoolProblem& p = problem_;
  note_path(p.nhwc ? Path::max_pool_nhwc : Path::max_pool_nchw, *target_);
  const auto pool_row = pool_function_of(*target_, p.dtype, p.nhwc);
  const std::int64_t planes = p.nhwc ? p.n : p.n * p.c;
  const std::int64_t depth = p.nhwc ? p.c : 1;
  const std::int64_t bytes = static_cast<std::int64_t>(size_of(p.dtype));
  // 16 channels are whole vectors of every target.
  const bool non_temporal = p.nhwc && beyond_last_level(planes * p.out_h * p.out_w * depth * bytes) && p.c % 16 == 0 &&
                            reinterpret_cast<std::uintptr_t>(y) % 64 == 0;
  if (non_temporal) note_path(Path::max_pool_non_temporal, *target_);
  parallel_units(threads_, planes * p.out_h, [&](std::int64_t unit, int thread) {
    const char* plane = static_cast<const char*>(x) + unit / p.out_h * p.h * p.w * depth * bytes;
    char* row = static_cast<char*>(y) + unit * p.out_w * depth * bytes;
    pool_row({p, plane, unit % p.out_h, row, workspace_.data() + static_cast<std::size_t>(thread) * thread_floats_,
              non_temporal});
  });
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
