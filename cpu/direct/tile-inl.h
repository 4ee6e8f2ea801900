// The convolution's micro-kernel: one register tile of output lanes × pixels, through all taps and input lanes.
// Tile: 1 row × 14 pixels × 2 vectors with 32 registers (28 accumulators + 2 weights + 1 broadcast), 6 × 2 with 16.
// If a group has no more output channels than a vector has lanes, a tile has up to 28 pixels × 1 vector on AVX-512 and
// 12 on AVX2: groups of few input channels have short runs, and more products then share a run's fixed cost. If rows
// have up to 7 (3) pixels, a tile has the same row of two images, which halves the weights it reads. A 2×2 max-pool
// reads the accumulators of the row above from L1. Inner step: one input lane of one tap. It reads 2 vectors of weights
// (128 B on AVX-512, a linear stream from L2 or L1) and 14 broadcast floats (56 B, L1), and does 28 FMA = 896 FLOP: 14
// cycles at 2 FMA a cycle, 13 B a cycle. Prefetch: one line of input a step, and the weights a page ahead; hardware
// prefetchers miss these. Padding taps skip the tile's first or last pixel, so no zeros are multiplied. Accumulators
// start from the bias. Tiles of fewer than 8 accumulators would wait for the FMA's latency (2 a cycle, 4 cycles): they
// have a second set of accumulators, which takes every other step.
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
#include <type_traits>

#include "cpu/common/broadcast_products-inl.h"
#include "cpu/common/fast_copies.h"
#include "cpu/common/output_tile-inl.h"
#include "cpu/common/pixel_pitch-inl.h"
#include "cpu/common/vector-inl.h"
#include "cpu/direct/conv2d_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kTilePixels = 14;
constexpr int kNarrowTilePixels = HWY_TARGET == HWY_AVX3 ? 28 : kTilePixels;
constexpr int kImagePairPixels = 7;
#elif HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
// Without vectors, the fewest tiles, to compile less.
constexpr int kTilePixels = 2;
constexpr int kNarrowTilePixels = kTilePixels;
constexpr int kImagePairPixels = 1;
#else
constexpr int kTilePixels = 6;
constexpr int kNarrowTilePixels = HWY_TARGET == HWY_AVX2 ? 12 : kTilePixels;
constexpr int kImagePairPixels = 3;
#endif

constexpr int kVectorRegisters = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64 ? 32 : 16;
/// Pixels at least this many floats apart are prefetched in software. Hardware prefetchers follow nearer ones.
constexpr std::int64_t kPrefetchPitch = 32;
/// Weights are prefetched this many floats ahead: a page, which the hardware's stream does not cross.
constexpr std::int64_t kWeightsAhead = 1024;
/// With a single tap, an input tile's pixels are prefetched this many input tiles ahead.
constexpr std::int64_t kRunsAhead = 2;
constexpr std::int64_t kLineFloats = 16;
/// A kernel row prefetches this many pixels of the output.
constexpr int kOutputsAhead = 2;

/// The pixels [begin, end) of a tile's rows.
struct TilePixels {
  int begin, end;
};

/// `count` runs of `steps` input lanes each. A step moves x by x_step and a run by x_run; the weights are consecutive.
/// The first prefetch_count runs prefetch the lines `distance` floats beyond their own; the last kRunsAhead of all runs
/// those `last_distance` floats beyond.
struct Runs {
  const float* x;
  std::int64_t x_step, x_run;
  std::int64_t count, steps;
  std::int64_t prefetch_count, distance, last_distance;
};

