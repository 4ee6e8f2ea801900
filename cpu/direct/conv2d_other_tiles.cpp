// Compiles the narrow register tiles and those of two images once a target, for the tables of conv2d_kernels.cpp.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/direct/conv2d_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/direct/conv2d_other_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/direct/conv2d_other_tiles-inl.h"
#include "cpu/direct/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

void fill_other_tiles(Conv2dKernels& kernels) {
  kernels.max_narrow_pixels = kNarrowTilePixels;
  fill_narrow_tiles<kNarrowTilePixels>(kernels.tile);
  kernels.max_image_pair_pixels = kImagePairPixels;
  fill_tiles<2, kImagePairPixels>(kernels.image_pair);
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
