// The three ways in which a register tile stores a vector of results: non-temporal, whole, or its valid lanes.
#if defined(GABLE_CPU_OUTPUT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_OUTPUT_TILE_INL_H_
#undef GABLE_CPU_OUTPUT_TILE_INL_H_
#else
#define GABLE_CPU_OUTPUT_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

struct StreamVector {
  template <class D>
  HWY_INLINE void operator()(D d, hn::Vec<D> value, float* y, int) const {
    hn::Stream(value, d, y);
  }
};
struct StoreVector {
  template <class D>
  HWY_INLINE void operator()(D d, hn::Vec<D> value, float* y, int) const {
    hn::StoreU(value, d, y);
  }
};
/// Stores the first `valid` lanes; none where `valid` is not positive.
struct StoreValidLanes {
  template <class D>
  HWY_INLINE void operator()(D d, hn::Vec<D> value, float* y, int valid) const {
    if (valid > 0) store_first(d, value, y, std::min(valid, static_cast<int>(hn::Lanes(d))));
  }
};

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_OUTPUT_TILE_INL_H_
