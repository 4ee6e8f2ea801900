// Addresses a register tile's pixels with few registers: seven pixels share a base, and each address is the base plus
// an odd multiple of the distance between pixels, scaled by 1, 2 or 4 in the address mode. With a base for each pixel,
// every step would advance all of them, and on Intel such scalar instructions take issue slots of the FMA's two ports.
#if defined(GABLE_CPU_PIXEL_PITCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_PIXEL_PITCH_INL_H_
#undef GABLE_CPU_PIXEL_PITCH_INL_H_
#else
#define GABLE_CPU_PIXEL_PITCH_INL_H_
#endif

#include <cstdint>

#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

/// Pixels that share a base address.
constexpr int kBasePixels = 7;

/// Odd multiples of the distance between pixels, in bytes.
struct PixelPitch {
  std::int64_t one, three, five;

  static PixelPitch of(std::int64_t floats) { return {floats * 4, floats * 12, floats * 20}; }
  /// Call it before each use of `pixels` pixels: gcc would keep the scaled multiples too, and spill them.
  HWY_INLINE void hide(int pixels) {
    keep_apart(one);
    if (pixels > 3) keep_apart(three);
    if (pixels > 5) keep_apart(five);
  }
  /// Pixel p < kBasePixels.
  HWY_INLINE const float* at(const float* base, int p) const {
    const std::int64_t offset = p == 3 ? three : p == 5 ? five : p == 6 ? three * 2 : one * p;
    return reinterpret_cast<const float*>(reinterpret_cast<const char*>(base) + offset);
  }
};

/// The same where the distance is known when this is compiled. An index would cost the instruction that multiplies by a
/// broadcast input a second micro-operation.
template <int kFloats>
struct FixedPitch {
  static FixedPitch of(std::int64_t) { return {}; }
  HWY_INLINE void hide(int) {}
  HWY_INLINE const float* at(const float* base, int p) const { return base + p * kFloats; }
};

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_PIXEL_PITCH_INL_H_
