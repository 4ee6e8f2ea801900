// The convolution's micro-kernel: one register tile of output lanes × pixels, through all taps and input lanes.
// Tile: 1 row × 14 pixels × 2 vectors with 32 registers (28 accumulators + 2 weights + 1 broadcast), 6 × 2 with 16; of
// rows up to 7 (3) pixels the same row of two images, for half the weights. A 2×2 pool reads the row above from L1.
// Inner step: one input lane of one tap. It reads 2 vectors of weights (128 B on AVX-512, a linear stream out of L2 or
// L1) and 14 broadcast floats (56 B, L1), and does 28 FMA = 896 FLOP: 14 cycles at 2 FMA a cycle, 13 B a cycle. What no
// hardware stream follows is prefetched: one line of the next pixels a step, and the weights a page ahead.
// Taps on padding leave out the tile's first or last pixel: no zeros are multiplied. Sums start from the bias.
// Tiles of fewer than 8 accumulators wait for the FMA's latency (2 a cycle, 4 cycles): they sum odd steps apart.
// Depthwise: output lane i reads input lane i only, so the broadcast becomes a vector load and a step is one tap.
#if defined(GABLE_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_TILE_INL_H_
#undef GABLE_CPU_TILE_INL_H_
#else
#define GABLE_CPU_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "cpu/common/vector-inl.h"
#include "cpu/direct/conv2d_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kTilePixels = 14;
constexpr int kPairPixels = 6;
constexpr int kImagePairPixels = 7;
#else
constexpr int kTilePixels = 6;
constexpr int kPairPixels = 2;
constexpr int kImagePairPixels = 3;
#endif

/// Pixels at least this many floats apart are prefetched in software: nearer ones are streams that hardware sees.
constexpr std::int64_t kApart = 32;
/// Weights are asked for this many floats ahead: a page, which the hardware's stream does not cross.
constexpr std::int64_t kWeightsAhead = 1024;
/// The runs of a single tap, one input tile each, ask this many runs ahead.
constexpr std::int64_t kRunsAhead = 2;
constexpr std::int64_t kLineFloats = 16;

/// The pixels [pixel, pixel_end) of a tile's rows.
struct Part {
  int pixel, pixel_end;
};

template <int kRows, int kPixels, int kVectors, bool kDepthwise>
struct Tile {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  static constexpr int kAll = kRows * kPixels;
  /// Whether a second set of sums takes every other step.
  static constexpr bool kSumsApart = !kDepthwise && kAll * kVectors < 8;
  /// Whether a run asks for all its lines at once: there are too few to fill the line buffers, and a short step has no
  /// room for more instructions.
  static constexpr bool kAsksAtOnce = kDepthwise || kAll <= 8;
  /// Pixels that share a base address: three, which are the base plus x_px scaled by 0, 1 and 2, where there are more
  /// pixels than registers for their offsets.
  static constexpr int kBasePixels = kPixels > 8 ? 3 : kPixels;
  static constexpr int kBases = (kPixels + kBasePixels - 1) / kBasePixels;

  /// Lines to ask for, one a step: of pixel after pixel up to the last, or of two rows in turn.
  struct Ahead {
    const float* x;
    const float* other;  // row, or the last pixel of one
    std::int64_t x_px;
    HWY_INLINE void ask() {
      hwy::Prefetch(x);
      const float* next = x + x_px;
      if constexpr (kRows == 2) {
        x = other;
        other = next;
      } else {
        x = std::min(next, other);
      }
    }
  };

