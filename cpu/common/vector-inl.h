// Small vector functions that Highway 1.0 lacks or leaves open: f16/bf16 <-> f32 with round to nearest even on every
// target, NaN-keeping maximum and relu, loads and stores of part of a vector that touch no byte beyond it, and a
// transpose of f32 blocks.
#if defined(GABLE_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_VECTOR_INL_H_
#undef GABLE_CPU_VECTOR_INL_H_
#else
#define GABLE_CPU_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include <gable/problem.h>

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The C++ type that stores a Type in memory.
template <DType kType>
struct StorageOf {
  using type = std::uint16_t;
};
template <>
struct StorageOf<DType::f32> {
  using type = float;
};
template <DType kType>
using Storage = typename StorageOf<kType>::type;

/// max(x, least), and NaN where x is NaN; `least` is no NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_least(D, V least, V x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
  return hn::Max(least, x);  // x86's maximum is its second operand where either is NaN
#else
  return hn::IfThenElse(hn::Lt(x, least), least, x);
#endif
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V relu(D d, V x) {
  return at_least(d, hn::Zero(d), x);
}

/// Hides from gcc how a pointer was computed. gcc would replace several pointers that advance together by one pointer
/// and offsets, and reload the offsets from the stack in every step.
HWY_INLINE void keep_apart([[maybe_unused]] const float*& pointer) {
#if defined(__GNUC__)
  asm("" : "+r"(pointer));
#endif
}
/// The same for a distance. gcc would keep its multiples and sums in registers.
HWY_INLINE void keep_apart([[maybe_unused]] std::int64_t& distance) {
#if defined(__GNUC__)
  asm("" : "+r"(distance));
#endif
}

/// sum + a * b. With 16 registers, gcc turns some of a tile's products into the instruction that overwrites a factor,
/// and then moves accumulators between registers: 6 x 2 tiles ran at 0.91 of the FMA's ceiling. Here the sum stays in
/// its register.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V add_product(D, V a, V b, V sum) {
#if HWY_TARGET == HWY_AVX2 && defined(__GNUC__)
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum.raw) : "x"(a.raw), "x"(b.raw));
  return sum;
#else
  return hn::MulAdd(a, b, sum);
#endif
}

/// The same in a tile of this many accumulators. With 32 registers gcc does this to tiles of more than 16 accumulators,
/// which it moves to the stack and back. With fewer, gcc may read a factor from memory.
template <int kAccumulators, class D, class V = hn::Vec<D>>
HWY_INLINE V add_product_of_tile(D d, V a, V b, V sum) {
#if HWY_TARGET == HWY_AVX3 && defined(__GNUC__)
  if constexpr (kAccumulators > 16) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
#endif
  return add_product(d, a, b, sum);
}

/// sum + *a * b: AVX-512 can broadcast a factor from memory in the multiplying instruction. Only for factors of a
/// single product: with two products, these loads take all of L1's load slots. In the one run that was made on a Xeon,
/// 3x3 layers then fell to 0.83 to 0.92 of their speed.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V add_broadcast_product(D d, const float* a, V b, V sum) {
#if HWY_TARGET == HWY_AVX3 && defined(__GNUC__)
  (void)d;
  if constexpr (sizeof(b.raw) == 64) {
    asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "m"(*a));
  } else {
    asm("vfmadd231ps %2%{1to8%}, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "m"(*a));
  }
  return sum;
#else
  return add_product(d, hn::Set(d, *a), b, sum);
#endif
}

/// Fetches a line that will be stored to: a store whose line is not in L1 delays all later stores.
HWY_INLINE void prefetch_for_writing(const float* line) {
#if HWY_ARCH_X86
  asm volatile("prefetchw %0" : : "m"(*line));
#else
  __builtin_prefetch(line, 1);
#endif
}

/// The larger value; NaN when either is NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V nan_max(D, V a, V b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Ge(a, b), a, b));
}

