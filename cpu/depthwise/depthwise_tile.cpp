// The table of the register tiles (depthwise_tile.h), compiled once for each target. depthwise_row_tile.cpp compiles
// the row tiles, since one file would take longer than most others of a build with many processors.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/depthwise/depthwise_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/depthwise/depthwise_tile.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/common/core.h"
#include "cpu/depthwise/depthwise_row_table-inl.h"
#include "cpu/depthwise/depthwise_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

template <DType kStoredType, int kStride, int kOutputs = kMaxTileOutputs>
void fill_narrowing(DepthwiseTiles& made) {
  made.narrowing[static_cast<int>(kStoredType)][kStride - 1][kOutputs - 1] =
      &DepthwiseTile<DType::f32, kOutputs, kStride, false, kStoredType>::run;
  if constexpr (kOutputs > 1) fill_narrowing<kStoredType, kStride, kOutputs - 1>(made);
}
template <DType kStoredType>
void fill_narrowing_strides(DepthwiseTiles& made) {
  fill_narrowing<kStoredType, 1>(made);
  fill_narrowing<kStoredType, 2>(made);
}

template <DType kType, int kStride, bool kShifts, int kOutputs = kMaxTileOutputs>
void fill_tiles(DepthwiseTiles& made) {
  made.tiles[static_cast<int>(kType)][kStride - 1][kOutputs - 1] =
      &DepthwiseTile<kType, kOutputs, kStride, kShifts>::run;
  if constexpr (kOutputs > 1) fill_tiles<kType, kStride, kShifts, kOutputs - 1>(made);
}
template <DType kType, bool kShifts = false>
void fill_strides(DepthwiseTiles& made) {
  fill_tiles<kType, 1, kShifts>(made);
  fill_tiles<kType, 2, kShifts>(made);
}

const DepthwiseTiles& depthwise_tiles_here() {
  static const DepthwiseTiles kernels = [] {
    DepthwiseTiles made{};
    made.lanes = static_cast<int>(hn::Lanes(hn::ScalableTag<float>()));
    fill_strides<DType::f32>(made);
    fill_strides<DType::f16>(made);
    fill_strides<DType::bf16>(made);
    fill_narrowing_strides<DType::f32>(made);
    fill_narrowing_strides<DType::f16>(made);
    fill_narrowing_strides<DType::bf16>(made);
    fill_row_tiles(made);
    made.pairs = takes_pairs(DType::bf16);
#if HWY_TARGET == HWY_AVX3
    made.parts = true;
    if (widens_by_shifts()) fill_strides<DType::bf16, true>(made);
#endif
    return made;
  }();
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const DepthwiseTiles& depthwise_tiles(const Target& target) { GABLE_CPU_RETURN_OF(target, depthwise_tiles_here()); }

}  // namespace gable::cpu
#endif  // HWY_ONCE