  /// One input lane of one tap, and on to the next.
  template <Part kPart>
  static HWY_INLINE void multiply_add(const float* (&base)[kRows][kBases], std::int64_t x_px, std::int64_t x_step,
                                      const float* HWY_RESTRICT& w, Ahead& ahead, V (&acc)[kAll][kVectors]) {
    const D d;
    if constexpr (!kAsksAtOnce) ahead.ask();
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    V weights[kVectors];
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      weights[v] = hn::LoadU(d, w + v * lanes);
      if (v * lanes % kLineFloats == 0) hwy::Prefetch(w + kWeightsAhead + v * lanes);
    }
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(16) for (int p = kPart.pixel; p < kPart.pixel_end; ++p) {
        const float* pixel = base[row][p / kBasePixels] + p % kBasePixels * x_px;
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
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(5) for (int b = 0; b < kBases; ++b) {
        base[row][b] += x_step;
        if constexpr (kBases > 1) keep_apart(base[row][b]);
      }
    }
    w += kVectors * lanes;
  }

  /// `runs` times `steps` input lanes, consecutive in the weights; x moves on by x_run from run to run. The first
  /// `asking` runs ask for the cache lines of a later one, `ahead` floats on, or the last kRunsAhead `end_ahead` floats
  /// on: with a pixel's channels far apart from the next pixel's, no hardware prefetcher sees them coming. One line a
  /// step: asked for at once they would fill the line buffers, and the weights would wait. Only pixels of kPart take
  /// part.
  template <Part kPart>
  static HWY_INLINE void accumulate(const TileCall& call, const float* HWY_RESTRICT x, std::int64_t x_step,
                                    std::int64_t x_run, std::int64_t ahead, std::int64_t end_ahead,
                                    const float* HWY_RESTRICT& w, std::int64_t runs, std::int64_t asking,
                                    std::int64_t steps, V (&acc)[kAll][kVectors]) {
    [[maybe_unused]] const D d;
    const std::int64_t x_px = call.x_px;
    const std::int64_t x_row = call.x_row;
    const bool apart = x_px >= kApart;
    [[maybe_unused]] V odd[kSumsApart ? kAll : 1][kVectors];
    if constexpr (kSumsApart) {
      HWY_UNROLL(8) for (int i = 0; i < kAll; ++i) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) odd[i][v] = hn::Zero(d);
      }
    }
    for (std::int64_t run = 0; run < runs; ++run) {
      const std::int64_t next = run + kRunsAhead < runs ? ahead : end_ahead;
      // A run that does not ask repeats a line that it has.
      Ahead lines{x, x, 0};
      if (kAsksAtOnce && apart) {
        HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
          HWY_UNROLL(16) for (int p = kPart.pixel; p < kPart.pixel_end; ++p) {
            hwy::Prefetch(x + next + row * x_row + p * x_px);
          }
        }
      } else if (apart && run < asking) {
        const std::int64_t to_other = kRows == 2 ? x_row : (kPixels - 1 + call.halo) * x_px;
        lines = {x + next, x + next + to_other, x_px};
      }
      const float* base[kRows][kBases];
      HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
        HWY_UNROLL(5) for (int b = 0; b < kBases; ++b) base[row][b] = x + row * x_row + b * kBasePixels * x_px;
      }
      std::int64_t step = 0;
      if constexpr (kSumsApart) {
        for (; step + 2 <= steps; step += 2) {
          multiply_add<kPart>(base, x_px, x_step, w, lines, acc);
          multiply_add<kPart>(base, x_px, x_step, w, lines, odd);
        }
      }
      for (; step < steps; ++step) multiply_add<kPart>(base, x_px, x_step, w, lines, acc);
      x += x_run;
    }
    if constexpr (kSumsApart) {
      HWY_UNROLL(8) for (int i = 0; i < kAll; ++i) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::Add(acc[i][v], odd[i][v]);
      }
    }
  }

  /// The taps of one kernel row over `lanes` input lanes. They are one run of steps where the input lets them be. Taps
  /// less than a pixel's stride apart read different pixels, and these ask.
  static HWY_INLINE void kernel_row(const TileCall& call, const float* x, std::int64_t ahead,
                                    const float* HWY_RESTRICT& w, std::int64_t lanes, V (&acc)[kAll][kVectors]) {
    constexpr Part kWhole{0, kPixels};
    if (call.x_kw == lanes * call.x_lane && call.left_taps == 0 && call.right_tap == call.kernel_w) {
      accumulate<kWhole>(call, x, call.x_lane, 0, ahead, ahead, w, 1, 1, lanes * call.kernel_w, acc);
      return;
    }
    if constexpr (!kDepthwise) {
      constexpr Part kNotFirst{1, kPixels};
      accumulate<kNotFirst>(call, x, call.x_lane, call.x_kw, ahead, ahead, w, call.left_taps, call.asking_taps, lanes,
                            acc);
    }
    accumulate<kWhole>(call, x + call.left_taps * call.x_kw, call.x_lane, call.x_kw, ahead, ahead, w,
                       call.right_tap - call.left_taps, call.asking_taps - call.left_taps, lanes, acc);
    if constexpr (!kDepthwise) {
      constexpr Part kNotLast{0, kPixels - 1};
      accumulate<kNotLast>(call, x + call.right_tap * call.x_kw, call.x_lane, call.x_kw, ahead, ahead, w,
                           call.kernel_w - call.right_tap, 0, lanes, acc);
    }
  }

  /// A single tap without padding: its input tiles are runs of one loop, and the last ones ask for the next tile's
  /// pixels.
  static bool one_run(const TileCall& call) {
    return call.kernel_h == 1 && call.kernel_w == 1 && call.last_in_lanes == call.in_lanes && call.kh_begin == 0 &&
           call.kh_end == 1 && call.left_taps == 0 && call.right_tap == 1;
  }
  static HWY_INLINE void reduce_one_run(const TileCall& call, V (&acc)[kAll][kVectors]) {
    constexpr Part kWhole{0, kPixels};
    const float* weights = call.weights;
    const std::int64_t next_pixels = kPixels * call.x_px + (kRunsAhead - call.in_tiles) * call.x_tile;
    accumulate<kWhole>(call, call.x, call.x_lane, call.x_tile, kRunsAhead * call.x_tile, next_pixels, weights,
                       call.in_tiles, call.in_tiles, call.in_lanes, acc);
  }

  /// Every tap of every input tile.
  static HWY_INLINE void reduce(const TileCall& call, V (&acc)[kAll][kVectors]) {
    const std::int64_t vector_floats = kVectors * static_cast<std::int64_t>(hn::Lanes(D()));
    for (std::int64_t tile = 0; tile < call.in_tiles; ++tile) {
      const std::int64_t lanes = tile + 1 == call.in_tiles ? call.last_in_lanes : call.in_lanes;
      const float* weights = call.weights + tile * call.kernel_h * call.kernel_w * call.in_lanes * vector_floats +
                             call.kh_begin * call.kernel_w * lanes * vector_floats;
      for (std::int64_t kh = call.kh_begin; kh < call.kh_end; ++kh) {
        const float* x = call.x + tile * call.x_tile + kh * call.x_kh;
        const std::int64_t next =
            kh + 1 < call.kh_end ? call.x_kh : call.x_tile - (call.kh_end - 1 - call.kh_begin) * call.x_kh;
        kernel_row(call, x, next, weights, lanes, acc);
      }
    }
  }

  static HWY_INLINE float* partial_at(const TileCall& call, int index, int v) {
    return call.partial + (index / kPixels) * call.partial_row + (index % kPixels) * call.partial_px +
           v * static_cast<int>(hn::Lanes(D()));
  }

  /// Sums of earlier input channels, or the bias, or zero.
  static HWY_INLINE void start(const TileCall& call, V (&acc)[kAll][kVectors]) {
    const D d;
    const int lanes = static_cast<int>(hn::Lanes(d));
    if (call.load_partial) {
      HWY_UNROLL(28) for (int i = 0; i < kAll; ++i) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::LoadU(d, partial_at(call, i, v));
      }
      return;
    }
    V first[kVectors];
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      first[v] = call.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, call.bias + v * lanes);
    }
    HWY_UNROLL(28) for (int i = 0; i < kAll; ++i) {
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) acc[i][v] = first[v];
    }
  }

  /// Asks for the lines that will be stored: after a single tap the stores come too soon to find them in L1 by
  /// themselves.
  static HWY_INLINE void prefetch_output(const TileCall& call) {
    const int lanes = static_cast<int>(hn::Lanes(D()));
    for (int p = 0; p < kPixels / kRows; ++p) {
      for (int v = 0; v < kVectors; ++v) hwy::Prefetch(call.y + p * call.y_px + v * lanes);
    }
  }

  /// The largest of a 2×2 window of a depthwise row pair.
  static HWY_INLINE V largest_of_pair(const V (&acc)[kAll][kVectors], int p, int v) {
    const D d;
    return nan_max(d, nan_max(d, acc[2 * p][v], acc[2 * p + 1][v]),
                   nan_max(d, acc[kPixels + 2 * p][v], acc[kPixels + 2 * p + 1][v]));
  }
  /// The same, where the row above was another tile.
  static HWY_INLINE V largest_with_above(const TileCall& call, const V (&acc)[kAll][kVectors], int p, int v) {
    const D d;
    const float* above = call.above + 2 * p * call.partial_px + v * static_cast<int>(hn::Lanes(d));
    return nan_max(d, nan_max(d, hn::LoadU(d, above), hn::LoadU(d, above + call.partial_px)),
                   nan_max(d, acc[2 * p][v], acc[2 * p + 1][v]));
  }

  /// Pool, activation and store. `store(value, y, lanes)` stores the valid lanes of one vector.
  template <class Store>
  static HWY_INLINE void finish(const TileCall& call, const V (&acc)[kAll][kVectors], const Store& store) {
    const D d;
    const int lanes = static_cast<int>(hn::Lanes(d));
    const V least = hn::Set(d, call.relu ? 0.0f : -INFINITY);
    const auto finish_pixel = [&](V value, int row, int p, int v) HWY_ATTR {
      store(at_least(d, least, value), call.y + row * call.y_row + p * call.y_px + v * lanes, call.lanes - v * lanes);
    };
    if constexpr (kRows == 2 && kDepthwise) {
      HWY_UNROLL(16) for (int p = 0; p < kPixels / 2; ++p) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) finish_pixel(largest_of_pair(acc, p, v), 0, p, v);
      }
      return;
    }
    if (kRows == 1 && kPixels % 2 == 0 && call.above != nullptr) {
      HWY_UNROLL(16) for (int p = 0; p < kPixels / 2; ++p) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) finish_pixel(largest_with_above(call, acc, p, v), 0, p, v);
      }
    } else {
      HWY_UNROLL(16) for (int i = 0; i < kAll; ++i) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) finish_pixel(acc[i][v], i / kPixels, i % kPixels, v);
      }
    }
  }

  static HWY_INLINE void end(const TileCall& call, const V (&acc)[kAll][kVectors]) {
    const D d;
    const int lanes = static_cast<int>(hn::Lanes(d));
    if (call.store_partial) {
      HWY_UNROLL(28) for (int i = 0; i < kAll; ++i) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[i][v], d, partial_at(call, i, v));
      }
    } else if (call.stream) {
      finish(call, acc, [d](V value, float* y, int) HWY_ATTR { hn::Stream(value, d, y); });
    } else if (call.lanes == kVectors * lanes) {
      finish(call, acc, [d](V value, float* y, int) HWY_ATTR { hn::StoreU(value, d, y); });
    } else {
      finish(call, acc, [d, lanes](V value, float* y, int valid) HWY_ATTR {
        if (valid > 0) store_first(d, value, y, std::min(valid, lanes));
      });
    }
  }

  /// Functions of their own, so that each has the registers for its loops.
  static HWY_NOINLINE void run_one_run(const TileCall& call) {
    V acc[kAll][kVectors];
    if (!call.stream) prefetch_output(call);
    start(call, acc);
    reduce_one_run(call, acc);
    end(call, acc);
  }
  static HWY_NOINLINE void run_taps(const TileCall& call) {
    V acc[kAll][kVectors];
    start(call, acc);
    reduce(call, acc);
    end(call, acc);
  }
  static void run(const TileCall& call) { one_run(call) ? run_one_run(call) : run_taps(call); }
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
