// Non-temporal stores of f32 vectors as any storage type: they bypass the caches.
#if defined(GABLE_CPU_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_STREAM_INL_H_
#undef GABLE_CPU_STREAM_INL_H_
#else
#define GABLE_CPU_STREAM_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

/// One vector; y is aligned to it. Results shorter than the instruction's 16 bytes are stored as usual.
template <DType kType, class D>
HWY_INLINE void stream_f32_as(D d, hn::Vec<D> value, Storage<kType>* y) {
  if constexpr (kType == DType::f32) {
    hn::Stream(value, d, y);
  } else if constexpr (hn::MaxLanes(D()) * sizeof(*y) >= 16) {
    hn::Stream(from_f32<kType>(d, value), HalfTag<D>(), y);
  } else {
    store_f32_as<kType>(d, value, y);
  }
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_STREAM_INL_H_