/// D: the tag of its vectors, whole ones or halves. kPitch: floats from pixel to pixel; 0: InputTile::px of them. Tiles
/// with a pitch read strips, and so skip no padding and prefetch no input.
template <int kRows, int kPixels, int kVectors, class D = hn::ScalableTag<float>, int kPitch = 0>
struct Tile {
  using V = hn::Vec<D>;
  using Pitch = std::conditional_t<kPitch == 0, PixelPitch, FixedPitch<kPitch>>;
  static constexpr int kAll = kRows * kPixels;
  static constexpr TilePixels kWhole{0, kPixels};
  static constexpr TilePixels kWithoutFirst{1, kPixels};
  static constexpr TilePixels kWithoutLast{0, kPixels - 1};
  /// Whether a second set of accumulators takes every other step.
  static constexpr bool kTwoSets = kAll * kVectors < 8;
  /// Whether a run prefetches all its lines at once: a small tile has too few lines to fill the line buffers, and its
  /// short steps leave no issue slots for prefetches.
  static constexpr bool kPrefetchAtOnce = kAll <= 8;
  static constexpr int kBasePixels = base_pixels(kVectors);
  static constexpr int kBases = (kPixels + kBasePixels - 1) / kBasePixels;
  /// Input lanes of a step of the unrolled loop. That loop is for lanes that are neighbours in memory.
  static constexpr int kUnrolled = 4;

  /// Prefetches one line a step: the first line of each pixel, or of each pixel of two rows in turn, then the second
  /// line of each, and so on: a run of more lanes than a line has reads several lines of each pixel.
  struct LinePrefetch {
    const float* x;
    const float* first;  // the first pixel's line
    const float* last;   // the last pixel's line
    std::int64_t px, row;
    HWY_INLINE void next(int step) {
      if constexpr (kRows == 2) {
        hwy::Prefetch(step % 2 == 0 ? x : x + row);
        if (step % 2 == 1) x += px;
      } else {
        hwy::Prefetch(step % 2 == 0 ? x : x + px);
        if (step % 2 == 1) x += 2 * px;
      }
      if (step == kUnrolled - 1 && x > last) {
        first += kLineFloats;
        last += kLineFloats;
        x = first;
      }
    }
  };

