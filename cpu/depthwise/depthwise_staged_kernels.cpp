// Depthwise convolution of any window: a register tile of pixels × vectors of channels, through all taps, compiled once
// a target. Tile: 14 pixels × 2 vectors with 32 registers (28 accumulators + 2 weights + 1 input), 6 × 2 with 16; under
// a 2×2 max-pool two rows of up to 6 (2) pixels.
// Inner step: one tap. It reads 2 vectors of weights and a vector of input for each accumulator, and does 28 FMA: 28
// loads, so 14 cycles at 2 loads a cycle. Accumulators start from the bias. Where pixels are far apart in memory the
// tile prefetches the next kernel row's lines; hardware prefetchers miss them.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/depthwise/depthwise_staged_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/depthwise/depthwise_staged_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstddef>

#include "cpu/common/output_tile-inl.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kStagedPixels = 14;
constexpr int kStagedPairPixels = 6;
#else
constexpr int kStagedPixels = 6;
constexpr int kStagedPairPixels = 2;
#endif

/// Pixels at least this many floats apart are prefetched in software. Hardware prefetchers follow nearer ones.
constexpr std::int64_t kStagedPrefetchPitch = 32;

template <int kRows, int kPixels, int kVectors>
struct StagedTile {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  static constexpr int kAll = kRows * kPixels;
  /// Pixels that share a base address. With more pixels than registers for their addresses, three share one: they are
  /// the base plus px scaled by 0, 1 and 2.
  static constexpr int kBasePixels = kPixels > 8 ? 3 : kPixels;
  static constexpr int kBases = (kPixels + kBasePixels - 1) / kBasePixels;

  /// One tap; moves the addresses to the next.
  static HWY_INLINE void multiply_add(const float* (&base)[kRows][kBases], std::int64_t px, std::int64_t x_step,
                                      const float* HWY_RESTRICT& w, V (&acc)[kAll][kVectors]) {
    const D d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    V weights[kVectors];
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) weights[v] = hn::LoadU(d, w + v * lanes);
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(16) for (int p = 0; p < kPixels; ++p) {
        const float* pixel = base[row][p / kBasePixels] + p % kBasePixels * px;
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
          acc[row * kPixels + p][v] =
              hn::MulAdd(hn::LoadU(d, pixel + v * lanes), weights[v], acc[row * kPixels + p][v]);
        }
      }
    }
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(5) for (int b = 0; b < kBases; ++b) {
        const float* next = base[row][b] + x_step;  // a copy: gcc would keep an array behind the asm in memory
        if constexpr (kBases > 1) keep_apart(next);
        base[row][b] = next;
      }
    }
    w += kVectors * lanes;
  }

  /// The taps of one kernel row. Prefetches the lines `distance` floats beyond.
  static HWY_INLINE void kernel_row(const DepthwiseStagedCall& call, const float* x, std::int64_t distance,
                                    const float* HWY_RESTRICT& w, V (&acc)[kAll][kVectors]) {
    const std::int64_t px = call.x.px;
    if (px >= kStagedPrefetchPitch) {
      HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
        HWY_UNROLL(16) for (int p = 0; p < kPixels; ++p) hwy::Prefetch(x + distance + row * call.x.row + p * px);
      }
    }
    const float* base[kRows][kBases];
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(5) for (int b = 0; b < kBases; ++b) base[row][b] = x + row * call.x.row + b * kBasePixels * px;
    }
    for (std::int64_t kw = 0; kw < call.kernel_w; ++kw) multiply_add(base, px, call.x.kw, w, acc);
  }

  /// The largest of a 2×2 window.
  static HWY_INLINE V largest(const V (&acc)[kAll][kVectors], int p, int v) {
    const D d;
    return nan_max(d, nan_max(d, acc[2 * p][v], acc[2 * p + 1][v]),
                   nan_max(d, acc[kPixels + 2 * p][v], acc[kPixels + 2 * p + 1][v]));
  }

  /// Pool, activation and store of the valid lanes.
  template <class Store>
  static HWY_INLINE void finish(const OutputTile& y, const V (&acc)[kAll][kVectors], const Store& store) {
    const D d;
    const int lanes = static_cast<int>(hn::Lanes(d));
    const V least = hn::Set(d, y.relu ? 0.0f : -INFINITY);
    HWY_UNROLL(16) for (int p = 0; p < kPixels / kRows; ++p) {
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
        V value;
        if constexpr (kRows == 2) {
          value = largest(acc, p, v);
        } else {
          value = acc[p][v];
        }
        store(d, at_least(d, least, value), y.y + p * y.px + v * lanes, y.lanes - v * lanes);
      }
    }
  }

  static void run(const DepthwiseStagedCall& call) {
    const D d;
    const int lanes = static_cast<int>(hn::Lanes(d));
    V acc[kAll][kVectors];
    V first[kVectors];
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      first[v] = call.y.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, call.y.bias + v * lanes);
    }
    HWY_UNROLL(28) for (int i = 0; i < kAll; ++i) {
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) acc[i][v] = first[v];
    }
    const float* weights = call.weights + call.rows.begin * call.kernel_w * kVectors * lanes;
    for (std::int64_t kh = call.rows.begin; kh < call.rows.end; ++kh) {
      const std::int64_t to_next = kh + 1 < call.rows.end ? call.x.kh : 0;
      kernel_row(call, call.x.x + kh * call.x.kh, to_next, weights, acc);
    }
    if (call.y.non_temporal) {
      finish(call.y, acc, StreamVector());
    } else if (call.y.lanes == kVectors * lanes) {
      finish(call.y, acc, StoreVector());
    } else {
      finish(call.y, acc, StoreValidLanes());
    }
  }
};

/// Fills table[vectors][pixels] for pixels = kPixels, kPixels - kRows, …
template <int kRows, int kPixels, std::size_t kSize>
void fill_staged(DepthwiseStagedFunction (&table)[kMaxStagedVectors + 1][kSize]) {
  table[1][kPixels] = &StagedTile<kRows, kPixels, 1>::run;
  table[2][kPixels] = &StagedTile<kRows, kPixels, 2>::run;
  if constexpr (kPixels > kRows) fill_staged<kRows, kPixels - kRows>(table);
}

const DepthwiseStagedKernels& depthwise_staged_kernels_here() {
  static const DepthwiseStagedKernels kernels = [] {
    DepthwiseStagedKernels made{};
    made.lanes = static_cast<int>(hn::Lanes(hn::ScalableTag<float>()));
    made.max_pixels = kStagedPixels;
    made.max_pair_pixels = kStagedPairPixels;
    fill_staged<1, kStagedPixels>(made.row);
    fill_staged<2, kStagedPairPixels>(made.row_pair);
    return made;
  }();
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const DepthwiseStagedKernels& depthwise_staged_kernels(const Target& target) {
  GABLE_CPU_RETURN_OF(target, depthwise_staged_kernels_here());
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
