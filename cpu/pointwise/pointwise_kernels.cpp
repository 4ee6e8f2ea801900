// The 1×1 convolution's micro-kernel, compiled once a target: one register tile of pixels × output lanes through all
// input channels, panel after panel.
// Tile: 14 pixels × 2 vectors with 32 registers (28 accumulators + 2 weights + 1 broadcast), 6 × 2 with 16; for outputs
// of three vectors 9 × 3 or 4 × 3, with 12 loads for 27 FMA where 14 × 2 and then 14 × 1 have 31 for 42; and 6 × 4 with
// 32, which loads fewer inputs and writes longer pieces, but streams weights twice as fast. One or two pixels (a
// matrix-vector product) take 8 vectors from four streams of weights: the hardware prefetcher follows several streams
// further ahead. Inner step: one channel, 28 FMA in 14 cycles at 2 a cycle. On Intel scalar instructions take a share
// of the FMA's two ports, so four channels are unrolled with constant offsets, and pixels share base addresses
// (broadcast_products-inl.h). Prefetches. A sum of 64 channels takes 900 cycles, so lines from L3 are prefetched
// evenly, before each run of 16 channels: some lines that this tile stores, for writing, and some that later tiles read
// (PrefetchLines).
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/pointwise/pointwise_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/pointwise/pointwise_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "cpu/common/broadcast_products-inl.h"
#include "cpu/common/core.h"
#include "cpu/common/pixel_pitch-inl.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kWidest = 14;
constexpr int kWidestOfThree = HWY_TARGET == HWY_AVX3 ? 9 : 0;
constexpr int kWidestOfFour = 6;
constexpr int kWidestOfEight = 2;
#else
constexpr int kWidest = 6;
constexpr int kWidestOfThree = 4;
constexpr int kWidestOfFour = 0;
constexpr int kWidestOfEight = 1;
#endif

/// Vectors of a panel whose tiles follow one another in one call. A 6 x 2 tile of 16 channels takes 96 cycles, of which
/// its call and prefetches would be another half.
constexpr int kMostRunVectors = kWidest < 14 ? kThreeVectors : kOneVector;

constexpr int kUnrolled = 4;  // channels; a run is whole times as many
constexpr std::int64_t kLineBytes = 64;

using WholeVector = hn::ScalableTag<float>;

/// D: the tag of its vectors, whole ones or halves.
template <int kPixels, int kVectors, class D = WholeVector>
struct PointwiseTile {
  using V = hn::Vec<D>;
  static constexpr int kBasePixels = base_pixels(kVectors);
  static constexpr int kBases = (kPixels + kBasePixels - 1) / kBasePixels;
  /// Panels that the tile takes side by side, each a stream of weights.
  static constexpr int kStreams = (kVectors + kPanelVectors - 1) / kPanelVectors;
  /// Vectors of a stream: of three vectors, the last stream has one.
  static constexpr int stream_vectors(int stream) {
    return kVectors - stream * kPanelVectors < kPanelVectors ? kVectors - stream * kPanelVectors : kPanelVectors;
  }
  /// Sets of accumulators that take channels in turn: fewer than 8 in all would wait for the FMA's latency.
  static constexpr int kSets = kPixels * kVectors >= 8 ? 1 : kPixels * kVectors >= 4 ? 2 : 4;
  /// Output pixels that are prefetched before a run: all pixels within two runs, or within four runs if there are four.
  static constexpr int kManyRuns = 4;
  static constexpr int kStoredOfFewRuns = (kPixels + 1) / 2;
  static constexpr int kStoredOfManyRuns = (kPixels + kManyRuns - 1) / kManyRuns;
  /// Runs between two rounds of prefetches. A run of a 14 x 2 tile takes 450 cycles. One of a 6 x 2 tile takes less
  /// than 100, and the end of its loop with a round of prefetches would take a tenth of that.
  static constexpr int kRunsTogether = kWidest < 14 ? 4 : 1;

