// The few-channel kernels, compiled once a target; what a unit goes through is in few_channels_kernels.h.
// lanes tile: 14 pixels x 2 vectors, or for the 2x2 pool 2 rows x 12 pixels x 1 vector (6 x 2). A step is one tap of
// one channel: 1 or 2 vectors of weights from L1 and 14 or 24 broadcast floats, 24 to 28 FMA. wide tile: 4 rows x 6
// channels of one vector of pixels. A step loads 4 unaligned vectors and 6 broadcast weights for 24 FMA: 12 cycles
// where the loads need 7.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/few_channels/few_channels_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/few_channels/few_channels_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "cpu/common/tanh-inl.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kFewTile[kFewMaxVectors + 1] = {0, 14, 14};
constexpr int kFewPair[kFewMaxVectors + 1] = {0, 12, 6};
constexpr int kFewWideRows = 4;
constexpr bool kFewSharesTaps = true;  // registers for the weights of a kernel row
#else
constexpr int kFewTile[kFewMaxVectors + 1] = {0, 12, 6};
constexpr int kFewPair[kFewMaxVectors + 1] = {0, 6, 2};
constexpr int kFewWideRows = 2;
constexpr bool kFewSharesTaps = false;
#endif

using FewD = hn::ScalableTag<float>;
using FewV = hn::Vec<FewD>;

HWY_INLINE FewV activate(Activation activation, FewV value) {
  const FewD d;
  if (activation == Activation::relu) return relu(d, value);
  if (activation == Activation::tanh) return tanh_f32(d, value);
  return value;
}

/// The largest of the pixels that output pixel p is made of: itself, or a 2x2 window.
template <int kRows, int kPixels, int kVectors>
HWY_INLINE FewV pooled(const FewV (&sum)[kRows][kPixels][kVectors], int p, int v) {
  if constexpr (kRows == 1) {
    return sum[0][p][v];
  } else {
    const FewD d;
    return nan_max(d, nan_max(d, sum[0][2 * p][v], sum[0][2 * p + 1][v]),
                   nan_max(d, sum[1][2 * p][v], sum[1][2 * p + 1][v]));
  }
}

/// Pool, activation none or relu, and `store(value, y)` of whole vectors.
template <int kRows, int kPixels, int kVectors, class Store>
HWY_INLINE void finish_in_registers(const FewLanesCall& call, const FewV (&sum)[kRows][kPixels][kVectors],
                                    const Store& store) {
  const FewD d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const FewV least = hn::Set(d, call.activation == Activation::relu ? 0.0f : -INFINITY);
  HWY_UNROLL(14) for (int p = 0; p < kPixels / kRows; ++p) {
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      store(at_least(d, least, pooled(sum, p, v)), call.y + p * call.y_px + v * lanes);
    }
  }
}

/// Pool, activation and store of what takes long or branches: through memory, since unrolled it would fill the
/// instruction cache.
template <int kRows, int kPixels, int kVectors>
HWY_INLINE void finish_in_memory(const FewLanesCall& call, const FewV (&sum)[kRows][kPixels][kVectors]) {
  const FewD d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  constexpr int kOut = kPixels / kRows;
  HWY_ALIGN float block[kOut * kVectors * hn::MaxLanes(FewD())];
  HWY_UNROLL(14) for (int p = 0; p < kOut; ++p) {
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      hn::Store(pooled(sum, p, v), d, block + (p * kVectors + v) * lanes);
    }
  }
  const float* next = block;
  for (int pixel = 0; pixel < kOut; ++pixel) {
    for (int v = 0; v < kVectors; ++v, next += lanes) {
      const FewV value = activate(call.activation, hn::Load(d, next));
      float* y = call.y + pixel * call.y_px + v * lanes;
      const int valid = call.valid - v * lanes;
      if (call.stream) {
        hn::Stream(value, d, y);
      } else if (valid >= lanes) {
        hn::StoreU(value, d, y);
      } else {
        store_first(d, value, y, valid);
      }
    }
  }
}

template <int kRows, int kPixels, int kVectors>
HWY_INLINE void finish_pixels(const FewLanesCall& call, const FewV (&sum)[kRows][kPixels][kVectors]) {
  const FewD d;
  if (call.activation == Activation::tanh || call.valid < kVectors * static_cast<int>(hn::Lanes(d))) {
    finish_in_memory(call, sum);
  } else if (call.stream) {
    finish_in_registers(call, sum, [d](FewV value, float* y) HWY_ATTR { hn::Stream(value, d, y); });
  } else {
    finish_in_registers(call, sum, [d](FewV value, float* y) HWY_ATTR { hn::StoreU(value, d, y); });
  }
}

