// activate: blocks of 64 KiB, or 4 MiB of memory, spread over threads as those of add (elementwise.cpp). The cheap
// functions are bound by memory; exp() and tanh() cost 20 to 30 instructions a vector, which hide behind the traffic of
// tensors that lie in memory.
//
// sigmoid and silu divide by 1 + exp(-x), and gelu takes erfc() for negative x, so their tails do not cancel. The
// polynomial of erfc() errs by 1.5e-7.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/ops/activate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/ops/activate.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <array>

#include "cpu/common/cache.h"
#include "cpu/common/coverage.h"
#include "cpu/common/parallel.h"
#include "cpu/common/stream-inl.h"
#include "cpu/common/tanh-inl.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

template <class D, class V = hn::Vec<D>>
HWY_INLINE V clamp_f32(D d, V x, float low, float high) {
  return hn::Min(hn::Max(x, hn::Set(d, low)), hn::Set(d, high));
}

/// 1 + exp(-x). Beyond 104, where Highway's exp() ends, the result is infinite anyway.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V one_plus_exp_of_minus(D d, V x) {
  return hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 104.0f))));
}

/// erfc(z) of z >= 0 within an absolute error of 1.5e-7: Abramowitz and Stegun, 7.1.26.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfc_f32(D d, V z) {
  const V t = hn::Div(hn::Set(d, 1.0f), hn::MulAdd(z, hn::Set(d, 0.3275911f), hn::Set(d, 1.0f)));
  V p = hn::MulAdd(t, hn::Set(d, 1.061405429f), hn::Set(d, -1.453152027f));
  p = hn::MulAdd(t, p, hn::Set(d, 1.421413741f));
  p = hn::MulAdd(t, p, hn::Set(d, -0.284496736f));
  p = hn::MulAdd(t, p, hn::Set(d, 0.254829592f));
  return hn::Mul(hn::Mul(t, p), hn::Exp(d, hn::Neg(hn::Mul(z, z))));
}

/// Of numbers; a NaN may become anything.
template <Function kFunction, class D, class V = hn::Vec<D>>
HWY_INLINE V value_of(D d, V x, [[maybe_unused]] float slope) {
  if constexpr (kFunction == Function::relu) return hn::Max(x, hn::Zero(d));
  if constexpr (kFunction == Function::relu6) return clamp_f32(d, x, 0.0f, 6.0f);
  if constexpr (kFunction == Function::tanh) return tanh_f32(d, x);
  if constexpr (kFunction == Function::sigmoid) return hn::Div(hn::Set(d, 1.0f), one_plus_exp_of_minus(d, x));
  if constexpr (kFunction == Function::silu) return hn::Div(x, one_plus_exp_of_minus(d, x));
  if constexpr (kFunction == Function::hard_sigmoid || kFunction == Function::hard_swish) {
    const V part = hn::Mul(clamp_f32(d, hn::Add(x, hn::Set(d, 3.0f)), 0.0f, 6.0f), hn::Set(d, 1.0f / 6));
    return kFunction == Function::hard_swish ? hn::Mul(x, part) : part;
  }
  if constexpr (kFunction == Function::leaky_relu) {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(x, hn::Set(d, slope)), x);
  }
  if constexpr (kFunction == Function::gelu) {
    const V half = hn::Mul(hn::Set(d, 0.5f), erfc_f32(d, hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678f))));
    return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), half, hn::Sub(hn::Set(d, 1.0f), half)));
  }
}

template <Function kFunction, class D, class V = hn::Vec<D>>
HWY_INLINE V activated(D d, V x, float slope) {
  return hn::IfThenElse(hn::IsNaN(x), x, value_of<kFunction>(d, x, slope));
}

/// With kStream, y + begin is aligned to vectors.
template <Function kFunction, DType kType, bool kStream>
void activate_block(const void* x_data, void* y_data, std::int64_t begin, std::int64_t end, float slope) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Storage<kType>* x = static_cast<const Storage<kType>*>(x_data);
  Storage<kType>* y = static_cast<Storage<kType>*>(y_data);
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    const auto value = activated<kFunction>(d, load_as_f32<kType>(d, x + i), slope);
    if constexpr (kStream) {
      stream_f32_as<kType>(d, value, y + i);
    } else {
      store_f32_as<kType>(d, value, y + i);
    }
  }
  if (i < end) {
    const int rest = static_cast<int>(end - i);
    store_first_f32_as<kType>(d, activated<kFunction>(d, load_first_as_f32<kType>(d, x + i, rest), slope), y + i, rest);
  }
  if constexpr (kStream) hwy::FlushStream();
}

using ActivateFunction = void (*)(const void*, void*, std::int64_t, std::int64_t, float);

template <DType kType, bool kStream>
ActivateFunction activate_block_of(Function function) {
  switch (function) {
    case Function::relu:
      return &activate_block<Function::relu, kType, kStream>;
    case Function::relu6:
      return &activate_block<Function::relu6, kType, kStream>;
    case Function::tanh:
      return &activate_block<Function::tanh, kType, kStream>;
    case Function::sigmoid:
      return &activate_block<Function::sigmoid, kType, kStream>;
    case Function::hard_sigmoid:
      return &activate_block<Function::hard_sigmoid, kType, kStream>;
    case Function::silu:
      return &activate_block<Function::silu, kType, kStream>;
    case Function::hard_swish:
      return &activate_block<Function::hard_swish, kType, kStream>;
    case Function::leaky_relu:
      return &activate_block<Function::leaky_relu, kType, kStream>;
    case Function::gelu:
      break;
  }
  return &activate_block<Function::gelu, kType, kStream>;
}

template <bool kStream>
ActivateFunction activate_block_of(DType type, Function function) {
  if (type == DType::f16) return activate_block_of<DType::f16, kStream>(function);
  if (type == DType::bf16) return activate_block_of<DType::bf16, kStream>(function);
  return activate_block_of<DType::f32, kStream>(function);
}

ActivateFunction activate_function(DType type, Function function, bool non_temporal) {
  return non_temporal ? activate_block_of<true>(type, function) : activate_block_of<false>(type, function);
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {
namespace {

auto activate_function_of(const Target& target, const ActivateProblem& problem, bool non_temporal) {
  GABLE_CPU_RETURN_OF(target, activate_function(problem.dtype, problem.function, non_temporal));
}

}  // namespace

void activate(const ActivateProblem& problem, const void* x, void* y, const Target& target, int threads) {
  const std::int64_t count = problem.count;
  // In place, the lines are in the caches when they are written.
  const bool non_temporal = x != y && beyond_last_level(count * static_cast<std::int64_t>(size_of(problem.dtype))) &&
                            reinterpret_cast<std::uintptr_t>(y) % 64 == 0;
  note_path(non_temporal ? Path::activate_non_temporal : Path::activate, target);
  const std::int64_t elements = non_temporal ? 1 << 20 : 1 << 14;
  const auto block = activate_function_of(target, problem, non_temporal);
  parallel_units(threads, ceil_div(count, elements), [&](std::int64_t unit, int) {
    block(x, y, unit * elements, std::min(count, (unit + 1) * elements), problem.slope);
  });
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
