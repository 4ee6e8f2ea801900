// See multiply_adds.h. Twelve independent chains hide the latency of two FMA units on any CPU and fit 16 registers with
// their two factors. A run of 10,000 steps takes about 20 us, so that few runs are interrupted.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/common/multiply_adds.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/common/multiply_adds.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "cpu/common/target.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Returns the multiply-adds done.
HWY_NOINLINE double multiply_add_chains(int steps) {
  const hn::ScalableTag<float> d;
  const auto m = hn::Set(d, 0x1.fffffep-1F);  // values stay normal
  const auto a = hn::Set(d, 0x1p-10F);
  auto s0 = hn::Set(d, 1.1F), s1 = hn::Set(d, 1.2F), s2 = hn::Set(d, 1.3F), s3 = hn::Set(d, 1.4F);
  auto s4 = hn::Set(d, 1.5F), s5 = hn::Set(d, 1.6F), s6 = hn::Set(d, 1.7F), s7 = hn::Set(d, 1.8F);
  auto s8 = hn::Set(d, 1.9F), s9 = hn::Set(d, 2.1F), s10 = hn::Set(d, 2.2F), s11 = hn::Set(d, 2.3F);
  for (int i = 0; i < steps; ++i) {
    s0 = hn::MulAdd(m, a, s0), s1 = hn::MulAdd(m, a, s1), s2 = hn::MulAdd(m, a, s2), s3 = hn::MulAdd(m, a, s3);
    s4 = hn::MulAdd(m, a, s4), s5 = hn::MulAdd(m, a, s5), s6 = hn::MulAdd(m, a, s6), s7 = hn::MulAdd(m, a, s7);
    s8 = hn::MulAdd(m, a, s8), s9 = hn::MulAdd(m, a, s9), s10 = hn::MulAdd(m, a, s10), s11 = hn::MulAdd(m, a, s11);
  }
  const auto low = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(s4, s5));
  const auto high = hn::Add(hn::Add(hn::Add(s6, s7), hn::Add(s8, s9)), hn::Add(s10, s11));
  const float used = hn::GetLane(hn::Add(low, high));
  asm volatile("" : : "m"(used));
  return 12.0 * static_cast<double>(hn::Lanes(d)) * steps;
}

auto chains() { return &multiply_add_chains; }

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {
namespace {

auto chains_of(const Target& target) { GABLE_CPU_RETURN_OF(target, chains()); }

}  // namespace

double measured_multiply_adds(double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int kSteps = 10000;
  const auto since = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
  const auto run = chains_of(best_target());
  double best = 0;
  for (const Clock::time_point start = Clock::now(); since(start) < seconds;) {
    const Clock::time_point begin = Clock::now();
    const double done = run(kSteps);
    best = std::max(best, done / std::max(since(begin), 1e-9));
  }
  return best;
}

}  // namespace gable::cpu
#endif
