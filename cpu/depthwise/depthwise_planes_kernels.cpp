// Depthwise 3x3 of planes, compiled once a target. The rows of a call are staged as f32 with their padding (two copies
// an element, in L1), so that a step tests no coordinates. A step computes 4 vectors of results, each by 9 loads at
// fixed distances and 9 FMA, with the taps in 9 registers. Two loads a cycle bound it, and a load that crosses a line
// counts twice: about 8 cycles a vector, against 4.5 of FMA. Results go to a buffer of the same pitch and from there,
// rounded, to y. Rows shorter than a vector are stored as whole vectors too; the next row overwrites the elements past
// their end.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/depthwise/depthwise_planes_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/depthwise/depthwise_planes_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

constexpr int kRunVectors = 4;

template <DType kType, int kStride>
struct DepthwisePlanes {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using T = Storage<kType>;

  static HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }

  /// `count` elements as f32; may write a vector's length beyond them.
  static HWY_INLINE void widen(const T* x, const T* x_end, std::int64_t count, float* strip) {
    const D d;
    std::int64_t i = 0;
    for (; i < count && x + i + lanes() <= x_end; i += lanes()) hn::StoreU(load_as_f32<kType>(d, x + i), d, strip + i);
    if (i < count) convert_to_f32<kType>(x + i, strip + i, count - i);
  }

  /// `count` zeros; may write a vector's length beyond them. The first vector stands outside the loop,
  /// which compilers turn into a call of memset: there are rarely more than two zeros.
  static HWY_INLINE void clear(float* strip, std::int64_t count) {
    const D d;
    hn::StoreU(hn::Zero(d), d, strip);
    for (std::int64_t i = lanes(); i < count; i += lanes()) hn::StoreU(hn::Zero(d), d, strip + i);
  }

  /// The even elements of a row as f32 to `even`, the others to `odd`; may write a vector's length beyond them.
  static HWY_INLINE void deinterleave(const T* x, const T* x_end, std::int64_t width, float* even, float* odd) {
#if HWY_TARGET == HWY_SCALAR
    (void)x_end;
    for (std::int64_t i = 0; i < width; ++i) widen(x + i, x + i + 1, 1, (i % 2 == 0 ? even : odd) + i / 2);
#else
    const D d;
    for (std::int64_t i = 0; i < width; i += 2 * lanes()) {
      HWY_ALIGN float last[2 * hn::MaxLanes(D())];
      V low, high;
      if (x + i + 2 * lanes() <= x_end) {
        low = load_as_f32<kType>(d, x + i);
        high = load_as_f32<kType>(d, x + i + lanes());
      } else {
        convert_to_f32<kType>(x + i, last, std::min(width - i, 2 * lanes()));
        low = hn::Load(d, last);
        high = hn::Load(d, last + lanes());
      }
      hn::StoreU(hn::ConcatEven(d, high, low), d, even + i / 2);
      hn::StoreU(hn::ConcatOdd(d, high, low), d, odd + i / 2);
    }
#endif
  }

  /// Clears the right padding of a row of `floats`, whose elements [pad, pad + count) come from the image.
  static HWY_INLINE void end_row(float* row, std::int64_t floats, std::int64_t pad, std::int64_t count) {
    const std::int64_t inside = std::min(count, floats - pad);
    clear(row + pad + inside, floats - pad - inside);
  }

  static HWY_INLINE void stage_row(const DepthwisePlanesCall& call, const T* x, float* row) {
    const DepthwisePlanesBlocking& b = *call.blocking;
    const T* x_end = static_cast<const T*>(call.input.end);
    clear(row, 1);
    if constexpr (kStride == 1) {
      widen(x, x_end, std::min(call.input.width, b.pitch - call.input.pad_left), row + call.input.pad_left);
      end_row(row, b.pitch, call.input.pad_left, call.input.width);
    } else {
      // Column j of the image is column j + pad_left of the strip, whose even columns are the first phase.
      const bool swapped = call.input.pad_left % 2 == 1;
      float* even = row + (swapped ? b.phase : 0);
      float* odd = row + (swapped ? 0 : b.phase);
      const std::int64_t even_pad = call.input.pad_left / 2;
      const std::int64_t odd_pad = (call.input.pad_left + 1) / 2;
      clear(row + b.phase, 1);
      const std::int64_t width = std::min(call.input.width, 2 * b.pitch - call.input.pad_left);
      deinterleave(x, x_end, width, even + even_pad, odd + odd_pad);
      end_row(even, b.pitch, even_pad, (width + 1) / 2);
      end_row(odd, b.pitch, odd_pad, width / 2);
    }
  }

  static HWY_INLINE void stage(const DepthwisePlanesCall& call, const T* x, float* strip) {
    const DepthwisePlanesBlocking& b = *call.blocking;
    const std::int64_t rows = (call.output.rows - 1) * kStride + kPlaneTaps;
    for (std::int64_t i = 0; i < rows; ++i) {
      float* row = strip + i % kStride * kStride * b.phase + i / kStride * b.pitch;
      const std::int64_t source = call.input.first_row + i;
      if (source >= 0 && source < call.input.height) {
        stage_row(call, x + source * call.input.width, row);
        continue;
      }
      for (std::int64_t phase = 0; phase < kStride; ++phase) clear(row + phase * b.phase, b.pitch);
    }
  }

  static HWY_INLINE void compute(const DepthwisePlanesCall& call, const float* weights, float bias_value,
                                 float* strip) {
    const D d;
    const DepthwisePlanesBlocking& b = *call.blocking;
    V taps[kPlaneTaps * kPlaneTaps];
    const float* inputs[kPlaneTaps * kPlaneTaps];
    for (int tap = 0; tap < kPlaneTaps * kPlaneTaps; ++tap) {
      const int kh = tap / kPlaneTaps;
      const int kw = tap % kPlaneTaps;
      taps[tap] = hn::Set(d, weights[tap]);
      inputs[tap] = strip + (kh % kStride * kStride + kw % kStride) * b.phase + kh / kStride * b.pitch + kw / kStride;
    }
    const V bias = hn::Set(d, bias_value);
    float* out = strip + b.out_offset;
    const std::int64_t count = (call.output.rows - 1) * b.pitch + call.output.columns;
    for (std::int64_t i = 0; i < count; i += kRunVectors * lanes()) {
      V acc[kRunVectors];
      HWY_UNROLL(4) for (int v = 0; v < kRunVectors; ++v) acc[v] = bias;
      HWY_UNROLL(9) for (int tap = 0; tap < kPlaneTaps * kPlaneTaps; ++tap) {
        const float* input = inputs[tap] + i;
        HWY_UNROLL(4) for (int v = 0; v < kRunVectors; ++v) {
          acc[v] = hn::MulAdd(hn::LoadU(d, input + v * lanes()), taps[tap], acc[v]);
        }
      }
      HWY_UNROLL(4) for (int v = 0; v < kRunVectors; ++v) {
        hn::StoreU(call.relu ? relu(d, acc[v]) : acc[v], d, out + i + v * lanes());
      }
    }
  }

  static HWY_INLINE void finish(const DepthwisePlanesCall& call, const float* results, T* y) {
    const D d;
    const DepthwisePlanesBlocking& b = *call.blocking;
    const T* end = y + call.output.rows * call.output.columns;
    for (std::int64_t row = 0; row < call.output.rows; ++row, y += call.output.columns) {
      const float* out = results + row * b.pitch;
      std::int64_t i = 0;
      for (; i < call.output.columns && y + i + lanes() <= end; i += lanes()) {
        store_f32_as<kType>(d, hn::LoadU(d, out + i), y + i);
      }
      if (i < call.output.columns) convert_from_f32<kType>(out + i, y + i, call.output.columns - i);
    }
  }

  /// Each pass goes through all channels. A load that overlaps two stores still in the core's store queue would stall;
  /// by the next pass they have left it.
  static void run(const DepthwisePlanesCall& call) {
    const DepthwisePlanesBlocking& b = *call.blocking;
    for (std::int64_t i = 0; i < call.planes; ++i) {
      stage(call, static_cast<const T*>(call.input.x) + i * call.input.height * call.input.width,
            call.workspace + i * b.plane_floats);
    }
    for (std::int64_t i = 0; i < call.planes; ++i) {
      compute(call, call.weights + i * kPlaneTaps * kPlaneTaps, call.bias == nullptr ? 0.0F : call.bias[i],
              call.workspace + i * b.plane_floats);
    }
    for (std::int64_t i = 0; i < call.planes; ++i) {
      finish(call, call.workspace + i * b.plane_floats + b.out_offset,
             static_cast<T*>(call.output.y) + i * call.output.height * call.output.columns);
    }
  }
};

template <DType kType>
void fill_planes(DepthwisePlanesKernels& kernels) {
  kernels.run[static_cast<int>(kType)][0] = &DepthwisePlanes<kType, 1>::run;
  kernels.run[static_cast<int>(kType)][1] = &DepthwisePlanes<kType, 2>::run;
}

const DepthwisePlanesKernels& depthwise_planes_kernels_here() {
  static const DepthwisePlanesKernels kernels = [] {
    DepthwisePlanesKernels made{};
    made.lanes = static_cast<int>(hn::Lanes(hn::ScalableTag<float>()));
    made.run_lanes = kRunVectors * made.lanes;
    fill_planes<DType::f32>(made);
    fill_planes<DType::f16>(made);
    fill_planes<DType::bf16>(made);
    return made;
  }();
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const DepthwisePlanesKernels& depthwise_planes_kernels(const Target& target) {
  GABLE_CPU_RETURN_OF(target, depthwise_planes_kernels_here());
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
