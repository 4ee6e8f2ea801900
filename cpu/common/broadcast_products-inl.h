// The inner step of a register tile of pixels x two vectors of output lanes: each pixel's input is multiplied by both
// vectors of weights. On AVX-512 every second pixel's products read the input from memory themselves, and those of the
// pixel after it share a broadcast load. That balances instructions against loads: 28 products take 37 instructions
// and 23 loads instead of 44 and 16. It is 1.07 to 1.1 times as fast where another thread shares the core's issue slots
// (Emerald Rapids), and the same where none does. With an index, reading from memory would cost a product a second
// micro-operation, so two pixels share a base address.
#if defined(GABLE_CPU_BROADCAST_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_BROADCAST_PRODUCTS_INL_H_
#undef GABLE_CPU_BROADCAST_PRODUCTS_INL_H_
#else
#define GABLE_CPU_BROADCAST_PRODUCTS_INL_H_
#endif

#include "cpu/common/pixel_pitch-inl.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

/// Whether tiles of this many vectors use add_broadcast_products().
constexpr bool has_broadcast_products(int vectors) { return HWY_TARGET == HWY_AVX3 && vectors == 2; }

/// Pixels of such a tile that share a base address.
constexpr int base_pixels(int vectors) { return has_broadcast_products(vectors) ? 2 : kBasePixels; }

/// sum0 += *x * w0, sum1 += *x * w1. With kFromMemory each product reads x from memory, else a register keeps it. A
/// single asm, since gcc would move sums between registers.
template <bool kFromMemory, class D, class V = hn::Vec<D>>
HWY_INLINE void add_broadcast_products([[maybe_unused]] D d, const float* x, V w0, V w1, V& sum0, V& sum1) {
#if HWY_TARGET == HWY_AVX3 && defined(__GNUC__)
  static_assert(sizeof(V) == 64);
  auto first = sum0.raw, second = sum1.raw;
  if constexpr (kFromMemory) {
    asm("vfmadd231ps %4%{1to16%}, %2, %0\n\tvfmadd231ps %4%{1to16%}, %3, %1"
        : "+&v"(first), "+v"(second)
        : "v"(w0.raw), "v"(w1.raw), "m"(*x));
  } else {
    decltype(first) input;
    asm("vbroadcastss %5, %2\n\tvfmadd231ps %3, %2, %0\n\tvfmadd231ps %4, %2, %1"
        : "+&v"(first), "+&v"(second), "=&v"(input)
        : "v"(w0.raw), "v"(w1.raw), "m"(*x));
  }
  sum0.raw = first;
  sum1.raw = second;
#else
  const V input = hn::Set(d, *x);
  sum0 = hn::MulAdd(input, w0, sum0);
  sum1 = hn::MulAdd(input, w1, sum1);
#endif
}

/// Pixel p of a tile whose pixels share base addresses by base_pixels(2).
template <class D, class V = hn::Vec<D>>
HWY_INLINE void add_products_of_pixel(D d, int p, const float* x, const V (&weights)[2], V (&sums)[2]) {
  if (p % base_pixels(2) == 0) {
    add_broadcast_products<true>(d, x, weights[0], weights[1], sums[0], sums[1]);
  } else {
    add_broadcast_products<false>(d, x, weights[0], weights[1], sums[0], sums[1]);
  }
}

/// pointer += kFloats, in its register. gcc would add to a copy of the pointer and move it back in every step.
template <int kFloats>
HWY_INLINE void move_by(const float*& pointer) {
#if HWY_ARCH_X86_64 && defined(__GNUC__)
  asm("addq %1, %0" : "+r"(pointer) : "n"(kFloats * sizeof(float)) : "cc");
#else
  pointer += kFloats;
  keep_apart(pointer);
#endif
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_BROADCAST_PRODUCTS_INL_H_
