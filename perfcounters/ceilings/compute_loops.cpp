// f32 arithmetic loops, compiled once a Highway target. Without FMA: seven chains of p *= m beside seven of s += a,
// which no compiler may contract to an FMA because no product meets a sum. With FMA: fourteen chains of s += m * a.
// Chains start from different values, so that none can be merged, and values stay normal for 2^31 iterations. A
// compiler leaves vectors as they are; scalars need a barrier in each iteration, or they would be packed into vectors.
#include "perfcounters/ceilings/loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "perfcounters/ceilings/compute_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// On x86 the targets before AVX2 have no FMA; Highway would emulate it.
#undef GABLE_TARGET_HAS_FMA
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
#define GABLE_TARGET_HAS_FMA 0
#else
#define GABLE_TARGET_HAS_FMA 1
#endif

#ifndef GABLE_KEEP_SCALARS
#if HWY_ARCH_X86
#define GABLE_REGISTER "+x"
#elif HWY_ARCH_ARM
#define GABLE_REGISTER "+w"
#else
#define GABLE_REGISTER "+m"
#endif
// Makes the compiler hold each of fourteen floats in a register of its own at this point.
#define GABLE_KEEP_SCALARS(a, b, c, d, e, f, g, h, i, j, k, l, m, n)                                            \
  asm volatile(""                                                                                               \
               : GABLE_REGISTER(a), GABLE_REGISTER(b), GABLE_REGISTER(c), GABLE_REGISTER(d), GABLE_REGISTER(e), \
                 GABLE_REGISTER(f), GABLE_REGISTER(g), GABLE_REGISTER(h), GABLE_REGISTER(i), GABLE_REGISTER(j), \
                 GABLE_REGISTER(k), GABLE_REGISTER(l), GABLE_REGISTER(m), GABLE_REGISTER(n))
#endif

HWY_BEFORE_NAMESPACE();
namespace gable::perf {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kFactor = 0x1.fffffep-1F;  // the float just below one
inline constexpr float kAddend = 0x1p-10F;

// Tells the compiler that the result is used.
HWY_INLINE void keep(float value) { asm volatile("" : : "m"(value)); }

template <class D>
HWY_INLINE void mul_add_chains(D d, std::int64_t iterations) {
  const auto m = hn::Set(d, kFactor);
  const auto a = hn::Set(d, kAddend);
  auto p0 = hn::Set(d, 1.1F), p1 = hn::Set(d, 1.2F), p2 = hn::Set(d, 1.3F), p3 = hn::Set(d, 1.4F);
  auto p4 = hn::Set(d, 1.5F), p5 = hn::Set(d, 1.6F), p6 = hn::Set(d, 1.7F);
  auto s0 = hn::Set(d, 2.1F), s1 = hn::Set(d, 2.2F), s2 = hn::Set(d, 2.3F), s3 = hn::Set(d, 2.4F);
  auto s4 = hn::Set(d, 2.5F), s5 = hn::Set(d, 2.6F), s6 = hn::Set(d, 2.7F);
  for (std::int64_t i = 0; i < iterations; ++i) {
    p0 = hn::Mul(p0, m), s0 = hn::Add(s0, a), p1 = hn::Mul(p1, m), s1 = hn::Add(s1, a);
    p2 = hn::Mul(p2, m), s2 = hn::Add(s2, a), p3 = hn::Mul(p3, m), s3 = hn::Add(s3, a);
    p4 = hn::Mul(p4, m), s4 = hn::Add(s4, a), p5 = hn::Mul(p5, m), s5 = hn::Add(s5, a);
    p6 = hn::Mul(p6, m), s6 = hn::Add(s6, a);
  }
  const auto products = hn::Add(hn::Add(hn::Add(p0, p1), hn::Add(p2, p3)), hn::Add(hn::Add(p4, p5), p6));
  const auto sums = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), s6));
  keep(hn::GetLane(hn::Add(products, sums)));
}