  /// kSteps input lanes of one tap, which are neighbours; or one lane, where x_step is the distance to the next one.
  /// Moves the addresses past them. Odd lanes add to `odd`, which may be acc.
  template <TilePixels kPart, int kSteps>
  static HWY_INLINE void multiply_add(const float* (&base)[kRows][kBases], Pitch& px, std::int64_t x_step,
                                      const float* HWY_RESTRICT& w, LinePrefetch& prefetch, V (&acc)[kAll][kVectors],
                                      V (&odd)[kAll][kVectors]) {
    const D d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    HWY_UNROLL(4) for (int step = 0; step < kSteps; ++step) {
      if constexpr (kSteps == kUnrolled && !kPrefetchAtOnce && kPitch == 0) prefetch.next(step);
      V weights[kVectors];
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
        const std::int64_t at = (step * kVectors + v) * lanes;
        weights[v] = hn::LoadU(d, w + at);
        if (kSteps == kUnrolled && at % kLineFloats == 0) hwy::Prefetch(w + kWeightsAhead + at);
      }
      px.hide(kPixels);
      HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
        HWY_UNROLL(28) for (int p = kPart.begin; p < kPart.end; ++p) {
          const float* x = px.at(base[row][p / kBasePixels], p % kBasePixels) + step;
          V(&sums)[kVectors] = step % 2 == 0 ? acc[row * kPixels + p] : odd[row * kPixels + p];
          if constexpr (kVectors == 1) {
            sums[0] = add_broadcast_product(d, x, weights[0], sums[0]);
          } else if constexpr (has_broadcast_products(kVectors)) {
            add_products_of_pixel(d, p, x, weights, sums);
          } else {
            const V input = hn::Set(d, *x);
            HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
              sums[v] = add_product_of_tile<kAll * kVectors>(d, input, weights[v], sums[v]);
            }
          }
        }
      }
    }
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(7) for (int b = 0; b < kBases; ++b) {
        const float* next = base[row][b];  // a copy: gcc would keep an array behind the asm in memory
        if constexpr (kSteps == kUnrolled) {
          move_by<kSteps>(next);
        } else {
          next += x_step;
          keep_apart(next);
        }
        base[row][b] = next;
      }
    }
    w += kSteps * kVectors * lanes;
  }

  /// Tiles of one vector keep the weights of several steps in registers on AVX-512. Each product then reads its input
  /// at a constant distance from its pixel, while an index would cost it a second micro-operation.
  static constexpr bool kHoldsWeights = HWY_TARGET == HWY_AVX3 && kVectors == 1 && kPitch == 0;
  /// Steps whose weights fit beside the accumulators.
  static constexpr int kHeldSteps = kAll <= 16 ? 16 : kAll <= 24 ? 8 : 4;
  /// Pixels that take their products in turn, so that no sum waits for its last product.
  static constexpr int kHeldPixels = 7;

  /// kSteps input lanes of one tap, which are neighbours, from x on.
  template <TilePixels kPart, int kSteps>
  static HWY_INLINE void add_held(const TileCall& call, const float* x, const float* HWY_RESTRICT& w,
                                  LinePrefetch& prefetch, V (&acc)[kAll][kVectors], V (&odd)[kAll][kVectors]) {
    const D d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), pixel = call.x.px;
    V weights[kSteps];
    HWY_UNROLL(16) for (int step = 0; step < kSteps; ++step) {
      weights[step] = hn::LoadU(d, w + step * lanes);
      if (step * lanes % kLineFloats == 0) hwy::Prefetch(w + kWeightsAhead + step * lanes);
      if constexpr (!kPrefetchAtOnce) prefetch.next(step % kUnrolled);
    }
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      const float* next = x + row * call.x.row + kPart.begin * pixel;
      HWY_UNROLL(4) for (int first = kPart.begin; first < kPart.end; first += kHeldPixels) {
        const float* from[kHeldPixels];
        HWY_UNROLL(7) for (int i = 0; i < kHeldPixels; ++i) {
          if (first + i < kPart.end) {
            if (first + i > kPart.begin) next += pixel;
            keep_apart(next);
            from[i] = next;
          }
        }
        HWY_UNROLL(16) for (int step = 0; step < kSteps; ++step) {
          HWY_UNROLL(7) for (int i = 0; i < kHeldPixels; ++i) {
            if (first + i < kPart.end) {
              V& sum = step % 2 == 0 ? acc[row * kPixels + first + i][0] : odd[row * kPixels + first + i][0];
              sum = add_broadcast_product(d, from[i] + step, weights[step], sum);
            }
          }
        }
      }
    }
    w += kSteps * lanes;
  }

  /// The pixels kPart of all runs. If pixels are far apart, hardware prefetchers miss the next run's lines, so each
  /// step prefetches some of them. Prefetching all at once would fill the line buffers and stall the loads of weights.
  template <TilePixels kPart>
  static HWY_INLINE void accumulate(const TileCall& call, const Runs runs, const float* HWY_RESTRICT& w,
                                    V (&acc)[kAll][kVectors]) {
    [[maybe_unused]] const D d;
    const float* HWY_RESTRICT x = runs.x;
    const std::int64_t x_row = call.x.row;
    const std::int64_t x_step = runs.x_step;
    const std::int64_t steps = runs.steps;
    const std::int64_t unrolled_steps = x_step == 1 ? steps - steps % kUnrolled : 0;
    const bool prefetches = kPitch == 0 && call.x.px >= kPrefetchPitch;
    Pitch px = Pitch::of(call.x.px);
    const std::int64_t pitch = kPitch > 0 ? kPitch : call.x.px;
    [[maybe_unused]] V odd_steps[kTwoSets ? kAll : 1][kVectors];
    if constexpr (kTwoSets) {
      HWY_UNROLL(8) for (int i = 0; i < kAll; ++i) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) odd_steps[i][v] = hn::Zero(d);
      }
    }
    const auto odd = [&]() HWY_ATTR -> V(&)[kAll][kVectors] {
      if constexpr (kTwoSets) {
        return odd_steps;
      } else {
        return acc;
      }
    };
    for (std::int64_t run = 0; run < runs.count; ++run) {
      const std::int64_t distance = run + kRunsAhead < runs.count ? runs.distance : runs.last_distance;
      // A run that prefetches nothing repeats a line that is in L1.
      LinePrefetch lines{x, x, x, 0, 0};
      if (kPrefetchAtOnce && prefetches) {
        HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
          HWY_UNROLL(28) for (int p = kPart.begin; p < kPart.end; ++p) {
            hwy::Prefetch(x + distance + row * x_row + p * call.x.px);
          }
        }
      } else if (prefetches && run < runs.prefetch_count) {
        const float* first = x + distance;
        lines = {first, first, first + (kPixels - 1 + call.prefetch.halo) * call.x.px, call.x.px, x_row};
      }
      std::int64_t held = 0;
      if constexpr (kHoldsWeights) {
        for (; held + kHeldSteps <= unrolled_steps; held += kHeldSteps) {
          add_held<kPart, kHeldSteps>(call, x + held, w, lines, acc, odd());
        }
        if constexpr (kHeldSteps > kUnrolled) {
          for (; held < unrolled_steps; held += kUnrolled) {
            add_held<kPart, kUnrolled>(call, x + held, w, lines, acc, odd());
          }
        }
      }
      const float* base[kRows][kBases];
      HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
        HWY_UNROLL(7) for (int b = 0; b < kBases; ++b) base[row][b] = x + held + row * x_row + b * kBasePixels * pitch;
      }
      if constexpr (!kHoldsWeights) {
        for (std::int64_t left = unrolled_steps; left > 0; left -= kUnrolled) {
          multiply_add<kPart, kUnrolled>(base, px, kUnrolled, w, lines, acc, odd());
        }
      }
      for (std::int64_t left = steps - unrolled_steps; left > 0; --left) {
        multiply_add<kPart, 1>(base, px, x_step, w, lines, acc, acc);
      }
      x += runs.x_run;
    }
    if constexpr (kTwoSets) {
      HWY_UNROLL(8) for (int i = 0; i < kAll; ++i) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::Add(acc[i][v], odd_steps[i][v]);
      }
    }
  }

  /// kSteps products of pixel kPixel of each row, if the tile has it.
  template <int kPixel, int kSteps>
  static HWY_INLINE void add_pixel(const float* const (&base)[kRows][kBases], const PixelPitch& px,
                                   const V (&weights)[kSteps][kVectors], V (&acc)[kAll][kVectors]) {
    if constexpr (kPixel < kPixels) {
      HWY_UNROLL(4) for (int step = 0; step < kSteps; ++step) {
        HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
          const V input = hn::Set(D(), px.at(base[row][kPixel / kBasePixels], kPixel % kBasePixels)[step]);
          HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
            V& sum = acc[row * kPixels + kPixel][v];
            sum = hn::MulAdd(input, weights[step][v], sum);
          }
        }
      }
    }
  }

  /// The next kSteps steps of one tap at the pixels from `begin` on, or with kUpTo before `begin`: a jump into the
  /// products of all pixels. Moves the addresses past them.
  template <bool kUpTo, int kSteps>
  static HWY_INLINE void add_part(std::int64_t begin, const float* (&base)[kRows][kBases], PixelPitch& px,
                                  const float* HWY_RESTRICT& w, V (&acc)[kAll][kVectors]) {
    const D d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    V weights[kSteps][kVectors];
    HWY_UNROLL(4) for (int step = 0; step < kSteps; ++step) {
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) weights[step][v] = hn::LoadU(d, w + (step * kVectors + v) * lanes);
    }
    px.hide(kPixels);
    // Case n has the pixels that remain: those before n, or n pixels up to the tile's end.
