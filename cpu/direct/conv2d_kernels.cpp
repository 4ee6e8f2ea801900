// Compiles the convolution's register tiles once a target and hands out their tables. conv2d_other_tiles.cpp and
// conv2d_near_tiles.cpp compile some of them, since one file would take longer than all others of a build with many
// processors.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/direct/conv2d_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/direct/conv2d_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/common/core.h"
#include "cpu/direct/conv2d_other_tiles-inl.h"
#include "cpu/direct/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

Conv2dKernels make_conv2d_kernels() {
  Conv2dKernels kernels{};
  kernels.lanes = static_cast<int>(hn::Lanes(hn::ScalableTag<float>()));
  kernels.least_lanes = HWY_TARGET == HWY_AVX3 && splits_512_bits() ? kernels.lanes / 2 : kernels.lanes;
  kernels.max_pixels = kTilePixels;
  fill_tiles<1, kTilePixels>(kernels.tile);
  fill_other_tiles(kernels);
  fill_near_tiles(kernels);
  return kernels;
}

const Conv2dKernels& conv2d_kernels_here() {
  static const Conv2dKernels kernels = make_conv2d_kernels();
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const Conv2dKernels& conv2d_kernels(const Target& target) { GABLE_CPU_RETURN_OF(target, conv2d_kernels_here()); }

}  // namespace gable::cpu
#endif  // HWY_ONCE