  static constexpr std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }

  using Bases = const float* [kBases];
  using Streams = const float* [kStreams];

  /// The next kSteps channels.
  template <int kSteps>
  static HWY_INLINE void add(Bases& base, PixelPitch& px, Streams& stream, V (&acc)[kSets][kPixels][kVectors]) {
    const D d;
    HWY_UNROLL(4) for (int step = 0; step < kSteps; ++step) {
      V weights[kVectors];
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        const int s = v / kPanelVectors;
        weights[v] = hn::LoadU(d, stream[s] + (step * stream_vectors(s) + v % kPanelVectors) * lanes());
      }
      px.hide(kPixels);
      HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
        const float* x = px.at(base[p / kBasePixels], p % kBasePixels) + step;
        if constexpr (has_broadcast_products(kVectors)) {
          add_products_of_pixel(d, p, x, weights, acc[step % kSets][p]);
          continue;
        }
        [[maybe_unused]] const V input = hn::Set(d, *x);
        HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
          V& sum = acc[step % kSets][p][v];
          if constexpr (kVectors == 1) {
            sum = add_broadcast_product(d, x, weights[v], sum);
          } else {
            sum = add_product_of_tile<kPixels * kVectors>(d, input, weights[v], sum);
          }
        }
      }
    }
    HWY_UNROLL(7) for (int b = 0; b < kBases; ++b) {
      const float* next = base[b];  // a copy: gcc would keep an array behind the asm in memory
      move_by<kSteps>(next);
      base[b] = next;
    }
    HWY_UNROLL(4) for (int s = 0; s < kStreams; ++s) {
      const float* next = stream[s] + kSteps * stream_vectors(s) * lanes();
      keep_apart(next);
      stream[s] = next;
    }
  }

  /// Tiles of one vector keep a run's weights in registers on AVX-512. Each product then reads its input at a constant
  /// distance from its pixel, while an index would cost it a second micro-operation.
  static constexpr bool kHoldsRuns = HWY_TARGET == HWY_AVX3 && kVectors == 1;
  /// Pixels that take their products in turn, so that no sum waits for its last product.
  static constexpr int kPixelsInTurn = 7;

  /// The run of channels from `channel` on.
  static HWY_INLINE void add_run(const PointwiseInput& in, std::int64_t channel, const float* weights,
                                 V (&acc)[kSets][kPixels][kVectors]) {
    const D d;
    V w[kPointwiseRun];
    HWY_UNROLL(16) for (int step = 0; step < kPointwiseRun; ++step) {
      w[step] = hn::LoadU(d, weights + (channel + step) * lanes());
    }
    const float* next = in.x + channel;
    HWY_UNROLL(2) for (int first = 0; first < kPixels; first += kPixelsInTurn) {
      const float* from[kPixelsInTurn];
      HWY_UNROLL(7) for (int i = 0; i < kPixelsInTurn && first + i < kPixels; ++i) {
        if (first + i > 0) next += in.pixel;
        keep_apart(next);
        from[i] = next;
      }
      HWY_UNROLL(16) for (int step = 0; step < kPointwiseRun; ++step) {
        HWY_UNROLL(7) for (int i = 0; i < kPixelsInTurn && first + i < kPixels; ++i) {
          V& sum = acc[step % kSets][first + i][0];
          sum = add_broadcast_product(d, from[i] + step, w[step], sum);
        }
      }
    }
  }

  /// All channels of a panel, with prefetches before each run.
  static HWY_INLINE void reduce(const PointwiseCall& call, const float* weights, const float* prefetch, char* y,
                                V (&acc)[kSets][kPixels][kVectors]) {
    Bases base;
    Streams stream;
    HWY_UNROLL(4) for (int s = 0; s < kStreams; ++s) {
      stream[s] = weights + s * kPanelVectors * lanes() * call.in.channels;
    }
    HWY_UNROLL(7) for (int b = 0; b < kBases; ++b) base[b] = call.in.x + b * kBasePixels * call.in.pixel;
    PixelPitch px = PixelPitch::of(call.in.pixel);
    const std::int64_t stored = call.in.channels < kManyRuns * kPointwiseRun ? kStoredOfFewRuns : kStoredOfManyRuns;
    const auto element = static_cast<std::int64_t>(size_of(call.out.type));
    const std::int64_t y_pixel = call.out.pixel * element, y_bytes = kVectors * lanes() * element;
    char* const y_end = call.out.non_temporal ? y : y + kPixels * y_pixel;
    for (std::int64_t left = call.in.channels; left > 0; left -= kRunsTogether * kPointwiseRun) {
      const std::int64_t steps = std::min(left, kRunsTogether * kPointwiseRun);
      for (std::int64_t run = 0; run < steps; run += kPointwiseRun) {
        for (std::int64_t i = 0; i < call.prefetch.lines; ++i) hwy::Prefetch(prefetch + i * call.prefetch.line_step);
        prefetch += call.prefetch.run_step;
        for (std::int64_t i = 0; i < stored && y < y_end; ++i) {
          for (std::int64_t at = 0; at < y_bytes; at += kLineBytes)
            prefetch_for_writing(reinterpret_cast<float*>(y + at));
          y += y_pixel;
        }
      }
      if constexpr (kHoldsRuns) {
        if (steps == kPointwiseRun) {
          add_run(call.in, call.in.channels - left, weights, acc);
          continue;
        }
        // The last channels, fewer than a run.
        HWY_UNROLL(7) for (int b = 0; b < kBases; ++b) base[b] += call.in.channels - left;
        stream[0] += (call.in.channels - left) * lanes();
      }
      for (std::int64_t times = steps / kUnrolled; times > 0; --times) add<kUnrolled>(base, px, stream, acc);
      for (std::int64_t rest = steps % kUnrolled; rest > 0; --rest) add<1>(base, px, stream, acc);
    }
  }

  static HWY_INLINE void start(const float* bias, V (&acc)[kSets][kPixels][kVectors]) {
    const D d;
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      const V first = hn::LoadU(d, bias + v * lanes());
      HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
        acc[0][p][v] = first;
        HWY_UNROLL(4) for (int set = 1; set < kSets; ++set) acc[set][p][v] = hn::Zero(d);
      }
    }
  }

  /// Adds the other sets to the first.
  static HWY_INLINE void add_sets(V (&acc)[kSets][kPixels][kVectors]) {
    HWY_UNROLL(4) for (int set = 1; set < kSets; ++set) {
      HWY_UNROLL(7) for (int p = 0; p < kPixels; ++p) {
        HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) acc[0][p][v] = hn::Add(acc[0][p][v], acc[set][p][v]);
      }
    }
  }

  /// `store(value, y, lanes)` stores the valid lanes of one vector.
  template <class T, class Store>
  static HWY_INLINE void finish(const PointwiseCall& call, T* y, std::int64_t valid, const V (&acc)[kPixels][kVectors],
                                const Store& store) {
    const D d;
    const V least = hn::Set(d, call.out.least);
    const std::int64_t y_pixel = call.out.pixel;  // a copy, so that the compiler knows that stores do not change it
    HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        store(at_least(d, least, acc[p][v]), y + v * lanes(), valid - v * lanes());
      }
      y += y_pixel;
    }
  }

  template <DType kType>
  static HWY_INLINE void end_as(const PointwiseCall& call, Storage<kType>* y, std::int64_t valid,
                                const V (&acc)[kPixels][kVectors]) {
    const D d;
    using T = Storage<kType>;
    if (valid >= kVectors * lanes()) {
      finish(call, y, valid, acc, [d](V value, T* to, std::int64_t) HWY_ATTR { store_f32_as<kType>(d, value, to); });
    } else {
      finish(call, y, valid, acc, [d](V value, T* to, std::int64_t rest) HWY_ATTR {
        if (rest > 0) store_first_f32_as<kType>(d, value, to, static_cast<int>(std::min(rest, lanes())));
      });
    }
  }

  static HWY_INLINE void end(const PointwiseCall& call, void* y, std::int64_t valid,
                             const V (&acc)[kPixels][kVectors]) {
    const D d;
    if (call.out.non_temporal) {
      finish(call, static_cast<float*>(y), valid, acc,
             [d](V value, float* to, std::int64_t) HWY_ATTR { hn::Stream(value, d, to); });
    } else if (HWY_LIKELY(call.out.type == DType::f32)) {
      end_as<DType::f32>(call, static_cast<float*>(y), valid, acc);
    } else if (call.out.type == DType::f16) {
      end_as<DType::f16>(call, static_cast<std::uint16_t*>(y), valid, acc);
    } else {
      end_as<DType::bf16>(call, static_cast<std::uint16_t*>(y), valid, acc);
    }
  }

  static void run_of_tiles(const PointwiseCall& call) {
    const std::int64_t x_tile = kPixels * call.in.pixel;
    const std::int64_t y_tile = kPixels * call.out.pixel * static_cast<std::int64_t>(size_of(call.out.type));
    const float* x = call.in.x;
    char* y = static_cast<char*>(call.out.y);
    for (std::int64_t tile = 0; tile < call.tiles; ++tile, x += x_tile, y += y_tile) {
      V acc[kSets][kPixels][kVectors];
      start(call.out.bias, acc);
      Bases base;
      HWY_UNROLL(7) for (int b = 0; b < kBases; ++b) base[b] = x + b * kBasePixels * call.in.pixel;
      Streams stream;
      HWY_UNROLL(2) for (int s = 0; s < kStreams; ++s) {
        stream[s] = call.panels.weights + s * kPanelVectors * lanes() * call.in.channels;
      }
      PixelPitch px = PixelPitch::of(call.in.pixel);
      std::int64_t channel = 0;
      if constexpr (kHoldsRuns) {
        PointwiseInput in = call.in;
        in.x = x;
        for (; channel + kPointwiseRun <= call.in.channels; channel += kPointwiseRun) {
          add_run(in, channel, call.panels.weights, acc);
        }
        HWY_UNROLL(7) for (int b = 0; b < kBases; ++b) base[b] += channel;
        stream[0] += channel * lanes();
      }
      for (; channel + kUnrolled <= call.in.channels; channel += kUnrolled) add<kUnrolled>(base, px, stream, acc);
      for (; channel < call.in.channels; ++channel) add<1>(base, px, stream, acc);
      add_sets(acc);
      end(call, y, call.out.lanes, acc[0]);
    }
  }

  /// A pass of held weights over some pixels.
  struct HeldPass {
    std::int64_t first_channel;
    bool last;
    std::int64_t first_pixel, pixels;  // whole tiles
    float* sums;                       // of these pixels, between passes
  };

  /// kSteps channels, whose weights stay in registers. An input is read at a constant distance from its pixel.
  template <int kSteps>
  static HWY_INLINE void add_held(const PointwiseCall& call, const HeldPass& pass) {
    const D d;
    V weights[kSteps];
    HWY_UNROLL(24) for (int step = 0; step < kSteps; ++step) {
      weights[step] = hn::LoadU(d, call.panels.weights + (pass.first_channel + step) * lanes());
    }
    const V bias = hn::LoadU(d, call.out.bias);
    const std::int64_t x_pixel = call.in.pixel;
    const std::int64_t y_tile = kPixels * call.out.pixel * static_cast<std::int64_t>(size_of(call.out.type));
    const float* x = call.in.x + pass.first_pixel * x_pixel + pass.first_channel;
    char* y = static_cast<char*>(call.out.y) + pass.first_pixel / kPixels * y_tile;
    float* sums = pass.sums;
    for (std::int64_t pixel = 0; pixel < pass.pixels; pixel += kPixels, y += y_tile, sums += kPixels * lanes()) {
      V acc[kPixels][1];
      const float* from[kPixels];
      HWY_UNROLL(8) for (int p = 0; p < kPixels; ++p) {
        const float* here = x;
        keep_apart(here);
        from[p] = here;
        x += x_pixel;
        acc[p][0] = pass.first_channel == 0 ? bias : hn::LoadU(d, sums + p * lanes());
      }
      HWY_UNROLL(24) for (int step = 0; step < kSteps; ++step) {
        HWY_UNROLL(8) for (int p = 0; p < kPixels; ++p) {
          acc[p][0] = add_broadcast_product(d, from[p] + step, weights[step], acc[p][0]);
        }
      }
      if (pass.last) {
        end(call, y, call.out.lanes, acc);
      } else {
        HWY_UNROLL(8) for (int p = 0; p < kPixels; ++p) hn::StoreU(acc[p][0], d, sums + p * lanes());
      }
    }
  }

  /// The next channels of a pass: as many as there are weights for, or fewer that divide the rest.
  static std::int64_t held_channels(std::int64_t left, std::int64_t most) {
    const std::int64_t channels = std::min(left, most);
    return channels >= 4 ? channels / 4 * 4 : channels >= 2 ? 2 : 1;
  }

  static void add_held(const PointwiseCall& call, const HeldPass& pass, std::int64_t channels) {
    switch (channels) {
      case 24:
        return add_held<24>(call, pass);
      case 20:
        return add_held<20>(call, pass);
      case 16:
        return add_held<16>(call, pass);
      case 12:
        return add_held<12>(call, pass);
      case 8:
        return add_held<8>(call, pass);
      case 4:
        return add_held<4>(call, pass);
      case 2:
        return add_held<2>(call, pass);
      default:
        return add_held<1>(call, pass);
    }
  }

  /// Passes of equal numbers of channels, over as many pixels as L1 keeps until the last pass.
  static void held(const PointwiseCall& call) {
    constexpr std::int64_t kMostPixels = 64, kL1Floats = 6144;
    HWY_ALIGN float sums[kMostPixels * kLineBytes / sizeof(float)];  // of vectors of a line
    const std::int64_t pixels = call.tiles * kPixels;
    const std::int64_t block =
        std::clamp(kL1Floats / call.in.pixel / kPixels * kPixels, std::int64_t{kPixels}, kMostPixels);
    const std::int64_t passes = (call.in.channels + kMostHeldWeights - 1) / kMostHeldWeights;
    const std::int64_t most = ((call.in.channels + passes - 1) / passes + 3) / 4 * 4;
    for (std::int64_t first = 0; first < pixels; first += block) {
      HeldPass pass{0, false, first, std::min(block, pixels - first), sums};
      while (pass.first_channel < call.in.channels) {
        const std::int64_t left = call.in.channels - pass.first_channel, channels = held_channels(left, most);
        pass.last = channels == left;
        add_held(call, pass, channels);
        pass.first_channel += channels;
      }
    }
  }

  static void run(const PointwiseCall& call) {
    const std::int64_t panel_lanes = kVectors * lanes();
    const float* weights = call.panels.weights;
    const float* bias = call.out.bias;
    const float* prefetch = call.prefetch.from;
    char* y = static_cast<char*>(call.out.y);
    for (std::int64_t panel = 1; panel <= call.panels.count; ++panel) {
      V acc[kSets][kPixels][kVectors];
      start(bias, acc);
      reduce(call, weights, prefetch, y, acc);
      add_sets(acc);
      end(call, y, panel < call.panels.count ? panel_lanes : call.out.lanes, acc[0]);
      weights += panel_lanes * call.in.channels;
      bias += panel_lanes;
      prefetch += call.prefetch.panel_step;
      y += panel_lanes * static_cast<std::int64_t>(size_of(call.out.type));
    }
  }
};

