// Compiles the register tiles of near pixels once a target, for the tables of conv2d_kernels.cpp.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/direct/conv2d_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/direct/conv2d_near_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/common/core.h"
#include "cpu/direct/conv2d_other_tiles-inl.h"
#include "cpu/direct/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

void fill_near_tiles([[maybe_unused]] Conv2dKernels& kernels) {
#if HWY_TARGET == HWY_AVX3
  kernels.prefers_near_pixels = core_kind(kernels.lanes) == CoreKind::amx;
  fill_near_tiles<1, kNarrowTilePixels>(kernels.near_tile);
  fill_near_tiles<2, kMaxNearPairPixels>(kernels.near_pair);
#endif
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