/// All steps of a tile on neighbouring pixels, a run of kTaps taps at a time: each broadcast serves kTaps pixels. x has
/// a pointer a row, which leaves base, index and a constant to each broadcast's address.
template <int kRows, int kPixels, int kTaps>
HWY_INLINE void shared_taps(const FewTileCall& tile, const float* const (&x)[kRows], FewV (&sum)[kRows][kPixels][1]) {
  const FewD d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const float* weights = tile.weights;
  const std::int32_t* offsets = tile.offsets;
  const std::int32_t* const end = offsets + tile.runs;
  for (; offsets != end; ++offsets, weights += kTaps * lanes) {
    const std::int64_t offset = *offsets;
    FewV w[kTaps];
    HWY_UNROLL(5) for (int tap = 0; tap < kTaps; ++tap) w[tap] = hn::LoadU(d, weights + tap * lanes);
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(18) for (int column = 0; column < kPixels + kTaps - 1; ++column) {
        const FewV input = hn::Set(d, x[row][offset + column]);
        HWY_UNROLL(5) for (int tap = 0; tap < kTaps; ++tap) {
          const int p = column - tap;
          if (p >= 0 && p < kPixels) sum[row][p][0] = hn::MulAdd(input, w[tap], sum[row][p][0]);
        }
      }
    }
  }
}

/// A tile's pixels in groups of three that share a base address: the base plus x_px scaled by 0, 1 and 2. All else of
/// an address is a constant, so that the FMA ports do little else.
template <int kRows, int kPixels, int kVectors>
struct FewSteps {
  static constexpr int kGroup = 3;
  static constexpr int kBases = (kPixels + kGroup - 1) / kGroup;
  using Bases = const float* [kRows][kBases];
  using Sums = FewV[kRows][kPixels][kVectors];

  /// kSteps of a run, and on to what follows them.
  template <int kSteps>
  static HWY_INLINE void multiply_add(Bases& base, std::int64_t x_px, const float*& weights, Sums& sum) {
    const FewD d;
    const int lanes = static_cast<int>(hn::Lanes(d));
    HWY_UNROLL(7) for (int step = 0; step < kSteps; ++step) {
      FewV w[kVectors];
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) w[v] = hn::LoadU(d, weights + (step * kVectors + v) * lanes);
      HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
        HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
          const FewV input = hn::Set(d, base[row][p / kGroup][p % kGroup * x_px + step]);
          HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) sum[row][p][v] = hn::MulAdd(input, w[v], sum[row][p][v]);
        }
      }
    }
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(5) for (int b = 0; b < kBases; ++b) {
        base[row][b] += kSteps;
        keep_apart(base[row][b]);
      }
    }
    weights += kSteps * kVectors * lanes;
  }

  /// Asks for some lines of y that the next tile will store: one after another between products, since a store that
  /// waits for its line holds up those behind it.
  static HWY_INLINE void ask(const FewLanesCall& call, std::int64_t run) {
    const int lanes = static_cast<int>(hn::Lanes(FewD()));
    const float* y = call.y + (kPixels / kRows + run * call.ask_pixels) * call.y_px;
    for (std::int64_t i = 0; i < call.ask_pixels; ++i, y += call.y_px) {
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) hwy::Prefetch(y + v * lanes);
    }
  }

  static HWY_INLINE void all(const FewLanesCall& call, const float* const (&x)[kRows], Sums& sum) {
    constexpr int kUnroll = 7;
    const FewTileCall& tile = call.tile;
    const std::int64_t x_px = tile.x_px;
    const float* weights = tile.weights;
    for (std::int64_t run = 0; run < tile.runs; ++run) {
      ask(call, run);
      Bases base;
      HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
        HWY_UNROLL(5) for (int b = 0; b < kBases; ++b) base[row][b] = x[row] + tile.offsets[run] + b * kGroup * x_px;
      }
      std::int64_t step = 0;
      for (; step + kUnroll <= tile.run; step += kUnroll) multiply_add<kUnroll>(base, x_px, weights, sum);
      for (; step < tile.run; ++step) multiply_add<1>(base, x_px, weights, sum);
    }
  }
};

