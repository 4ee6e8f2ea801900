// Vectors of an array of any type, and the rest of it that fills none, by one function each.
#if defined(GABLE_CPU_OPS_REST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_OPS_REST_INL_H_
#undef GABLE_CPU_OPS_REST_INL_H_
#else
#define GABLE_CPU_OPS_REST_INL_H_
#endif

#include <hwy/highway.h>

#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The vector at x, or its first `rest` elements where `rest` is not 0; the other lanes are 0 then.
template <DType kType, class D>
HWY_INLINE hn::Vec<D> load_some(D d, const Storage<kType>* x, int rest) {
  return rest == 0 ? load_as_f32<kType>(d, x) : load_first_as_f32<kType>(d, x, rest);
}

template <DType kType, class D>
HWY_INLINE void store_some(D d, hn::Vec<D> value, Storage<kType>* y, int rest) {
  rest == 0 ? store_f32_as<kType>(d, value, y) : store_first_f32_as<kType>(d, value, y, rest);
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_OPS_REST_INL_H_