#if GABLE_TARGET_HAS_FMA
template <class D>
HWY_INLINE void fma_chains(D d, std::int64_t iterations) {
  const auto m = hn::Set(d, kFactor);
  const auto a = hn::Set(d, kAddend);
  auto s0 = hn::Set(d, 1.1F), s1 = hn::Set(d, 1.2F), s2 = hn::Set(d, 1.3F), s3 = hn::Set(d, 1.4F);
  auto s4 = hn::Set(d, 1.5F), s5 = hn::Set(d, 1.6F), s6 = hn::Set(d, 1.7F), s7 = hn::Set(d, 1.8F);
  auto s8 = hn::Set(d, 1.9F), s9 = hn::Set(d, 2.1F), s10 = hn::Set(d, 2.2F), s11 = hn::Set(d, 2.3F);
  auto s12 = hn::Set(d, 2.4F), s13 = hn::Set(d, 2.5F);
  for (std::int64_t i = 0; i < iterations; ++i) {
    s0 = hn::MulAdd(m, a, s0), s1 = hn::MulAdd(m, a, s1), s2 = hn::MulAdd(m, a, s2), s3 = hn::MulAdd(m, a, s3);
    s4 = hn::MulAdd(m, a, s4), s5 = hn::MulAdd(m, a, s5), s6 = hn::MulAdd(m, a, s6), s7 = hn::MulAdd(m, a, s7);
    s8 = hn::MulAdd(m, a, s8), s9 = hn::MulAdd(m, a, s9), s10 = hn::MulAdd(m, a, s10), s11 = hn::MulAdd(m, a, s11);
    s12 = hn::MulAdd(m, a, s12), s13 = hn::MulAdd(m, a, s13);
  }
  const auto low = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), s6));
  const auto high = hn::Add(hn::Add(hn::Add(s7, s8), hn::Add(s9, s10)), hn::Add(hn::Add(s11, s12), s13));
  keep(hn::GetLane(hn::Add(low, high)));
}

HWY_NOINLINE void vector_fma(std::int64_t iterations) { fma_chains(hn::ScalableTag<float>(), iterations); }
HWY_NOINLINE void vector_fma_128(std::int64_t iterations) { fma_chains(hn::FixedTag<float, 4>(), iterations); }

HWY_NOINLINE void scalar_fma(std::int64_t iterations) {
  float m = kFactor, a = kAddend;
  float s0 = 1.1F, s1 = 1.2F, s2 = 1.3F, s3 = 1.4F, s4 = 1.5F, s5 = 1.6F, s6 = 1.7F;
  float s7 = 1.8F, s8 = 1.9F, s9 = 2.1F, s10 = 2.2F, s11 = 2.3F, s12 = 2.4F, s13 = 2.5F;
  asm volatile("" : GABLE_REGISTER(m), GABLE_REGISTER(a));  // hides that m * a is the same in each iteration
  for (std::int64_t i = 0; i < iterations; ++i) {
    s0 = __builtin_fmaf(m, a, s0), s1 = __builtin_fmaf(m, a, s1), s2 = __builtin_fmaf(m, a, s2);
    s3 = __builtin_fmaf(m, a, s3), s4 = __builtin_fmaf(m, a, s4), s5 = __builtin_fmaf(m, a, s5);
    s6 = __builtin_fmaf(m, a, s6), s7 = __builtin_fmaf(m, a, s7), s8 = __builtin_fmaf(m, a, s8);
    s9 = __builtin_fmaf(m, a, s9), s10 = __builtin_fmaf(m, a, s10), s11 = __builtin_fmaf(m, a, s11);
    s12 = __builtin_fmaf(m, a, s12), s13 = __builtin_fmaf(m, a, s13);
    GABLE_KEEP_SCALARS(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13);
  }
}
#endif  // GABLE_TARGET_HAS_FMA

HWY_NOINLINE void vector_mul_add(std::int64_t iterations) { mul_add_chains(hn::ScalableTag<float>(), iterations); }