template <int kRows, int kPixels, int kVectors>
void lanes_tile(const FewLanesCall& call) {
  const FewD d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  FewV sum[kRows][kPixels][kVectors];
  HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
    const FewV bias = hn::LoadU(d, call.tile.bias + v * lanes);
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) sum[row][p][v] = bias;
    }
  }
  const float* x[kRows];
  HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) x[row] = call.tile.x + row * call.tile.x_row;
  if constexpr (kVectors == 1 && kFewSharesTaps) {
    if (call.tile.x_px == 1 && call.tile.run == 5) {
      shared_taps<kRows, kPixels, 5>(call.tile, x, sum);
    } else if (call.tile.x_px == 1 && call.tile.run == 3) {
      shared_taps<kRows, kPixels, 3>(call.tile, x, sum);
    } else {
      FewSteps<kRows, kPixels, 1>::all(call, x, sum);
    }
  } else {
    FewSteps<kRows, kPixels, kVectors>::all(call, x, sum);
  }
  finish_pixels(call, sum);
}

template <int kRows, int kVectors, int kPixels>
void fill_lanes(FewLanesFunction (&table)[kFewMaxPixels + 1]) {
  table[kPixels] = &lanes_tile<kRows, kPixels, kVectors>;
  if constexpr (kPixels > kRows) fill_lanes<kRows, kVectors, kPixels - kRows>(table);
}

/// Maxima of neighbouring lanes: those of a in the lower half, those of b in the upper half.
HWY_INLINE FewV pool_lanes(FewV a, FewV b) {
  const FewD d;
#if HWY_TARGET == HWY_SCALAR
  return nan_max(d, a, b);
#else
  return nan_max(d, hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
#endif
}

/// The sums of kChannels channels of one vector of pixels.
template <int kChannels>
HWY_INLINE void wide_sums(const FewTileCall& tile, const float* weights, const float* bias, std::int64_t pixel,
                          FewV (&sum)[kFewWideRows][kChannels]) {
  const FewD d;
  HWY_UNROLL(6) for (int c = 0; c < kChannels; ++c) {
    HWY_UNROLL(4) for (int row = 0; row < kFewWideRows; ++row) sum[row][c] = hn::Set(d, bias[c]);
  }
  for (std::int64_t step = 0; step < tile.runs; ++step, weights += kChannels) {
    const float* x = tile.x + pixel + tile.offsets[step];
    FewV input[kFewWideRows];
    HWY_UNROLL(4) for (int row = 0; row < kFewWideRows; ++row) input[row] = hn::LoadU(d, x + row * tile.x_row);
    HWY_UNROLL(6) for (int c = 0; c < kChannels; ++c) {
      const FewV w = hn::Set(d, weights[c]);
      HWY_UNROLL(4) for (int row = 0; row < kFewWideRows; ++row) sum[row][c] = hn::MulAdd(input[row], w, sum[row][c]);
    }
  }
}

template <int kChannels, bool kPool>
HWY_INLINE void wide_channels(const FewWideCall& call, std::int64_t first) {
  const FewD d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float* weights = call.tile.weights + first * call.tile.runs;
  const std::int64_t plane_row = call.channels * call.pitch;
  for (std::int64_t pixel = 0; pixel < call.pixels; pixel += kPool && lanes == 1 ? 2 : lanes) {
    FewV sum[kFewWideRows][kChannels];
    wide_sums<kChannels>(call.tile, weights, call.tile.bias + first, pixel, sum);
#if HWY_TARGET == HWY_SCALAR
    FewV neighbour[kFewWideRows][kChannels];
    if constexpr (kPool) wide_sums<kChannels>(call.tile, weights, call.tile.bias + first, pixel + 1, neighbour);
#endif
    HWY_UNROLL(6) for (int c = 0; c < kChannels; ++c) {
      float* plane = call.planes + (first + c) * call.pitch + (kPool ? pixel / 2 : pixel);
      if constexpr (!kPool) {
        HWY_UNROLL(4) for (int row = 0; row < kFewWideRows; ++row) hn::StoreU(sum[row][c], d, plane + row * plane_row);
#if HWY_TARGET == HWY_SCALAR
      } else {
        HWY_UNROLL(2) for (int row = 0; row < kFewWideRows; row += 2) {
          hn::StoreU(pool_lanes(nan_max(d, sum[row][c], sum[row + 1][c]),
                                nan_max(d, neighbour[row][c], neighbour[row + 1][c])),
                     d, plane + row / 2 * plane_row);
        }
#else
      } else if constexpr (kFewWideRows == 2) {
        const FewV best = nan_max(d, sum[0][c], sum[1][c]);
        const hn::Half<FewD> half;
        hn::StoreU(hn::LowerHalf(half, pool_lanes(best, best)), half, plane);
      } else {
        const FewV best = pool_lanes(nan_max(d, sum[0][c], sum[1][c]), nan_max(d, sum[2][c], sum[3][c]));
        const hn::Half<FewD> half;
        hn::StoreU(hn::LowerHalf(half, best), half, plane);
        hn::StoreU(hn::UpperHalf(half, best), half, plane + plane_row);
#endif
      }
    }
  }
}

template <bool kPool>
void wide_rows(const FewWideCall& call) {
  const std::int64_t blocks = ceil_div(call.channels, kFewWideBlock);
  std::int64_t first = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t channels = (call.channels - first) / (blocks - block);
    switch (channels) {
      case 1:
        wide_channels<1, kPool>(call, first);
        break;
      case 2:
        wide_channels<2, kPool>(call, first);
        break;
      case 3:
        wide_channels<3, kPool>(call, first);
        break;
      case 4:
        wide_channels<4, kPool>(call, first);
        break;
      case 5:
        wide_channels<5, kPool>(call, first);
        break;
      default:
        wide_channels<6, kPool>(call, first);
    }
    first += channels;
  }
}