/// Copies fewer than kLess elements, a power of two, in moves of fixed sizes: memcpy() of a few bytes is a call.
template <int kLess, class T>
HWY_INLINE void copy_fewer(const T* x, T* y, int count) {
  if constexpr (kLess > 1) {
    constexpr int kHalf = kLess / 2;
    if ((count & kHalf) != 0) {
      std::memcpy(y, x, kHalf * sizeof(T));
      x += kHalf;
      y += kHalf;
    }
    copy_fewer<kHalf>(x, y, count);
  }
}

/// Stores the first `count` lanes, at least one, and touches nothing after them.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void store_first(D d, V value, hn::TFromD<D>* y, int count) {
#if HWY_TARGET == HWY_AVX3
  hn::BlendedStore(value, hn::FirstN(d, static_cast<std::size_t>(count)), d, y);
#else
  if (count >= static_cast<int>(hn::Lanes(d))) return hn::StoreU(value, d, y);
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::Store(value, d, lanes);
  copy_fewer<static_cast<int>(hn::MaxLanes(D()))>(lanes, y, count);
#endif
}

/// Loads the first `count` lanes, the others are zero; touches nothing after them.
template <class D>
HWY_INLINE hn::Vec<D> load_first(D d, const hn::TFromD<D>* x, int count) {
#if HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, x);
#else
#if HWY_TARGET == HWY_AVX2
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, x);
  }
#endif
  if (count >= static_cast<int>(hn::Lanes(d))) return hn::LoadU(d, x);
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())] = {};
  copy_fewer<static_cast<int>(hn::MaxLanes(D()))>(x, lanes, count);
  return hn::Load(d, lanes);
#endif
}

/// 16-bit patterns, one a lane of D.
template <class D>
using HalfTag = hn::Rebind<std::uint16_t, D>;

// AVX2 and AVX-512 convert f16 in hardware (F16C); elsewhere integer arithmetic does, as in half.h.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
template <class D, class VH = hn::Vec<HalfTag<D>>>
HWY_INLINE hn::Vec<D> f16_to_f32(D d, VH half) {
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<HalfTag<D>> f32_to_f16(D, V value) {
  return hn::BitCast(HalfTag<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
}
#else
template <class D, class VH = hn::Vec<HalfTag<D>>>
HWY_INLINE hn::Vec<D> f16_to_f32(D d, VH half) {
  const hn::RebindToUnsigned<D> du;
  const auto wide = hn::PromoteTo(du, half);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7fffu)));
  const auto scaled = hn::BitCast(du, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
  const auto special = hn::Or(magnitude, hn::Set(du, 0x7f800000u));
  const hn::RebindToSigned<D> di;
  const auto is_special = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, (31 << 23) - 1));
  const auto result = hn::IfThenElse(hn::RebindMask(du, is_special), special, scaled);
  return hn::BitCast(d, hn::Or(result, sign));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<HalfTag<D>> f32_to_f16(D d, V value) {
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, value);
  const auto sign =
      hn::And(hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(hn::RebindToUnsigned<D>(), value))), hn::Set(di, 0x8000));
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
  const auto normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, hn::Set(di, 0xfff - (112 << 23)))));
  const auto small =
      hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f))), hn::Set(di, 0x3f000000));
  const auto nan = hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 0x3ff)), hn::Set(di, 0x7e00));
  auto half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), small, normal);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x477fffff)), hn::Set(di, 0x7c00), half);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7f800000)), nan, half);
  return hn::DemoteTo(HalfTag<D>(), hn::Or(half, sign));
}
#endif

template <class D, class VH = hn::Vec<HalfTag<D>>>
HWY_INLINE hn::Vec<D> bf16_to_f32(D d, VH half) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), half)));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<HalfTag<D>> f32_to_bf16(D, V value) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  const auto half = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
  return hn::DemoteTo(HalfTag<D>(), hn::BitCast(di, half));
}