HWY_NOINLINE void scalar_mul_add(std::int64_t iterations) {
  float m = kFactor, a = kAddend;
  float p0 = 1.1F, p1 = 1.2F, p2 = 1.3F, p3 = 1.4F, p4 = 1.5F, p5 = 1.6F, p6 = 1.7F;
  float s0 = 2.1F, s1 = 2.2F, s2 = 2.3F, s3 = 2.4F, s4 = 2.5F, s5 = 2.6F, s6 = 2.7F;
  asm volatile("" : GABLE_REGISTER(m), GABLE_REGISTER(a));
  for (std::int64_t i = 0; i < iterations; ++i) {
    p0 *= m, s0 += a, p1 *= m, s1 += a, p2 *= m, s2 += a, p3 *= m, s3 += a;
    p4 *= m, s4 += a, p5 *= m, s5 += a, p6 *= m, s6 += a;
    GABLE_KEEP_SCALARS(p0, p1, p2, p3, p4, p5, p6, s0, s1, s2, s3, s4, s5, s6);
  }
}

#if !HWY_ARCH_X86
/// Floats in a vector of this target.
HWY_NOINLINE int vector_lanes() { return static_cast<int>(hn::Lanes(hn::ScalableTag<float>())); }
#endif

}  // namespace HWY_NAMESPACE
}  // namespace gable::perf
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::perf {
namespace {

using Loop = void (*)(std::int64_t);

ComputeLoop f32_loop(const char* isa, int lanes, bool fma, Loop run) {
  return {.isa = isa, .dtype = "f32", .fma = fma, .flop_per_instruction = fma ? 2 * lanes : lanes, .run = run};
}

}  // namespace

std::string ComputeLoop::name() const { return isa + (fma ? " fma " : " ") + dtype; }

std::vector<ComputeLoop> f32_loops() {
  std::vector<ComputeLoop> loops;
#if HWY_ARCH_X86
  const auto supported = hwy::SupportedTargets();
#if HWY_TARGETS & HWY_SSE4
  if ((supported & HWY_SSE4) != 0) {
    loops.push_back(f32_loop("scalar", 1, false, N_SSE4::scalar_mul_add));
    loops.push_back(f32_loop("sse4", 4, false, N_SSE4::vector_mul_add));
  }
#endif
#if HWY_TARGETS & HWY_AVX2
  if ((supported & HWY_AVX2) != 0) {
    loops.push_back(f32_loop("scalar", 1, true, N_AVX2::scalar_fma));
    loops.push_back(f32_loop("sse4", 4, true, N_AVX2::vector_fma_128));
    loops.push_back(f32_loop("avx2", 8, false, N_AVX2::vector_mul_add));
    loops.push_back(f32_loop("avx2", 8, true, N_AVX2::vector_fma));
  }
#endif
#if HWY_TARGETS & HWY_AVX3
  if ((supported & HWY_AVX3) != 0) {
    loops.push_back(f32_loop("avx512", 16, false, N_AVX3::vector_mul_add));
    loops.push_back(f32_loop("avx512", 16, true, N_AVX3::vector_fma));
  }
#endif
#else
  const char* isa = HWY_ARCH_ARM ? "neon" : "simd";
  const int lanes = HWY_STATIC_DISPATCH(vector_lanes)();
  loops.push_back(f32_loop("scalar", 1, false, HWY_STATIC_DISPATCH(scalar_mul_add)));
  loops.push_back(f32_loop("scalar", 1, true, HWY_STATIC_DISPATCH(scalar_fma)));
  loops.push_back(f32_loop(isa, lanes, false, HWY_STATIC_DISPATCH(vector_mul_add)));
  loops.push_back(f32_loop(isa, lanes, true, HWY_STATIC_DISPATCH(vector_fma)));
#endif
  return loops;
}

}  // namespace gable::perf
#endif  // HWY_ONCE