#define GABLE_TILE_PIXEL(n)                                                                             \
  case n:                                                                                               \
    if constexpr (n <= kPixels) add_pixel<kUpTo ? n - 1 : kPixels - n, kSteps>(base, px, weights, acc); \
    [[fallthrough]];
    switch (kUpTo ? begin : kPixels - begin) {
      GABLE_TILE_PIXEL(28)
      GABLE_TILE_PIXEL(27)
      GABLE_TILE_PIXEL(26)
      GABLE_TILE_PIXEL(25)
      GABLE_TILE_PIXEL(24)
      GABLE_TILE_PIXEL(23)
      GABLE_TILE_PIXEL(22)
      GABLE_TILE_PIXEL(21)
      GABLE_TILE_PIXEL(20)
      GABLE_TILE_PIXEL(19)
      GABLE_TILE_PIXEL(18)
      GABLE_TILE_PIXEL(17)
      GABLE_TILE_PIXEL(16)
      GABLE_TILE_PIXEL(15)
      GABLE_TILE_PIXEL(14)
      GABLE_TILE_PIXEL(13)
      GABLE_TILE_PIXEL(12)
      GABLE_TILE_PIXEL(11)
      GABLE_TILE_PIXEL(10)
      GABLE_TILE_PIXEL(9)
      GABLE_TILE_PIXEL(8)
      GABLE_TILE_PIXEL(7)
      GABLE_TILE_PIXEL(6)
      GABLE_TILE_PIXEL(5)
      GABLE_TILE_PIXEL(4)
      GABLE_TILE_PIXEL(3)
      GABLE_TILE_PIXEL(2)
      GABLE_TILE_PIXEL(1)
      default:
        break;
    }
