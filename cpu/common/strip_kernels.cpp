// Compiles the kernels of strips.h once a target and hands out their tables.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/common/strips.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/common/strip_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/common/stage-inl.h"
#include "cpu/common/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

const StripKernels& strip_kernels_here() {
  static const StripKernels kernels = {
      {&stage_nhwc<DType::f32>, &stage_nhwc<DType::f16>, &stage_nhwc<DType::bf16>},
      {&stage_nchw<DType::f32>, &stage_nchw<DType::f16>, &stage_nchw<DType::bf16>},
      {&stage_nchw_lanes<DType::f32>, &stage_nchw_lanes<DType::f16>, &stage_nchw_lanes<DType::bf16>},
      {&store_strip<DType::f32, true>, &store_strip<DType::f16, true>, &store_strip<DType::bf16, true>},
      {&store_strip<DType::f32, false>, &store_strip<DType::f16, false>, &store_strip<DType::bf16, false>}};
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const StripKernels& strip_kernels(const Target& target) { GABLE_CPU_RETURN_OF(target, strip_kernels_here()); }

}  // namespace gable::cpu
#endif  // HWY_ONCE
