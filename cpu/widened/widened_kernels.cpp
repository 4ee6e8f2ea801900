// Conversions between f32 and 16-bit storage: one or two instructions for two vectors. L2 bounds them.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/widened/widened_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/widened/widened_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

template <DType kType>
void widen(const void* x, float* y, std::int64_t count) {
  convert_to_f32<kType>(static_cast<const Storage<kType>*>(x), y, count);
}
template <DType kType>
void narrow(const float* x, void* y, std::int64_t count) {
  convert_from_f32<kType>(x, static_cast<Storage<kType>*>(y), count);
}

const WidenedKernels& widened_kernels_here() {
  static const WidenedKernels kernels{.widen_f16 = &widen<DType::f16>,
                                      .widen_bf16 = &widen<DType::bf16>,
                                      .narrow_f16 = &narrow<DType::f16>,
                                      .narrow_bf16 = &narrow<DType::bf16>};
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const WidenedKernels& widened_kernels(const Target& target) { GABLE_CPU_RETURN_OF(target, widened_kernels_here()); }

}  // namespace gable::cpu
#endif  // HWY_ONCE
