// Loads and stores in the widest vectors of this CPU (Highway picks the target at run time). The read loop adds what it
// loads to eight accumulators: the additions need no more units than the loads do. Counts are multiples of 256 floats,
// so that no target has a remainder.
#include "perfcounters/ceilings/loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "perfcounters/ceilings/bandwidth_loops.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gable::perf {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_NOINLINE float read_passes(const float* HWY_RESTRICT data, std::size_t count, std::int64_t passes) {
  const hn::ScalableTag<float> d;
  const std::size_t n = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  auto s4 = hn::Zero(d), s5 = hn::Zero(d), s6 = hn::Zero(d), s7 = hn::Zero(d);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    for (std::size_t i = 0; i < count; i += 8 * n) {
      s0 = hn::Add(s0, hn::Load(d, data + i)), s1 = hn::Add(s1, hn::Load(d, data + i + n));
      s2 = hn::Add(s2, hn::Load(d, data + i + 2 * n)), s3 = hn::Add(s3, hn::Load(d, data + i + 3 * n));
      s4 = hn::Add(s4, hn::Load(d, data + i + 4 * n)), s5 = hn::Add(s5, hn::Load(d, data + i + 5 * n));
      s6 = hn::Add(s6, hn::Load(d, data + i + 6 * n)), s7 = hn::Add(s7, hn::Load(d, data + i + 7 * n));
    }
  }
  const auto low = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
  const auto high = hn::Add(hn::Add(s4, s5), hn::Add(s6, s7));
  return hn::GetLane(hn::Add(low, high));
}

// Each pass rewrites the same values; the barrier keeps the compiler from merging passes.
HWY_NOINLINE void triad_passes(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, const float* HWY_RESTRICT c,
                               std::size_t count, std::int64_t passes) {
  const hn::ScalableTag<float> d;
  const std::size_t n = hn::Lanes(d);
  const auto s = hn::Set(d, 3.0F);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    for (std::size_t i = 0; i < count; i += 2 * n) {
      hn::Store(hn::MulAdd(s, hn::Load(d, c + i), hn::Load(d, b + i)), d, a + i);
      hn::Store(hn::MulAdd(s, hn::Load(d, c + i + n), hn::Load(d, b + i + n)), d, a + i + n);
    }
    asm volatile("" : : : "memory");
  }
}

HWY_NOINLINE void triad_stream_passes(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, const float* HWY_RESTRICT c,
                                      std::size_t count, std::int64_t passes) {
  const hn::ScalableTag<float> d;
  const std::size_t n = hn::Lanes(d);
  const auto s = hn::Set(d, 3.0F);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    for (std::size_t i = 0; i < count; i += 2 * n) {
      hn::Stream(hn::MulAdd(s, hn::Load(d, c + i), hn::Load(d, b + i)), d, a + i);
      hn::Stream(hn::MulAdd(s, hn::Load(d, c + i + n), hn::Load(d, b + i + n)), d, a + i + n);
    }
    asm volatile("" : : : "memory");
  }
  hwy::FlushStream();
}

HWY_NOINLINE void copy_passes(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::size_t count,
                              std::int64_t passes) {
  const hn::ScalableTag<float> d;
  const std::size_t n = hn::Lanes(d);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    for (std::size_t i = 0; i < count; i += 2 * n) {
      hn::Store(hn::Load(d, b + i), d, a + i);
      hn::Store(hn::Load(d, b + i + n), d, a + i + n);
    }
    asm volatile("" : : : "memory");
  }
}

HWY_NOINLINE void daxpy_passes(double* HWY_RESTRICT y, const double* HWY_RESTRICT x, std::size_t count,
                               std::int64_t passes) {
  const hn::ScalableTag<double> d;
  const auto s = hn::Set(d, 3.0);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    for (std::size_t i = 0; i < count; i += hn::Lanes(d))
      hn::Store(hn::MulAdd(s, hn::Load(d, x + i), hn::Load(d, y + i)), d, y + i);
  }
}

HWY_NOINLINE void copy_stream_passes(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::size_t count,
                                     std::int64_t passes) {
  const hn::ScalableTag<float> d;
  const std::size_t n = hn::Lanes(d);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    for (std::size_t i = 0; i < count; i += 2 * n) {
      hn::Stream(hn::Load(d, b + i), d, a + i);
      hn::Stream(hn::Load(d, b + i + n), d, a + i + n);
    }
    asm volatile("" : : : "memory");
  }
  hwy::FlushStream();
}

HWY_NOINLINE std::size_t vector_bytes() { return hn::Lanes(hn::ScalableTag<float>()) * sizeof(float); }

}  // namespace HWY_NAMESPACE
}  // namespace gable::perf
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::perf {

HWY_EXPORT(read_passes);
HWY_EXPORT(copy_passes);
HWY_EXPORT(copy_stream_passes);
HWY_EXPORT(triad_passes);
HWY_EXPORT(triad_stream_passes);
HWY_EXPORT(daxpy_passes);
HWY_EXPORT(vector_bytes);

float read_loop(const float* data, std::size_t count, std::int64_t passes) {
  return HWY_DYNAMIC_DISPATCH(read_passes)(data, count, passes);
}

void copy_loop(float* a, const float* b, std::size_t count, std::int64_t passes, bool streaming) {
  if (streaming)
    HWY_DYNAMIC_DISPATCH(copy_stream_passes)(a, b, count, passes);
  else
    HWY_DYNAMIC_DISPATCH(copy_passes)(a, b, count, passes);
}

void triad_loop(float* a, const float* b, const float* c, std::size_t count, std::int64_t passes, bool streaming) {
  if (streaming)
    HWY_DYNAMIC_DISPATCH(triad_stream_passes)(a, b, c, count, passes);
  else
    HWY_DYNAMIC_DISPATCH(triad_passes)(a, b, c, count, passes);
}

void daxpy_loop(double* y, const double* x, std::size_t count, std::int64_t passes) {
  HWY_DYNAMIC_DISPATCH(daxpy_passes)(y, x, count, passes);
}

std::size_t load_bytes() { return HWY_DYNAMIC_DISPATCH(vector_bytes)(); }

}  // namespace gable::perf
#endif  // HWY_ONCE