// A vector of pixels of C channels becomes C vectors of interleaved values. Value i of them is channel i % C of pixel
// i / C: the permutation is the same for every channel, and the channel's lanes are picked from it.
void interleave(const FewInterleaveCall& call) {
  const FewD d;
  const hn::RebindToSigned<FewD> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto channels = static_cast<std::int32_t>(call.channels);
  for (std::int64_t pixel = 0; pixel < call.pixels; pixel += lanes) {
    const std::int64_t values = std::min(lanes, call.pixels - pixel) * channels;
    for (std::int64_t i = 0; i < values; i += lanes) {
      const auto permutation = hn::SetTableIndices(d, call.pixel_of + i);
      const auto owner = hn::LoadU(di, call.channel_of + i);
      FewV mixed = hn::TableLookupLanes(hn::LoadU(d, call.planes + pixel), permutation);
      for (std::int32_t c = 1; c < channels; ++c) {
        const FewV plane = hn::LoadU(d, call.planes + c * call.pitch + pixel);
        const auto owned = hn::RebindMask(d, hn::Eq(owner, hn::Set(di, c)));
        mixed = hn::IfThenElse(owned, hn::TableLookupLanes(plane, permutation), mixed);
      }
      hn::StoreU(mixed, d, call.y + pixel * channels + i);
    }
  }
}

template <DType kType>
void finish(const FewFinishCall& call) {
  const FewD d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto* y = static_cast<Storage<kType>*>(call.y);
  const auto part = [&](std::int64_t i, std::int64_t count) HWY_ATTR {
    const FewV value = activate(call.activation, load_first(d, call.x + i, static_cast<int>(count)));
    store_first_f32_as<kType>(d, value, y + i, static_cast<int>(count));
  };
  std::int64_t i = 0;
  for (; i + lanes <= call.count; i += lanes) {
    store_f32_as<kType>(d, activate(call.activation, hn::LoadU(d, call.x + i)), y + i);
  }
  if (i < call.count) part(i, call.count - i);
}

/// planes[c][i] = x[i * x_px + c], four pixels of four channels at a time; the last four channels of more than four
/// overlap the first.
HWY_INLINE void split_channels(const float* HWY_RESTRICT x, std::int64_t x_px, float* HWY_RESTRICT planes,
                               std::int64_t plane, std::int64_t pixels, std::int64_t channels) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d;
  const hn::Repartition<std::uint64_t, decltype(d)> dd;
  // Fewer than four channels are read with what follows them, so the last pixels are left to the plain loop.
  const std::int64_t readable = channels < 4 ? pixels - 2 : pixels;
  for (; i + 4 <= readable; i += 4) {
    for (std::int64_t next = 0; next < channels; next += 4) {
      const std::int64_t c = channels < 4 ? 0 : std::min(next, channels - 4);
      const float* in = x + i * x_px + c;
      const auto r0 = hn::LoadU(d, in);
      const auto r1 = hn::LoadU(d, in + x_px);
      const auto r2 = hn::LoadU(d, in + 2 * x_px);
      const auto r3 = hn::LoadU(d, in + 3 * x_px);
      const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
      const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
      const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
      float* out = planes + c * plane + i;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, out);
      if (channels > 1) hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, out + plane);
      if (channels > 2) hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), d, out + 2 * plane);
      if (channels > 3) hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), d, out + 3 * plane);
    }
  }
