// The parts of a target's table that conv2d_other_tiles.cpp and conv2d_near_tiles.cpp compile.
#if defined(GABLE_CPU_CONV2D_OTHER_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_CONV2D_OTHER_TILES_INL_H_
#undef GABLE_CPU_CONV2D_OTHER_TILES_INL_H_
#else
#define GABLE_CPU_CONV2D_OTHER_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include "cpu/direct/conv2d_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

/// The narrow register tiles and those of two images.
void fill_other_tiles(Conv2dKernels& kernels);

/// The register tiles of near pixels, and whether this core prefers them.
void fill_near_tiles(Conv2dKernels& kernels);

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