/// A run of elements. Its last vector is stored whole: what tiles then broadcast from it must come from one store, and
/// the parts of the masked store of a few lanes would have to reach L1 first.
template <DType kType>
HWY_INLINE void widen_run(const Storage<kType>* x, std::int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_as_f32<kType>(d, x + i), d, to + i);
  if (i < count) hn::StoreU(load_first_as_f32<kType>(d, x + i, static_cast<int>(count - i)), d, to + i);
}

template <DType kType>
void widen_pixels(const WidenPixelsCall& caller) {
  const WidenPixelsCall call = caller;
  const auto* x = static_cast<const Storage<kType>*>(call.x);
  if (call.x_pixel == call.channels && call.strip_pixel == call.channels) {
    return widen_run<kType>(x, call.pixels * call.channels, call.strip);
  }
  for (std::int64_t pixel = 0; pixel < call.pixels; ++pixel) {
    widen_run<kType>(x + pixel * call.x_pixel, call.channels, call.strip + pixel * call.strip_pixel);
  }
}

template <int kVectors, int kPixels>
void fill_tiles(PointwiseKernels& kernels) {
  kernels.tile[kVectors][kPixels] = &PointwiseTile<kPixels, kVectors>::run;
  if constexpr (kVectors <= kMostRunVectors) {
    kernels.run_of_tiles[kVectors][kPixels] = &PointwiseTile<kPixels, kVectors>::run_of_tiles;
  }
  if constexpr (kPixels > 1) fill_tiles<kVectors, kPixels - 1>(kernels);
}

