// multiply: memory-bound, in units of work of about 64 KiB: a piece of an image, or several images. Factors of channels
// are read again for each pixel and stay in L1. The result often replaces a (y is a), so stores go through the caches.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/ops/multiply.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/ops/multiply.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "cpu/common/coverage.h"
#include "cpu/common/parallel.h"
#include "cpu/common/vector-inl.h"
#include "cpu/ops/rest-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

/// Calls run(i, all) for each vector of `count` elements, and run(i, rest) for the elements behind them.
template <class D, class Run>
HWY_INLINE void for_vectors(D d, std::int64_t count, const Run& run) {
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) run(i, 0);
  if (i < count) run(i, static_cast<int>(count - i));
}

/// `repeats` runs of a, each multiplied by the run at b.
template <DType kType>
void multiply_runs(const void* a_data, const void* b_data, void* y_data, std::int64_t repeats, std::int64_t run) {
  const hn::ScalableTag<float> d;
  const Storage<kType>* a = static_cast<const Storage<kType>*>(a_data);
  const Storage<kType>* b = static_cast<const Storage<kType>*>(b_data);
  Storage<kType>* y = static_cast<Storage<kType>*>(y_data);
  if (run == 1) {
    const auto factor = hn::Set(d, hn::GetLane(load_first_as_f32<kType>(d, b, 1)));
    for_vectors(d, repeats, [&](std::int64_t i, int rest) HWY_ATTR {
      store_some<kType>(d, hn::Mul(load_some<kType>(d, a + i, rest), factor), y + i, rest);
    });
    return;
  }
  for (std::int64_t repeat = 0; repeat < repeats; ++repeat, a += run, y += run) {
    for_vectors(d, run, [&](std::int64_t i, int rest) HWY_ATTR {
      const auto product = hn::Mul(load_some<kType>(d, a + i, rest), load_some<kType>(d, b + i, rest));
      store_some<kType>(d, product, y + i, rest);
    });
  }
}

using MultiplyFunction = void (*)(const void*, const void*, void*, std::int64_t, std::int64_t);

MultiplyFunction multiply_function(DType type) {
  constexpr std::array<MultiplyFunction, 3> functions = {&multiply_runs<DType::f32>, &multiply_runs<DType::f16>,
                                                         &multiply_runs<DType::bf16>};
  return functions[static_cast<std::size_t>(type)];
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {
namespace {

constexpr std::int64_t kMultiplyUnit = 1 << 14;

auto multiply_function_of(const Target& target, DType type) { GABLE_CPU_RETURN_OF(target, multiply_function(type)); }

Path path_of(const MultiplyProblem& p) {
  if (p.repeats == 1) return Path::multiply_elements;
  return p.run == 1 ? Path::multiply_planes : Path::multiply_channels;
}

}  // namespace

void multiply(const MultiplyProblem& p, const void* a_data, const void* b_data, void* y_data, const Target& target,
              int threads) {
  note_path(path_of(p), target);
  const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
  const char* a = static_cast<const char*>(a_data);
  const char* b = static_cast<const char*>(b_data);
  char* y = static_cast<char*>(y_data);
  const auto function = multiply_function_of(target, p.dtype);
  if (p.repeats == 1) {  // images follow one another in b, too
    const std::int64_t count = p.count();
    parallel_units(threads, ceil_div(count, kMultiplyUnit), [&](std::int64_t unit, int) {
      const std::int64_t at = unit * kMultiplyUnit * bytes;
      function(a + at, b + at, y + at, 1, std::min(kMultiplyUnit, count - unit * kMultiplyUnit));
    });
    return;
  }
  const std::int64_t repeats = std::clamp<std::int64_t>(kMultiplyUnit / p.run, 1, p.repeats);  // of a unit
  const std::int64_t pieces = ceil_div(p.repeats, repeats);                                    // of an image
  const std::int64_t images = pieces > 1 ? 1 : std::max<std::int64_t>(1, kMultiplyUnit / (p.repeats * p.run));
  parallel_units(threads, ceil_div(p.images, images) * pieces, [&](std::int64_t unit, int) {
    const std::int64_t first = unit / pieces * images, from = unit % pieces * repeats;
    for (std::int64_t image = first; image < std::min(p.images, first + images); ++image) {
      const std::int64_t at = (image * p.repeats + from) * p.run * bytes;
      function(a + at, b + image * p.run * bytes, y + at, std::min(repeats, p.repeats - from), p.run);
    }
  });
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
