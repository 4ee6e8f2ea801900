// softmax: three passes over the elements of a vector, for its maximum, the sum, and the results. The second and third
// read x from L1 or L2; exp() is computed in both, since 16-bit results could not hold it. Elements that lie together
// fill a vector of the CPU and are reduced at its end; of others, as many columns as lanes are computed side by side.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/ops/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/ops/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <array>
#include <limits>

#include "cpu/common/coverage.h"
#include "cpu/common/parallel.h"
#include "cpu/common/vector-inl.h"
#include "cpu/ops/rest-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

/// exp(x - greatest). What is no number stays so: Highway's exp() makes 0 of it.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_below(D d, V x, V greatest) {
  const V below = hn::Sub(x, greatest);
  return hn::IfThenElse(hn::IsNaN(below), below, hn::Exp(d, below));
}

/// The sum of term(i) for i = 0, step, 2 * step... below `end`. Equal terms round the same way at each step of a chain,
/// so parts of 256 are summed first: a chain then has 256 steps and one for each part.
template <class D, class Term>
HWY_INLINE hn::Vec<D> sum_in_parts(D d, std::int64_t end, std::int64_t step, const Term& term) {
  constexpr std::int64_t kTerms = 256;  // of a part
  auto sum = hn::Zero(d);
  for (std::int64_t i = 0; i < end;) {
    auto part = hn::Zero(d);
    for (const std::int64_t part_end = std::min(end, i + kTerms * step); i < part_end; i += step) {
      part = hn::Add(part, term(i));
    }
    sum = hn::Add(sum, part);
  }
  return sum;
}

/// A vector whose elements lie together.
template <DType kType>
HWY_INLINE void softmax_of_row(const Storage<kType>* x, Storage<kType>* y, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), whole = count / lanes * lanes;
  const int rest = static_cast<int>(count - whole);
  const auto in_rest = hn::FirstN(d, static_cast<std::size_t>(rest));
  auto greatest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::int64_t i = 0; i < whole; i += lanes) greatest = hn::Max(greatest, load_as_f32<kType>(d, x + i));
  if (rest > 0) {
    greatest = hn::Max(greatest, hn::IfThenElse(in_rest, load_first_as_f32<kType>(d, x + whole, rest), greatest));
  }
  greatest = hn::MaxOfLanes(d, greatest);
  auto sum = sum_in_parts(
      d, whole, lanes, [&](std::int64_t i) HWY_ATTR { return exp_below(d, load_as_f32<kType>(d, x + i), greatest); });
  if (rest > 0) {
    const auto last = exp_below(d, load_first_as_f32<kType>(d, x + whole, rest), greatest);
    sum = hn::Add(sum, hn::IfThenElseZero(in_rest, last));
  }
  const auto share = hn::Div(hn::Set(d, 1.0f), hn::SumOfLanes(d, sum));
  for (std::int64_t i = 0; i < count; i += lanes) {
    const int some = i < whole ? 0 : rest;
    store_some<kType>(d, hn::Mul(exp_below(d, load_some<kType>(d, x + i, some), greatest), share), y + i, some);
  }
}

/// As many neighbouring columns as a vector has lanes, or `rest` of them where that is not 0.
template <DType kType>
HWY_INLINE void softmax_of_columns(const Storage<kType>* x, Storage<kType>* y, std::int64_t count, std::int64_t step,
                                   int rest) {
  const hn::ScalableTag<float> d;
  auto greatest = load_some<kType>(d, x, rest);
  for (std::int64_t i = 1; i < count; ++i) greatest = hn::Max(greatest, load_some<kType>(d, x + i * step, rest));
  const auto sum = sum_in_parts(d, count * step, step, [&](std::int64_t i) HWY_ATTR {
    return exp_below(d, load_some<kType>(d, x + i, rest), greatest);
  });
  const auto share = hn::Div(hn::Set(d, 1.0f), sum);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto exponent = exp_below(d, load_some<kType>(d, x + i * step, rest), greatest);
    store_some<kType>(d, hn::Mul(exponent, share), y + i * step, rest);
  }
}

/// Columns [begin, end) of a row; with one column, the row itself.
template <DType kType>
void softmax_part(const SoftmaxProblem& p, const void* x_data, void* y_data, std::int64_t begin, std::int64_t end) {
  const auto* x = static_cast<const Storage<kType>*>(x_data);
  auto* y = static_cast<Storage<kType>*>(y_data);
  if (p.columns == 1) return softmax_of_row<kType>(x, y, p.count);
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  for (std::int64_t i = begin; i < end; i += lanes) {
    const int rest = end - i < lanes ? static_cast<int>(end - i) : 0;
    softmax_of_columns<kType>(x + i, y + i, p.count, p.columns, rest);
  }
}

using SoftmaxFunction = void (*)(const SoftmaxProblem&, const void*, void*, std::int64_t, std::int64_t);

SoftmaxFunction softmax_function(DType type) {
  constexpr std::array<SoftmaxFunction, 3> functions = {&softmax_part<DType::f32>, &softmax_part<DType::f16>,
                                                        &softmax_part<DType::bf16>};
  return functions[static_cast<std::size_t>(type)];
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {
namespace {

constexpr std::int64_t kSoftmaxUnit = 1 << 14;
constexpr std::int64_t kLineColumns = 64;  // whole lines of any type

auto softmax_function_of(const Target& target, DType type) { GABLE_CPU_RETURN_OF(target, softmax_function(type)); }

}  // namespace

void softmax(const SoftmaxProblem& p, const void* x_data, void* y_data, const Target& target, int threads) {
  note_path(p.columns == 1 ? Path::softmax_rows : Path::softmax_columns, target);
  const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
  const char* x = static_cast<const char*>(x_data);
  char* y = static_cast<char*>(y_data);
  const auto function = softmax_function_of(target, p.dtype);
  const std::int64_t wanted = ceil_div(std::max<std::int64_t>(1, kSoftmaxUnit / p.count), kLineColumns) * kLineColumns;
  const std::int64_t columns = std::min(p.columns, wanted);  // of a unit
  const std::int64_t pieces = ceil_div(p.columns, columns);  // of a row
  const std::int64_t rows = pieces > 1 ? 1 : std::max<std::int64_t>(1, kSoftmaxUnit / (p.count * p.columns));
  parallel_units(threads, ceil_div(p.rows, rows) * pieces, [&](std::int64_t unit, int) {
    const std::int64_t first = unit / pieces * rows, begin = unit % pieces * columns;
    for (std::int64_t row = first; row < std::min(p.rows, first + rows); ++row) {
      const std::int64_t at = row * p.count * p.columns * bytes;
      function(p, x + at, y + at, begin, std::min(p.columns, begin + columns));
    }
  });
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
