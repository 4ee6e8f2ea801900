// add: memory-bound, so one vector a step and blocks of 64 KiB, or 4 MiB of memory, spread over threads.
// Inner step (f32, AVX-512): 2 × 64 B read, 64 B written, 16 FLOP. A result beyond the last level takes
// non-temporal stores, which save the read of its lines: 3 bytes are moved instead of 4.
//
// In tiles, add shows the costs of an accelerator with 128 partitions, where one instruction takes a tile: row_chunk
// partitions with free_dim elements each. Here row_chunk is lanes of vectors (128 f32 are 8 AVX-512 vectors; fewer than
// a vector are a masked one), free_dim is steps one after another, and a tile is the unit of work of a thread. Few
// lanes leave vectors partly empty, few steps make units too small, and many steps leave threads without work.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/ops/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/ops/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "cpu/common/cache.h"
#include "cpu/common/coverage.h"
#include "cpu/common/parallel.h"
#include "cpu/common/stream-inl.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

template <bool kRelu, class D, class V = hn::Vec<D>>
HWY_INLINE V sum_of(D d, V a, V b) {
  const V sum = hn::Add(a, b);
  return kRelu ? relu(d, sum) : sum;
}

/// With kStream, y + begin is aligned to vectors.
template <DType kType, bool kRelu, bool kStream>
void add_block(const void* a_data, const void* b_data, void* y_data, std::int64_t begin, std::int64_t end) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Storage<kType>* a = static_cast<const Storage<kType>*>(a_data);
  const Storage<kType>* b = static_cast<const Storage<kType>*>(b_data);
  Storage<kType>* y = static_cast<Storage<kType>*>(y_data);
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    const auto sum = sum_of<kRelu>(d, load_as_f32<kType>(d, a + i), load_as_f32<kType>(d, b + i));
    if constexpr (kStream) {
      stream_f32_as<kType>(d, sum, y + i);
    } else {
      store_f32_as<kType>(d, sum, y + i);
    }
  }
  if (i < end) {
    const int rest = static_cast<int>(end - i);
    const auto sum =
        sum_of<kRelu>(d, load_first_as_f32<kType>(d, a + i, rest), load_first_as_f32<kType>(d, b + i, rest));
    store_first_f32_as<kType>(d, sum, y + i, rest);
  }
  if constexpr (kStream) hwy::FlushStream();
}

/// The same, but each step ends after `lanes` elements.
template <DType kType, bool kRelu>
void add_tile(const void* a, const void* b, void* y, std::int64_t begin, std::int64_t end, std::int64_t lanes) {
  for (std::int64_t i = begin; i < end; i += lanes)
    add_block<kType, kRelu, false>(a, b, y, i, std::min(i + lanes, end));
}

using AddTileFunction = void (*)(const void*, const void*, void*, std::int64_t, std::int64_t, std::int64_t);

template <bool kRelu>
AddTileFunction add_tile_of(DType type) {
  constexpr std::array<AddTileFunction, 3> functions = {&add_tile<DType::f32, kRelu>, &add_tile<DType::f16, kRelu>,
                                                        &add_tile<DType::bf16, kRelu>};
  return functions[static_cast<std::size_t>(type)];
}

AddTileFunction add_tile_function(DType type, bool with_relu) {
  return with_relu ? add_tile_of<true>(type) : add_tile_of<false>(type);
}

using AddFunction = void (*)(const void*, const void*, void*, std::int64_t, std::int64_t);

template <bool kRelu, bool kStream>
AddFunction add_block_of(DType type) {
  constexpr std::array<AddFunction, 3> functions = {&add_block<DType::f32, kRelu, kStream>,
                                                    &add_block<DType::f16, kRelu, kStream>,
                                                    &add_block<DType::bf16, kRelu, kStream>};
  return functions[static_cast<std::size_t>(type)];
}

AddFunction add_function(DType type, bool with_relu, bool non_temporal) {
  if (with_relu) return non_temporal ? add_block_of<true, true>(type) : add_block_of<true, false>(type);
  return non_temporal ? add_block_of<false, true>(type) : add_block_of<false, false>(type);
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {
namespace {

auto add_function_of(const Target& target, const Addition& addition, bool non_temporal) {
  GABLE_CPU_RETURN_OF(target, add_function(addition.type, addition.activation == Activation::relu, non_temporal));
}

auto add_tile_function_of(const Target& target, const Addition& addition) {
  GABLE_CPU_RETURN_OF(target, add_tile_function(addition.type, addition.activation == Activation::relu));
}

}  // namespace

void add(const Addition& addition, const void* a, const void* b, void* y, const Target& target, int threads) {
  note_path(Path::add, target);
  const std::int64_t count = addition.count;
  const bool non_temporal = beyond_last_level(count * static_cast<std::int64_t>(size_of(addition.type))) &&
                            reinterpret_cast<std::uintptr_t>(y) % 64 == 0;
  if (non_temporal) note_path(Path::add_non_temporal, target);
  const std::int64_t elements = non_temporal ? 1 << 20 : 1 << 14;
  const auto block = add_function_of(target, addition, non_temporal);
  parallel_units(threads, ceil_div(count, elements), [&](std::int64_t unit, int) {
    block(a, b, y, unit * elements, std::min(count, (unit + 1) * elements));
  });
}

void add_in_tiles(const Addition& addition, const AddTile& tile, const void* a, const void* b, void* y,
                  const Target& target, int threads) {
  note_path(Path::add_in_tiles, target);
  const std::int64_t count = addition.count;
  const auto add_one = add_tile_function_of(target, addition);
  const std::int64_t elements = std::min(count, tile.lanes * std::min(tile.steps, ceil_div(count, tile.lanes)));
  parallel_units(threads, ceil_div(count, elements), [&](std::int64_t unit, int) {
    add_one(a, b, y, unit * elements, std::min(count, (unit + 1) * elements), tile.lanes);
  });
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
