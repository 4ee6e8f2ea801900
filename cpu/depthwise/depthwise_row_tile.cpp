// Compiles the row tiles once for each target, for the table of depthwise_tile.cpp.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/depthwise/depthwise_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/depthwise/depthwise_row_tile.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/common/core.h"
#include "cpu/depthwise/depthwise_row_table-inl.h"
#include "cpu/depthwise/depthwise_row_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
template <DType kType, int kStride, bool kShifts, int kOutputs>
void fill_outputs(DepthwiseTiles& made) {
  made.row_tiles[static_cast<int>(kType)][kStride - 1][kOutputs - 1] =
      &DepthwiseRowTile<kType, kOutputs, kStride, kShifts>::run;
  if constexpr (kOutputs > 1) fill_outputs<kType, kStride, kShifts, kOutputs - 1>(made);
}
template <DType kType, bool kShifts = false>
void fill_row_strides(DepthwiseTiles& made) {
  fill_outputs<kType, 1, kShifts, kShortRowOutputs>(made);
  fill_outputs<kType, 2, kShifts, kLongRowOutputs>(made);
  made.long_row_outputs = kLongRowOutputs;
}
#else
template <DType kType, bool kShifts = false>
void fill_row_strides(DepthwiseTiles&) {}
#endif

void fill_row_tiles(DepthwiseTiles& made) {
  fill_row_strides<DType::f32>(made);
  fill_row_strides<DType::f16>(made);
  fill_row_strides<DType::bf16>(made);
#if HWY_TARGET == HWY_AVX3
  if (widens_by_shifts()) fill_row_strides<DType::bf16, true>(made);
#endif
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