#if HWY_TARGET == HWY_AVX3
using HalfVector = hn::Half<WholeVector>;

template <int kPixels>
void fill_half_tiles(PointwiseKernels& kernels) {
  kernels.tile[kHalfVector][kPixels] = &PointwiseTile<kPixels, 1, HalfVector>::run;
  kernels.run_of_tiles[kHalfVector][kPixels] = &PointwiseTile<kPixels, 1, HalfVector>::run_of_tiles;
  if constexpr (kPixels > 1) fill_half_tiles<kPixels - 1>(kernels);
}
#endif

PointwiseKernels make_pointwise_kernels() {
  PointwiseKernels kernels{};
  kernels.lanes = static_cast<int>(hn::Lanes(hn::ScalableTag<float>()));
  kernels.most_pixels = {0, kWidest, kWidest, kWidestOfThree, kWidestOfFour, 0, 0, 0, kWidestOfEight};
  fill_tiles<1, kWidest>(kernels);
  fill_tiles<2, kWidest>(kernels);
#if HWY_TARGET == HWY_AVX3
  kernels.held_weights = &PointwiseTile<kHeldPixels, 1>::held;
#endif
  if constexpr (kWidestOfThree > 0) fill_tiles<kThreeVectors, kWidestOfThree>(kernels);
  if constexpr (kWidestOfFour > 0) fill_tiles<4, kWidestOfFour>(kernels);
  fill_tiles<8, kWidestOfEight>(kernels);
  kernels.most_run_vectors = kMostRunVectors;
  kernels.widen_f16 = &widen_pixels<DType::f16>;
  kernels.widen_bf16 = &widen_pixels<DType::bf16>;
  kernels.least_lanes = kernels.lanes;
#if HWY_TARGET == HWY_AVX3
  if (splits_512_bits()) {
    fill_half_tiles<kWidest>(kernels);
    kernels.most_pixels[kHalfVector] = kWidest;
    kernels.least_lanes = kernels.lanes / 2;
    kernels.most_pixels[kThreeVectors] = 0;  // the third vector may be half of one
  }
#endif
  return kernels;
}

const PointwiseKernels& pointwise_kernels_here() {
  static const PointwiseKernels kernels = make_pointwise_kernels();
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const PointwiseKernels& pointwise_kernels(const Target& target) {
  GABLE_CPU_RETURN_OF(target, pointwise_kernels_here());
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