template <DType kType, class D>
HWY_INLINE hn::Vec<D> to_f32(D d, hn::Vec<HalfTag<D>> half) {
  if constexpr (kType == DType::f16) {
    return f16_to_f32(d, half);
  } else {
    return bf16_to_f32(d, half);
  }
}
template <DType kType, class D>
HWY_INLINE hn::Vec<HalfTag<D>> from_f32(D d, hn::Vec<D> value) {
  if constexpr (kType == DType::f16) {
    return f32_to_f16(d, value);
  } else {
    return f32_to_bf16(d, value);
  }
}

/// One vector of stored elements as f32.
template <DType kType, class D>
HWY_INLINE hn::Vec<D> load_as_f32(D d, const Storage<kType>* x) {
  if constexpr (kType == DType::f32) {
    return hn::LoadU(d, x);
  } else {
    return to_f32<kType>(d, hn::LoadU(HalfTag<D>(), x));
  }
}
template <DType kType, class D>
HWY_INLINE hn::Vec<D> load_first_as_f32(D d, const Storage<kType>* x, int count) {
  if constexpr (kType == DType::f32) {
    return load_first(d, x, count);
  } else {
    return to_f32<kType>(d, load_first(HalfTag<D>(), x, count));
  }
}
template <DType kType, class D>
HWY_INLINE void store_f32_as(D d, hn::Vec<D> value, Storage<kType>* y) {
  if constexpr (kType == DType::f32) {
    hn::StoreU(value, d, y);
  } else {
    hn::StoreU(from_f32<kType>(d, value), HalfTag<D>(), y);
  }
}
template <DType kType, class D>
HWY_INLINE void store_first_f32_as(D d, hn::Vec<D> value, Storage<kType>* y, int count) {
  if constexpr (kType == DType::f32) {
    store_first(d, value, y, count);
  } else {
    store_first(HalfTag<D>(), from_f32<kType>(d, value), y, count);
  }
}

/// y[i] = x[i] as f32, for i in [0, count).
template <DType kType>
HWY_INLINE void convert_to_f32(const Storage<kType>* HWY_RESTRICT x, float* HWY_RESTRICT y, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_as_f32<kType>(d, x + i), d, y + i);
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    store_first(d, load_first_as_f32<kType>(d, x + i, rest), y + i, rest);
  }
}

/// y[i] = x[i] rounded to the storage type, for i in [0, count).
template <DType kType>
HWY_INLINE void convert_from_f32(const float* HWY_RESTRICT x, Storage<kType>* HWY_RESTRICT y, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store_f32_as<kType>(d, hn::LoadU(d, x + i), y + i);
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    store_first_f32_as<kType>(d, load_first(d, x + i, rest), y + i, rest);
  }
}

/// y[c*y_stride + r] = x[r*x_stride + c] for 32-bit elements.
template <class T>
HWY_INLINE void transpose_32bit(const T* HWY_RESTRICT x, std::int64_t x_stride, T* HWY_RESTRICT y,
                                std::int64_t y_stride, std::int64_t rows, std::int64_t columns) {
  std::int64_t row = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<T, 4> d;
  const hn::Repartition<std::uint64_t, decltype(d)> dd;
  for (; row + 4 <= rows; row += 4) {
    const T* x0 = x + row * x_stride;
    std::int64_t column = 0;
    for (; column + 4 <= columns; column += 4) {
      const auto r0 = hn::LoadU(d, x0 + column);
      const auto r1 = hn::LoadU(d, x0 + column + x_stride);
      const auto r2 = hn::LoadU(d, x0 + column + 2 * x_stride);
      const auto r3 = hn::LoadU(d, x0 + column + 3 * x_stride);
      const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
      const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
      const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
      T* y0 = y + column * y_stride + row;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, y0);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, y0 + y_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), d, y0 + 2 * y_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), d, y0 + 3 * y_stride);
    }
    for (; column < columns; ++column) {
      for (std::int64_t i = 0; i < 4; ++i) y[column * y_stride + row + i] = x0[i * x_stride + column];
    }
  }
#endif
  for (; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) y[column * y_stride + row] = x[row * x_stride + column];
  }
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_VECTOR_INL_H_
