// The part of a target's table that depthwise_row_tile.cpp compiles.
#if defined(GABLE_CPU_DEPTHWISE_ROW_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_DEPTHWISE_ROW_TABLE_INL_H_
#undef GABLE_CPU_DEPTHWISE_ROW_TABLE_INL_H_
#else
#define GABLE_CPU_DEPTHWISE_ROW_TABLE_INL_H_
#endif

#include <hwy/highway.h>

#include "cpu/depthwise/depthwise_tile.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

/// The row tiles (depthwise_row_tile-inl.h).
void fill_row_tiles(DepthwiseTiles& made);

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
