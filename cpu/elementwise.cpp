// add: memory-bound, so one vector a step and 64 KiB blocks spread over threads.
// Inner step (f32, AVX-512): 2 × 64 B read, 64 B written, 16 FLOP.
#include "cpu/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "cpu/coverage.h"
#include "cpu/parallel.h"
#include "cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

template <Type kType>
void add_block(const void* a_data, const void* b_data, void* y_data, std::int64_t begin, std::int64_t end) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Storage<kType>* a = static_cast<const Storage<kType>*>(a_data);
  const Storage<kType>* b = static_cast<const Storage<kType>*>(b_data);
  Storage<kType>* y = static_cast<Storage<kType>*>(y_data);
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    store_f32_as<kType>(d, hn::Add(load_as_f32<kType>(d, a + i), load_as_f32<kType>(d, b + i)), y + i);
  }
  if (i < end) {
    const int rest = static_cast<int>(end - i);
    const auto sum = hn::Add(load_first_as_f32<kType>(d, a + i, rest), load_first_as_f32<kType>(d, b + i, rest));
    store_first_f32_as<kType>(d, sum, y + i, rest);
  }
}

using AddFunction = void (*)(const void*, const void*, void*, std::int64_t, std::int64_t);

AddFunction add_function(Type type) {
  constexpr std::array<AddFunction, 3> functions = {&add_block<Type::f32>, &add_block<Type::f16>,
                                                    &add_block<Type::bf16>};
  return functions[static_cast<std::size_t>(type)];
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {
namespace {

auto add_function_of(const Target& target, Type type) {
#define GABLE_CPU_CASE(target_id, ns, name) \
  if (target.id == (target_id)) return ns::add_function(type);
  GABLE_CPU_FOR_EACH_TARGET(GABLE_CPU_CASE)
#undef GABLE_CPU_CASE
  return HWY_STATIC_DISPATCH(add_function)(type);
}

}  // namespace

void add(const void* a, const void* b, void* y, std::int64_t count, Type type, const Target& target, int threads) {
  constexpr std::int64_t kBlock = 16384;
  note_path(Path::add, target);
  const auto block = add_function_of(target, type);
  parallel_units(threads, ceil_div(count, kBlock),
                 [&](std::int64_t unit, int) { block(a, b, y, unit * kBlock, std::min(count, (unit + 1) * kBlock)); });
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
