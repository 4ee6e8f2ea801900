// Vectors and activations of both kinds of few-channel tile.
#if defined(GABLE_CPU_FEW_CHANNELS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_FEW_CHANNELS_VECTORS_INL_H_
#undef GABLE_CPU_FEW_CHANNELS_VECTORS_INL_H_
#else
#define GABLE_CPU_FEW_CHANNELS_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include "cpu/common/tanh-inl.h"
#include "cpu/common/vector-inl.h"
#include "cpu/few_channels/few_channels_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

using FewD = hn::ScalableTag<float>;
using FewV = hn::Vec<FewD>;

HWY_INLINE FewV activate(Activation activation, FewV value) {
  const FewD d;
  if (activation == Activation::relu) return relu(d, value);
  if (activation == Activation::tanh) return tanh_f32(d, value);
  return value;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_FEW_CHANNELS_VECTORS_INL_H_