#endif
  for (; i < pixels; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) planes[c * plane + i] = x[i * x_px + c];
  }
}

/// One image row of `channels` interleaved channels (or one plane's row) into its phases.
template <DType kType>
HWY_INLINE void stage_row(const FewStageCall& call, const Storage<kType>* x, std::int64_t channels, float* strip) {
  const bool plain = channels == 1 && call.phases == 1;
  const float* source = nullptr;
  if constexpr (kType == DType::f32) {
    source = x;
  } else {
    if (!plain) convert_to_f32<kType>(x, call.row, call.width * channels);
    source = call.row;
  }
  for (std::int64_t phase = 0; phase < call.phases; ++phase) {
    // Columns [begin, end) of the phase come from source columns column, column + phases, …
    const std::int64_t shift = call.pad_left - phase;
    const std::int64_t begin = std::clamp<std::int64_t>(ceil_div(shift, call.phases), 0, call.columns);
    const std::int64_t end = std::clamp<std::int64_t>(ceil_div(shift + call.width, call.phases), begin, call.columns);
    const std::int64_t column = begin * call.phases - shift;
    float* out = strip + phase * call.pitch;
    if (plain) {
      convert_to_f32<kType>(x + column, out + begin, end - begin);
    } else {
      split_channels(source + column * channels, call.phases * channels, out + begin, call.phases * call.pitch,
                     end - begin, channels);
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      float* plane = out + c * call.phases * call.pitch;
      std::fill(plane, plane + begin, 0.0f);
      std::fill(plane + end, plane + call.columns, 0.0f);
    }
  }
}

template <DType kType, bool kNhwc>
void stage(const FewStageCall& call) {
  const std::int64_t plane = call.phases * call.pitch;
  for (std::int64_t i = 0; i < call.rows; ++i) {
    const std::int64_t row = call.first_row + i;
    float* strip = call.strip + i * call.channels * plane;
    if (row < 0 || row >= call.height) {
      std::fill_n(strip, call.channels * plane, 0.0f);
      continue;
    }
    const Storage<kType>* x = static_cast<const Storage<kType>*>(call.x) + row * call.x_row;
    if constexpr (kNhwc) {
      stage_row<kType>(call, x, call.channels, strip);
    } else {
      for (std::int64_t c = 0; c < call.channels; ++c) {
        stage_row<kType>(call, x + c * call.x_channel, 1, strip + c * plane);
      }
    }
  }
}

FewChannelsKernels make_few_channels_kernels() {
  FewChannelsKernels kernels{};
  kernels.lanes = static_cast<int>(hn::Lanes(FewD()));
  kernels.wide_rows = kFewWideRows;
  kernels.max_pixels = {0, kFewTile[1], kFewTile[2]};
  kernels.max_pair_pixels = {0, kFewPair[1], kFewPair[2]};
  fill_lanes<1, 1, kFewTile[1]>(kernels.tile[1]);
  fill_lanes<1, 2, kFewTile[2]>(kernels.tile[2]);
  fill_lanes<2, 1, kFewPair[1]>(kernels.pair[1]);
  fill_lanes<2, 2, kFewPair[2]>(kernels.pair[2]);
  kernels.wide = &wide_rows<false>;
  kernels.wide_pool = &wide_rows<true>;
  kernels.interleave = &interleave;
  kernels.stage_nhwc = {&stage<DType::f32, true>, &stage<DType::f16, true>, &stage<DType::bf16, true>};
  kernels.stage_nchw = {&stage<DType::f32, false>, &stage<DType::f16, false>, &stage<DType::bf16, false>};
  kernels.finish = {&finish<DType::f32>, &finish<DType::f16>, &finish<DType::bf16>};
  return kernels;
}

const FewChannelsKernels& few_channels_kernels_here() {
  static const FewChannelsKernels kernels = make_few_channels_kernels();
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const FewChannelsKernels& few_channels_kernels(const Target& target) {
#define GABLE_CPU_CASE(target_id, ns, name) \
  if (target.id == (target_id)) return ns::few_channels_kernels_here();
  GABLE_CPU_FOR_EACH_TARGET(GABLE_CPU_CASE)
#undef GABLE_CPU_CASE
  return HWY_STATIC_DISPATCH(few_channels_kernels_here)();
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
