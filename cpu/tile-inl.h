// The convolution's micro-kernel: one register tile of output lanes × pixels, through all taps and input lanes.
// Tile: 1 row × 14 pixels × 2 vectors with 32 registers (28 accumulators + 2 weights + 1 broadcast), 6 × 2 with 16;
// row pairs for the 2×2 pool: 2 × 6 × 2 (24 accumulators), 2 × 2 × 2 with 16. Partial sums never leave the registers.
// Inner step: one input lane of one tap. It reads 2 vectors of weights (128 B on AVX-512, a linear stream out of L2 or
// L1) and 14 broadcast floats (56 B, L1), and does 28 FMA = 896 FLOP: 14 cycles at 2 FMA a cycle, 13 B a cycle.
// Depthwise: output lane i reads input lane i only, so the broadcast becomes a vector load and a step is one tap.
#if defined(GABLE_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_TILE_INL_H_
#undef GABLE_CPU_TILE_INL_H_
#else
#define GABLE_CPU_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include "cpu/conv2d_kernels.h"
#include "cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kTilePixels = 14;
constexpr int kPairPixels = 6;
#else
constexpr int kTilePixels = 6;
constexpr int kPairPixels = 2;
#endif

template <int kRows, int kPixels, int kVectors, bool kDepthwise>
struct Tile {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  static constexpr int kAll = kRows * kPixels;

  /// `steps` input lanes, consecutive in the weights.
  static HWY_INLINE void accumulate(const TileCall& call, const float* HWY_RESTRICT x, std::int64_t x_step,
                                    const float* HWY_RESTRICT w, std::int64_t steps, V (&acc)[kAll][kVectors]) {
    const D d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const std::int64_t x_px = call.x_px;
    const std::int64_t x_row = call.x_row;
    for (std::int64_t step = 0; step < steps; ++step) {
      V weights[kVectors];
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) weights[v] = hn::LoadU(d, w + v * lanes);
      HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
        HWY_UNROLL(16) for (int p = 0; p < kPixels; ++p) {
          const float* pixel = x + row * x_row + p * x_px;
          if constexpr (kDepthwise) {
            HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
              acc[row * kPixels + p][v] =
                  hn::MulAdd(hn::LoadU(d, pixel + v * lanes), weights[v], acc[row * kPixels + p][v]);
            }
          } else {
            const V input = hn::Set(d, *pixel);
            HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
              acc[row * kPixels + p][v] = hn::MulAdd(input, weights[v], acc[row * kPixels + p][v]);
            }
          }
        }
      }
      x += x_step;
      w += kVectors * lanes;
    }
  }

  /// Every tap of every input tile. Taps of one kernel row are one run of steps where the input lets them be.
  static HWY_INLINE void reduce(const TileCall& call, V (&acc)[kAll][kVectors]) {
    const std::int64_t vector_floats = kVectors * static_cast<std::int64_t>(hn::Lanes(D()));
    for (std::int64_t tile = 0; tile < call.in_tiles; ++tile) {
      const std::int64_t lanes = tile + 1 == call.in_tiles ? call.last_in_lanes : call.in_lanes;
      const bool merge_taps = call.x_kw == lanes * call.x_lane;
      const std::int64_t steps = merge_taps ? lanes * call.kernel_w : lanes;
      const std::int64_t runs = merge_taps ? 1 : call.kernel_w;
      const float* weights = call.weights + tile * call.kernel_h * call.kernel_w * call.in_lanes * vector_floats +
                             call.kh_begin * call.kernel_w * lanes * vector_floats;
      for (std::int64_t kh = call.kh_begin; kh < call.kh_end; ++kh) {
        const float* x = call.x + tile * call.x_tile + kh * call.x_kh;
        for (std::int64_t run = 0; run < runs; ++run) {
          accumulate(call, x + run * call.x_kw, call.x_lane, weights, steps, acc);
          weights += steps * vector_floats;
        }
      }
    }
  }

  static HWY_INLINE float* partial_at(const TileCall& call, int index, int v) {
    return call.partial + (index / kPixels) * call.partial_row + (index % kPixels) * call.partial_px +
           v * static_cast<int>(hn::Lanes(D()));
  }

  /// Bias, relu, and a store of the valid lanes of one output pixel.
  static HWY_INLINE void finish_pixel(const TileCall& call, const V (&value)[kVectors], std::int64_t pixel) {
    const D d;
    const int lanes = static_cast<int>(hn::Lanes(d));
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      V result = value[v];
      if (call.bias != nullptr) result = hn::Add(result, hn::LoadU(d, call.bias + v * lanes));
      if (call.relu) result = relu(d, result);
      float* y = call.y + pixel * call.y_px + v * lanes;
      if (call.lanes >= (v + 1) * lanes) {
        hn::StoreU(result, d, y);
      } else {
        store_first(d, result, y, call.lanes - v * lanes);
      }
    }
  }

  static void run(const TileCall& call) {
    const D d;
    V acc[kAll][kVectors];
    HWY_UNROLL(28) for (int i = 0; i < kAll; ++i) {
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::Zero(d);
    }
    reduce(call, acc);
    if (call.load_partial) {
      HWY_UNROLL(28) for (int i = 0; i < kAll; ++i) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
          acc[i][v] = hn::Add(acc[i][v], hn::LoadU(d, partial_at(call, i, v)));
        }
      }
    }
    if (call.store_partial) {
      HWY_UNROLL(28) for (int i = 0; i < kAll; ++i) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[i][v], d, partial_at(call, i, v));
      }
      return;
    }
    if constexpr (kRows == 1) {
      HWY_UNROLL(16) for (int p = 0; p < kPixels; ++p) finish_pixel(call, acc[p], p);
    } else {
      HWY_UNROLL(8) for (int p = 0; p < kPixels; p += 2) {
        V best[kVectors];
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
          best[v] = nan_max(d, nan_max(d, acc[p][v], acc[p + 1][v]),
                            nan_max(d, acc[kPixels + p][v], acc[kPixels + p + 1][v]));
        }
        finish_pixel(call, best, p / 2);
      }
    }
  }
};

/// Fills table[vectors][pixels] for pixels = kPixels, kPixels - kStep, …
template <int kRows, int kPixels, int kStep, bool kDepthwise, std::size_t kSize>
void fill_tiles(TileFunction (&table)[kMaxTileVectors + 1][kSize]) {
  table[1][kPixels] = &Tile<kRows, kPixels, 1, kDepthwise>::run;
  table[2][kPixels] = &Tile<kRows, kPixels, 2, kDepthwise>::run;
  if constexpr (kPixels > kStep) fill_tiles<kRows, kPixels - kStep, kStep, kDepthwise>(table);
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_TILE_INL_H_