#undef GABLE_TILE_PIXEL
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(7) for (int b = 0; b < kBases; ++b) {
        const float* next = base[row][b] + kSteps;
        keep_apart(next);
        base[row][b] = next;
      }
    }
    w += kSteps * kVectors * lanes;
  }

  /// Steps that share a jump: four or two, if the registers hold their weights beside the accumulators and an input.
  static constexpr int steps_of_jump() {
    if (!kFastCopies) return 1;
    const auto fits = [](int steps) { return (kAll + steps) * kVectors < kVectorRegisters; };
    return fits(4) ? 4 : fits(2) ? 2 : 1;
  }

  /// `steps` steps of such a tap.
  template <bool kUpTo>
  static HWY_INLINE void accumulate_part(const TileCall& call, const float* x, std::int64_t steps, std::int64_t begin,
                                         const float* HWY_RESTRICT& w, V (&acc)[kAll][kVectors]) {
    constexpr int kTogether = steps_of_jump();
    PixelPitch px = PixelPitch::of(call.x.px);
    const float* base[kRows][kBases];
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(7) for (int b = 0; b < kBases; ++b) base[row][b] = x + row * call.x.row + b * kBasePixels * call.x.px;
    }
    std::int64_t step = 0;
    if constexpr (kTogether > 1) {
      for (; step + kTogether <= steps; step += kTogether) add_part<kUpTo, kTogether>(begin, base, px, w, acc);
    }
    for (; step < steps; ++step) add_part<kUpTo, 1>(begin, base, px, w, acc);
  }

  /// Taps that read padding at the tile's first pixels.
  static HWY_INLINE void left_taps(const TileCall& call, const float* x, std::int64_t lanes,
                                   const float* HWY_RESTRICT& w, V (&acc)[kAll][kVectors]) {
    const TapWindow& taps = call.taps;
    for (std::int64_t kw = 0; kw < taps.left; ++kw) {
      const std::int64_t skipped = ceil_div(-taps.first_column - kw * taps.dilation, taps.stride);
      accumulate_part<false>(call, x + kw * call.x.kw, lanes, std::min<std::int64_t>(skipped, kPixels), w, acc);
    }
  }
  /// Taps that read padding at the tile's last pixels.
  static HWY_INLINE void right_taps(const TileCall& call, const float* x, std::int64_t lanes,
                                    const float* HWY_RESTRICT& w, V (&acc)[kAll][kVectors]) {
    const TapWindow& taps = call.taps;
    for (std::int64_t kw = taps.right; kw < call.weights.kernel_w; ++kw) {
      const std::int64_t inside = ceil_div(taps.columns - taps.first_column - kw * taps.dilation, taps.stride);
      accumulate_part<true>(call, x + kw * call.x.kw, lanes, std::max<std::int64_t>(inside, 0), w, acc);
    }
  }

  /// The taps of one kernel row over `lanes` input lanes: one run of steps where taps and lanes are neighbours in the
  /// input, else a run a tap. `distance`: to what is prefetched. kMayJump: whether taps may skip several pixels.
  template <bool kMayJump>
  static HWY_INLINE void kernel_row(const TileCall& call, const float* x, std::int64_t distance,
                                    const float* HWY_RESTRICT& w, std::int64_t lanes, V (&acc)[kAll][kVectors]) {
    const std::int64_t step = call.x.lane;
    const std::int64_t kw = call.x.kw;
    const std::int64_t left = call.taps.left;
    const std::int64_t right = call.taps.right;
    const std::int64_t kernel_w = call.weights.kernel_w;
    const std::int64_t prefetch_taps = call.prefetch.prefetch_taps;
    // Taps that skip any number of pixels by a jump also skip one.
    const bool jumps = kMayJump && (call.taps.several || !kFastCopies);
    if constexpr (kPitch > 0) {
    } else if (jumps) {
      left_taps(call, x, lanes, w, acc);
    } else if constexpr (kFastCopies) {
      if (left > 0)
        accumulate<kWithoutFirst>(call, {x, step, kw, left, lanes, prefetch_taps, distance, distance}, w, acc);
    }
    const bool one_run = kw == lanes * step && left == 0 && right == kernel_w;
    const Runs whole =
        one_run ? Runs{x, step, 0, 1, lanes * kernel_w, 1, distance, distance}
                : Runs{x + left * kw, step, kw, right - left, lanes, prefetch_taps - left, distance, distance};
    accumulate<kWhole>(call, whole, w, acc);
    if constexpr (kPitch > 0) {
    } else if (jumps) {
      right_taps(call, x, lanes, w, acc);
    } else if constexpr (kFastCopies) {
      if (right < kernel_w)
        accumulate<kWithoutLast>(call, {x + right * kw, step, kw, kernel_w - right, lanes, 0, distance, distance}, w,
                                 acc);
    }
  }

  /// Whether there is a single tap without padding: all input tiles are then runs of one loop.
  static bool single_tap(const TileCall& call) {
    const WeightPanel& w = call.weights;
    return w.kernel_h == 1 && w.kernel_w == 1 && w.last_in_lanes == w.in_lanes && call.taps.rows.begin == 0 &&
           call.taps.rows.end == 1 && call.taps.left == 0 && call.taps.right == 1;
  }
  /// The last runs prefetch the next tile's pixels.
  static HWY_INLINE void reduce_single_tap(const TileCall& call, V (&acc)[kAll][kVectors]) {
    const WeightPanel& panel = call.weights;
    const float* weights = panel.weights;
    const std::int64_t next_pixels = kPixels * call.x.px + (kRunsAhead - panel.in_tiles) * call.x.in_tile;
    accumulate<kWhole>(call,
                       {call.x.x, call.x.lane, call.x.in_tile, panel.in_tiles, panel.in_lanes, panel.in_tiles,
                        kRunsAhead * call.x.in_tile, next_pixels},
                       weights, acc);
  }

  static bool prefetches_output(const TileCall& call) { return call.prefetch.output && !call.partial.store; }
  static bool prefetches_weights(const TileCall& call) { return call.ahead.first != nullptr; }
  static bool is_plain(const TileCall& call) {
    return !prefetches_output(call) && !prefetches_weights(call) && !call.taps.several;
  }
  /// Prefetches the output's lines of kOutputsAhead pixels of each row, for the tile's kernel row `row`.
  static HWY_INLINE void prefetch_output(const TileCall& call, std::int64_t row) {
    const int pixels = call.partial.above != nullptr ? kPixels / 2 : kPixels;
    const int begin = static_cast<int>(std::min<std::int64_t>(row * kOutputsAhead, pixels));
    const int end = std::min(begin + kOutputsAhead, pixels);
    const int lanes = static_cast<int>(hn::Lanes(D()));
    for (int p = begin; p < end; ++p) {
      HWY_UNROLL(2) for (int r = 0; r < kRows; ++r) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
          if (v * lanes % kLineFloats == 0) prefetch_for_writing(call.y.y + r * call.y.row + p * call.y.px + v * lanes);
        }
      }
    }
  }
  /// Prefetches what falls to `floats` of the tile's weights, `at` floats from the panel's first.
  static HWY_INLINE void prefetch_weights(const TileCall& call, std::int64_t at, std::int64_t floats) {
    const float* first = call.ahead.first + at / kAheadShare;
    for (std::int64_t i = 0; i < floats / kAheadShare; i += kLineFloats) __builtin_prefetch(first + i, 0, 2);
  }

  /// Every tap of every input tile. Kernel rows prefetch the lines that will be stored: else the stores would still
  /// wait for their lines while the next tile's stores fill the store queue. Plain tiles prefetch neither these nor
  /// weights, and skip at most one pixel of padding: in a loop of their own they take up to 3 % less time.
  template <bool kPlain>
  static HWY_INLINE void reduce_taps(const TileCall& call, V (&acc)[kAll][kVectors]) {
    const WeightPanel& panel = call.weights;
    const TapRange rows = call.taps.rows;
    const std::int64_t vector_floats = kVectors * static_cast<std::int64_t>(hn::Lanes(D()));
    for (std::int64_t tile = 0; tile < panel.in_tiles; ++tile) {
      const std::int64_t lanes = tile + 1 == panel.in_tiles ? panel.last_in_lanes : panel.in_lanes;
      const float* weights = panel.weights + tile * panel.kernel_h * panel.kernel_w * panel.in_lanes * vector_floats +
                             rows.begin * panel.kernel_w * lanes * vector_floats;
      for (std::int64_t kh = rows.begin; kh < rows.end; ++kh) {
        const float* x = call.x.x + tile * call.x.in_tile + kh * call.x.kh;
        const std::int64_t to_next =
            kh + 1 < rows.end ? call.x.kh : call.x.in_tile - (rows.end - 1 - rows.begin) * call.x.kh;
        if constexpr (!kPlain) {
          if (prefetches_output(call)) prefetch_output(call, tile * (rows.end - rows.begin) + kh - rows.begin);
          if (prefetches_weights(call))
            prefetch_weights(call, weights - panel.weights, lanes * panel.kernel_w * vector_floats);
        }
        kernel_row<!kPlain>(call, x, to_next, weights, lanes, acc);
      }
    }
  }

  static HWY_INLINE float* partial_at(const TileCall& call, int index, int v) {
    return call.partial.sums + (index / kPixels) * call.partial.row + (index % kPixels) * call.partial.px +
           v * static_cast<int>(hn::Lanes(D()));
  }

  /// Partial sums of earlier input channels, or the bias, or zero.
  static HWY_INLINE void start(const TileCall& call, V (&acc)[kAll][kVectors]) {
    const D d;
    const int lanes = static_cast<int>(hn::Lanes(d));
    if (call.partial.load) {
      HWY_UNROLL(28) for (int i = 0; i < kAll; ++i) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::LoadU(d, partial_at(call, i, v));
      }
      return;
    }
    V first[kVectors];
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      first[v] = call.y.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, call.y.bias + v * lanes);
    }
    HWY_UNROLL(28) for (int i = 0; i < kAll; ++i) {
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) acc[i][v] = first[v];
    }
  }

  /// Prefetches the lines that will be stored: a single tap takes too little time for the stores to hide their misses.
  static HWY_INLINE void prefetch_output(const TileCall& call) {
    const int lanes = static_cast<int>(hn::Lanes(D()));
    for (int p = 0; p < kPixels / kRows; ++p) {
      for (int v = 0; v < kVectors; ++v) hwy::Prefetch(call.y.y + p * call.y.px + v * lanes);
    }
  }

  /// The maximum of a 2×2 window. The upper row was computed by the previous tile.
  static HWY_INLINE V largest_with_above(const TileCall& call, const V (&acc)[kAll][kVectors], int p, int v) {
    const D d;
    const float* above = call.partial.above + 2 * p * call.partial.px + v * static_cast<int>(hn::Lanes(d));
    return nan_max(d, nan_max(d, hn::LoadU(d, above), hn::LoadU(d, above + call.partial.px)),
                   nan_max(d, acc[2 * p][v], acc[2 * p + 1][v]));
  }

  /// Pool, activation and store of the valid lanes.
  template <class Store>
  static HWY_INLINE void finish(const TileCall& call, const V (&acc)[kAll][kVectors], const Store& store) {
    const D d;
    const int lanes = static_cast<int>(hn::Lanes(d));
    const OutputTile y = call.y;  // a copy, so that the compiler knows that stores do not change it
    const V least = hn::Set(d, y.relu ? 0.0f : -INFINITY);
    const auto finish_pixel = [&](V value, int row, int p, int v) HWY_ATTR {
      store(d, at_least(d, least, value), y.y + row * y.row + p * y.px + v * lanes, y.lanes - v * lanes);
    };
    if (kRows == 1 && kPixels % 2 == 0 && call.partial.above != nullptr) {
      HWY_UNROLL(28) for (int p = 0; p < kPixels / 2; ++p) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) finish_pixel(largest_with_above(call, acc, p, v), 0, p, v);
      }
    } else {
      HWY_UNROLL(28) for (int i = 0; i < kAll; ++i) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) finish_pixel(acc[i][v], i / kPixels, i % kPixels, v);
      }
    }
  }

  static HWY_INLINE void end(const TileCall& call, const V (&acc)[kAll][kVectors]) {
    const D d;
    if (call.partial.store) {
      HWY_UNROLL(28) for (int i = 0; i < kAll; ++i) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[i][v], d, partial_at(call, i, v));
      }
    } else if (call.y.non_temporal) {
      finish(call, acc, StreamVector());
    } else if (call.y.lanes == kVectors * static_cast<int>(hn::Lanes(d))) {
      finish(call, acc, StoreVector());
    } else {
      finish(call, acc, StoreValidLanes());
    }
  }

  /// Two functions, so that each has all registers for its loop.
  static HWY_NOINLINE void run_single_tap(const TileCall& call) {
    V acc[kAll][kVectors];
    if (!call.y.non_temporal) prefetch_output(call);
    start(call, acc);
    reduce_single_tap(call, acc);
    end(call, acc);
  }
  static HWY_NOINLINE void run_taps(const TileCall& call) {
    V acc[kAll][kVectors];
    start(call, acc);
    if constexpr (kFastCopies) {
      if (is_plain(call)) {
        reduce_taps<true>(call, acc);
      } else {
        reduce_taps<false>(call, acc);
      }
    } else {
      reduce_taps<false>(call, acc);
    }
    end(call, acc);
  }
  static void run(const TileCall& call) {
    if constexpr (kFastCopies && kPitch == 0) {
      if (single_tap(call)) return run_single_tap(call);
    }
    run_taps(call);
  }
};

