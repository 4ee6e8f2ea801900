// f32 and f64 arithmetic loops, compiled once a Highway target. Without FMA: seven chains of p *= m beside seven of s
// += a, which no compiler may contract to an FMA because no product meets a sum. With FMA: fourteen chains of s += m *
// a. Chains start from different values, so that none can be merged, and values stay normal for 2^31 iterations. A
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
// Makes the compiler hold each of fourteen numbers in a register of its own at this point.
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

// Exact in both types.
inline constexpr float kFactor = 0x1.fffffep-1F;  // the float just below one
inline constexpr float kAddend = 0x1p-10F;

// Tells the compiler that the result is used.
template <class T>
HWY_INLINE void keep(T value) {
  asm volatile("" : : "m"(value));
}

template <class D>
HWY_INLINE void mul_add_chains(D d, std::int64_t iterations) {
  using T = hn::TFromD<D>;
  const auto m = hn::Set(d, T(kFactor));
  const auto a = hn::Set(d, T(kAddend));
  auto p0 = hn::Set(d, T(1.1)), p1 = hn::Set(d, T(1.2)), p2 = hn::Set(d, T(1.3)), p3 = hn::Set(d, T(1.4));
  auto p4 = hn::Set(d, T(1.5)), p5 = hn::Set(d, T(1.6)), p6 = hn::Set(d, T(1.7));
  auto s0 = hn::Set(d, T(2.1)), s1 = hn::Set(d, T(2.2)), s2 = hn::Set(d, T(2.3)), s3 = hn::Set(d, T(2.4));
  auto s4 = hn::Set(d, T(2.5)), s5 = hn::Set(d, T(2.6)), s6 = hn::Set(d, T(2.7));
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
  using T = hn::TFromD<D>;
  const auto m = hn::Set(d, T(kFactor));
  const auto a = hn::Set(d, T(kAddend));
  auto s0 = hn::Set(d, T(1.1)), s1 = hn::Set(d, T(1.2)), s2 = hn::Set(d, T(1.3)), s3 = hn::Set(d, T(1.4));
  auto s4 = hn::Set(d, T(1.5)), s5 = hn::Set(d, T(1.6)), s6 = hn::Set(d, T(1.7)), s7 = hn::Set(d, T(1.8));
  auto s8 = hn::Set(d, T(1.9)), s9 = hn::Set(d, T(2.1)), s10 = hn::Set(d, T(2.2)), s11 = hn::Set(d, T(2.3));
  auto s12 = hn::Set(d, T(2.4)), s13 = hn::Set(d, T(2.5));
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

HWY_INLINE float fma_of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HWY_INLINE double fma_of(double a, double b, double c) { return __builtin_fma(a, b, c); }

template <class T>
HWY_INLINE void scalar_fma_chains(std::int64_t iterations) {
  T m = kFactor, a = kAddend;
  T s0 = T(1.1), s1 = T(1.2), s2 = T(1.3), s3 = T(1.4), s4 = T(1.5), s5 = T(1.6), s6 = T(1.7);
  T s7 = T(1.8), s8 = T(1.9), s9 = T(2.1), s10 = T(2.2), s11 = T(2.3), s12 = T(2.4), s13 = T(2.5);
  asm volatile("" : GABLE_REGISTER(m), GABLE_REGISTER(a));  // hides that m * a is the same in each iteration
  for (std::int64_t i = 0; i < iterations; ++i) {
    s0 = fma_of(m, a, s0), s1 = fma_of(m, a, s1), s2 = fma_of(m, a, s2), s3 = fma_of(m, a, s3);
    s4 = fma_of(m, a, s4), s5 = fma_of(m, a, s5), s6 = fma_of(m, a, s6), s7 = fma_of(m, a, s7);
    s8 = fma_of(m, a, s8), s9 = fma_of(m, a, s9), s10 = fma_of(m, a, s10), s11 = fma_of(m, a, s11);
    s12 = fma_of(m, a, s12), s13 = fma_of(m, a, s13);
    GABLE_KEEP_SCALARS(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13);
  }
}

HWY_NOINLINE void vector_fma_f32(std::int64_t iterations) { fma_chains(hn::ScalableTag<float>(), iterations); }
HWY_NOINLINE void vector_fma_128_f32(std::int64_t iterations) { fma_chains(hn::FixedTag<float, 4>(), iterations); }
HWY_NOINLINE void scalar_fma_f32(std::int64_t iterations) { scalar_fma_chains<float>(iterations); }
HWY_NOINLINE void vector_fma_f64(std::int64_t iterations) { fma_chains(hn::ScalableTag<double>(), iterations); }
HWY_NOINLINE void vector_fma_128_f64(std::int64_t iterations) { fma_chains(hn::FixedTag<double, 2>(), iterations); }
HWY_NOINLINE void scalar_fma_f64(std::int64_t iterations) { scalar_fma_chains<double>(iterations); }
#endif  // GABLE_TARGET_HAS_FMA

template <class T>
HWY_INLINE void scalar_mul_add_chains(std::int64_t iterations) {
  T m = kFactor, a = kAddend;
  T p0 = T(1.1), p1 = T(1.2), p2 = T(1.3), p3 = T(1.4), p4 = T(1.5), p5 = T(1.6), p6 = T(1.7);
  T s0 = T(2.1), s1 = T(2.2), s2 = T(2.3), s3 = T(2.4), s4 = T(2.5), s5 = T(2.6), s6 = T(2.7);
  asm volatile("" : GABLE_REGISTER(m), GABLE_REGISTER(a));
  for (std::int64_t i = 0; i < iterations; ++i) {
    p0 *= m, s0 += a, p1 *= m, s1 += a, p2 *= m, s2 += a, p3 *= m, s3 += a;
    p4 *= m, s4 += a, p5 *= m, s5 += a, p6 *= m, s6 += a;
    GABLE_KEEP_SCALARS(p0, p1, p2, p3, p4, p5, p6, s0, s1, s2, s3, s4, s5, s6);
  }
}

HWY_NOINLINE void vector_mul_add_f32(std::int64_t iterations) { mul_add_chains(hn::ScalableTag<float>(), iterations); }
HWY_NOINLINE void scalar_mul_add_f32(std::int64_t iterations) { scalar_mul_add_chains<float>(iterations); }
HWY_NOINLINE void vector_mul_add_f64(std::int64_t iterations) { mul_add_chains(hn::ScalableTag<double>(), iterations); }
HWY_NOINLINE void scalar_mul_add_f64(std::int64_t iterations) { scalar_mul_add_chains<double>(iterations); }

#if !HWY_ARCH_X86
/// The bytes of a vector of this target.
HWY_NOINLINE int vector_bytes() { return static_cast<int>(hn::Lanes(hn::ScalableTag<float>()) * sizeof(float)); }
#endif

}  // namespace HWY_NAMESPACE
}  // namespace gable::perf
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::perf {
namespace {

using Loop = void (*)(std::int64_t);

/// The loops of one type; a register of 16 bytes holds 16 / sizeof(T) of them.
template <class T>
class LoopList {
 public:
  explicit LoopList(const char* dtype) : dtype_(dtype) {}

  /// `bytes` of operands in one instruction; the loop of T is taken.
  void add(const char* isa, int bytes, bool fma, Loop f32, Loop f64) {
    const int lanes = bytes / static_cast<int>(sizeof(T));
    loops_.push_back({.isa = isa,
                      .dtype = dtype_,
                      .fma = fma,
                      .flop_per_instruction = fma ? 2 * lanes : lanes,
                      .run = sizeof(T) == sizeof(float) ? f32 : f64});
  }
  std::vector<ComputeLoop> take() { return std::move(loops_); }

 private:
  const char* dtype_;
  std::vector<ComputeLoop> loops_;
};

template <class T>
std::vector<ComputeLoop> loops_of(const char* dtype) {
  constexpr int kScalar = sizeof(T);
  LoopList<T> list(dtype);
#if HWY_ARCH_X86
  const auto supported = hwy::SupportedTargets();
#if HWY_TARGETS & HWY_SSE4
  if ((supported & HWY_SSE4) != 0) {
    list.add("scalar", kScalar, false, N_SSE4::scalar_mul_add_f32, N_SSE4::scalar_mul_add_f64);
    list.add("sse4", 16, false, N_SSE4::vector_mul_add_f32, N_SSE4::vector_mul_add_f64);
  }
#endif
#if HWY_TARGETS & HWY_AVX2
  if ((supported & HWY_AVX2) != 0) {
    list.add("scalar", kScalar, true, N_AVX2::scalar_fma_f32, N_AVX2::scalar_fma_f64);
    list.add("sse4", 16, true, N_AVX2::vector_fma_128_f32, N_AVX2::vector_fma_128_f64);
    list.add("avx2", 32, false, N_AVX2::vector_mul_add_f32, N_AVX2::vector_mul_add_f64);
    list.add("avx2", 32, true, N_AVX2::vector_fma_f32, N_AVX2::vector_fma_f64);
  }
#endif
#if HWY_TARGETS & HWY_AVX3
  if ((supported & HWY_AVX3) != 0) {
    list.add("avx512", 64, false, N_AVX3::vector_mul_add_f32, N_AVX3::vector_mul_add_f64);
    list.add("avx512", 64, true, N_AVX3::vector_fma_f32, N_AVX3::vector_fma_f64);
  }
#endif
#else
  const char* isa = HWY_ARCH_ARM ? "neon" : "simd";
  const int vector = HWY_STATIC_DISPATCH(vector_bytes)();
  list.add("scalar", kScalar, false, HWY_STATIC_DISPATCH(scalar_mul_add_f32), HWY_STATIC_DISPATCH(scalar_mul_add_f64));
  list.add("scalar", kScalar, true, HWY_STATIC_DISPATCH(scalar_fma_f32), HWY_STATIC_DISPATCH(scalar_fma_f64));
  list.add(isa, vector, false, HWY_STATIC_DISPATCH(vector_mul_add_f32), HWY_STATIC_DISPATCH(vector_mul_add_f64));
  list.add(isa, vector, true, HWY_STATIC_DISPATCH(vector_fma_f32), HWY_STATIC_DISPATCH(vector_fma_f64));
#endif
  return list.take();
}

}  // namespace

std::string ComputeLoop::name() const { return isa + (fma ? " fma " : " ") + dtype; }

std::vector<ComputeLoop> f32_loops() { return loops_of<float>("f32"); }

std::vector<ComputeLoop> f64_loops() { return loops_of<double>("f64"); }

}  // namespace gable::perf
#endif  // HWY_ONCE
