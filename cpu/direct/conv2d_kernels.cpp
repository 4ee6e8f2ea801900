// Compiles the convolution's kernels once a target and hands out their tables.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/direct/conv2d_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/direct/conv2d_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/direct/stage-inl.h"
#include "cpu/direct/store-inl.h"
#include "cpu/direct/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

Conv2dKernels make_conv2d_kernels() {
  Conv2dKernels kernels{};
  kernels.lanes = static_cast<int>(hn::Lanes(hn::ScalableTag<float>()));
  kernels.max_pixels = kTilePixels;
  kernels.max_pair_pixels = kPairPixels;
  kernels.max_image_pair_pixels = kImagePairPixels;
  fill_tiles<1, kTilePixels, 1, false>(kernels.tile);
  fill_tiles<2, kImagePairPixels, 1, false>(kernels.image_pair);
  fill_tiles<1, kTilePixels, 1, true>(kernels.depthwise);
  fill_tiles<2, kPairPixels, 2, true>(kernels.depthwise_row_pair);
  kernels.stage_nhwc = {&stage_nhwc<DType::f32>, &stage_nhwc<DType::f16>, &stage_nhwc<DType::bf16>};
  kernels.stage_nchw = {&stage_nchw<DType::f32>, &stage_nchw<DType::f16>, &stage_nchw<DType::bf16>};
  kernels.stage_nchw_lanes = {&stage_nchw_lanes<DType::f32>, &stage_nchw_lanes<DType::f16>,
                              &stage_nchw_lanes<DType::bf16>};
  kernels.store_nhwc = {&store_strip<DType::f32, true>, &store_strip<DType::f16, true>,
                        &store_strip<DType::bf16, true>};
  kernels.store_nchw = {&store_strip<DType::f32, false>, &store_strip<DType::f16, false>,
                        &store_strip<DType::bf16, false>};
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

const Conv2dKernels& conv2d_kernels(const Target& target) {
#define GABLE_CPU_CASE(target_id, ns, name) \
  if (target.id == (target_id)) return ns::conv2d_kernels_here();
  GABLE_CPU_FOR_EACH_TARGET(GABLE_CPU_CASE)
#undef GABLE_CPU_CASE
  return HWY_STATIC_DISPATCH(conv2d_kernels_here)();
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