/// Fills table[vectors][pixels] for pixels = kPixels, kPixels - 1, …
template <int kRows, int kPixels, std::size_t kSize>
void fill_tiles(TileFunction (&table)[kMaxTileVectors + 1][kSize]) {
  table[1][kPixels] = &Tile<kRows, kPixels, 1>::run;
  table[2][kPixels] = &Tile<kRows, kPixels, 2>::run;
#if HWY_TARGET == HWY_AVX3
  table[kHalfTileVector][kPixels] = &Tile<kRows, kPixels, 1, hn::Half<hn::ScalableTag<float>>>::run;
#endif
  if constexpr (kPixels > 1) fill_tiles<kRows, kPixels - 1>(table);
}

/// Fills the tiles of one vector and of half a vector, which have more pixels than fill_tiles()'s: kPixels, kPixels -
/// 1, …
template <int kPixels, std::size_t kSize>
void fill_narrow_tiles([[maybe_unused]] TileFunction (&table)[kMaxTileVectors + 1][kSize]) {
  if constexpr (kPixels > kTilePixels) {
    table[1][kPixels] = &Tile<1, kPixels, 1>::run;
#if HWY_TARGET == HWY_AVX3
    table[kHalfTileVector][kPixels] = &Tile<1, kPixels, 1, hn::Half<hn::ScalableTag<float>>>::run;
#endif
    fill_narrow_tiles<kPixels - 1>(table);
  }
}

/// Fills table[pixels] for pixels = kPixels, kPixels - 1, … with tiles of near pixels.
template <int kRows, int kPixels>
void fill_near_tiles(TileFunction* table) {
  table[kPixels] = &Tile<kRows, kPixels, 1, hn::ScalableTag<float>, kNearPitch>::run;
  if constexpr (kPixels > 1) fill_near_tiles<kRows, kPixels - 1>(table);
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_TILE_INL_H_
