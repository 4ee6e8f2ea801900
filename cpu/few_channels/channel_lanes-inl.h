// The few-channel tile whose lanes are output channels.
// Tile: 14 pixels x 2 vectors or 28 x 1, or for the 2x2 pool 2 rows x 12 pixels x 1 vector (6 x 2). A tile of one
// vector whose taps share broadcasts keeps their weights in registers and has 14 pixels. Accumulators in registers, the
// strip and a panel of weights in L1 or L2. Inner step: one tap of one channel, 1 or 2 vectors of weights and 14 or 24
// to 28 broadcast floats for 24 to 28 FMA.
#if defined(GABLE_CPU_FEW_CHANNELS_CHANNEL_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_FEW_CHANNELS_CHANNEL_LANES_INL_H_
#undef GABLE_CPU_FEW_CHANNELS_CHANNEL_LANES_INL_H_
#else
#define GABLE_CPU_FEW_CHANNELS_CHANNEL_LANES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "cpu/common/pixel_pitch-inl.h"
#include "cpu/few_channels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kFewTile[kFewMaxVectors + 1] = {0, HWY_TARGET == HWY_AVX3 ? 28 : 14, 14};
constexpr int kFewPair[kFewMaxVectors + 1] = {0, 12, 6};
constexpr bool kFewSharesTaps = true;  // enough registers for the weights of a kernel row
constexpr int kFewSharedTile = 14;     // pixels of a tile of one vector whose pixels are neighbours
#else
constexpr int kFewTile[kFewMaxVectors + 1] = {0, 12, 6};
constexpr int kFewPair[kFewMaxVectors + 1] = {0, 6, 2};
constexpr bool kFewSharesTaps = false;
constexpr int kFewSharedTile = 12;
#endif

/// The accumulator of output pixel p, or the largest of its 2x2 window.
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

/// Pool, activation none or relu, and `store(value, y, v)` of each pixel's vector v.
template <class T, int kRows, int kPixels, int kVectors, class Store>
HWY_INLINE void finish_in_registers(const FewChannelLanesCall& call, const FewV (&sum)[kRows][kPixels][kVectors],
                                    const Store& store) {
  const FewD d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const FewV least = hn::Set(d, call.activation == Activation::relu ? 0.0f : -INFINITY);
  // Copies, so that the compiler knows that stores do not change them.
  T* const y = static_cast<T*>(call.y);
  const std::int64_t y_px = call.y_px;
  HWY_UNROLL(28) for (int p = 0; p < kPixels / kRows; ++p) {
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      store(at_least(d, least, pooled(sum, p, v)), y + p * y_px + v * lanes, v);
    }
  }
}

/// Pool, then activation and store in a loop over a buffer of the tile's outputs: for tanh and for partial vectors,
/// whose code would fill the instruction cache if it were unrolled.
template <DType kType, int kRows, int kPixels, int kVectors>
HWY_INLINE void finish_in_memory(const FewChannelLanesCall& call, const FewV (&sum)[kRows][kPixels][kVectors]) {
  const FewD d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  constexpr int kOut = kPixels / kRows;
  HWY_ALIGN float block[kOut * kVectors * hn::MaxLanes(FewD())];
  HWY_UNROLL(28) for (int p = 0; p < kOut; ++p) {
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      hn::Store(pooled(sum, p, v), d, block + (p * kVectors + v) * lanes);
    }
  }
  const float* next = block;
  for (int pixel = 0; pixel < kOut; ++pixel) {
    for (int v = 0; v < kVectors; ++v, next += lanes) {
      const FewV value = activate(call.activation, hn::Load(d, next));
      Storage<kType>* y = static_cast<Storage<kType>*>(call.y) + pixel * call.y_px + v * lanes;
      const int valid = call.valid - v * lanes;
      if (kType == DType::f32 && call.non_temporal) {
        hn::Stream(value, d, reinterpret_cast<float*>(y));
      } else if (valid >= lanes) {
        store_f32_as<kType>(d, value, y);
      } else if (valid > 0) {
        store_first_f32_as<kType>(d, value, y, valid);
      }
    }
  }
}

template <DType kType, int kRows, int kPixels, int kVectors>
HWY_INLINE void finish_pixels_as(const FewChannelLanesCall& call, const FewV (&sum)[kRows][kPixels][kVectors]) {
  const FewD d;
  const int lanes = kVectors * static_cast<int>(hn::Lanes(d));
  using T = Storage<kType>;
#if HWY_TARGET == HWY_AVX3  // a masked store is one instruction
  if (call.activation != Activation::tanh && call.valid < lanes) {
    const int vector = static_cast<int>(hn::Lanes(d)), valid = call.valid;
    finish_in_registers<T>(call, sum, [d, valid, vector](FewV value, T* y, int v) HWY_ATTR {
      store_first_f32_as<kType>(d, value, y, std::min(vector, valid - v * vector));
    });
    return;
  }
#endif
  if (call.activation == Activation::tanh || call.valid < lanes) {
    finish_in_memory<kType>(call, sum);
  } else if (kType == DType::f32 && call.non_temporal) {
    finish_in_registers<float>(call, sum, [d](FewV value, float* y, int) HWY_ATTR { hn::Stream(value, d, y); });
  } else {
    finish_in_registers<T>(call, sum, [d](FewV value, T* y, int) HWY_ATTR { store_f32_as<kType>(d, value, y); });
  }
}

template <int kRows, int kPixels, int kVectors>
HWY_INLINE void finish_pixels(const FewChannelLanesCall& call, const FewV (&sum)[kRows][kPixels][kVectors]) {
  if (HWY_LIKELY(call.y_type == DType::f32)) {
    finish_pixels_as<DType::f32>(call, sum);
  } else if (call.y_type == DType::f16) {
    finish_pixels_as<DType::f16>(call, sum);
  } else {
    finish_pixels_as<DType::bf16>(call, sum);
  }
}

/// All steps of a tile whose pixels are neighbours, kTaps taps a run: each broadcast input serves kTaps pixels. x has
/// one pointer a row, so that the address of each broadcast is base + index + constant.
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
          if (p >= 0 && p < kPixels) sum[row][p][0] = add_product(d, input, w[tap], sum[row][p][0]);
        }
      }
    }
  }
}

/// All steps of a tile whose pixels are any distance apart.
template <int kRows, int kPixels, int kVectors>
struct FewSteps {
  static constexpr int kBases = (kPixels + kBasePixels - 1) / kBasePixels;
  using Bases = const float* [kRows][kBases];
  using Sums = FewV[kRows][kPixels][kVectors];

  /// kSteps of a run; moves base and weights past them.
  template <int kSteps>
  static HWY_INLINE void multiply_add(Bases& base, PixelPitch& px, const float*& weights, Sums& sum) {
    const FewD d;
    const int lanes = static_cast<int>(hn::Lanes(d));
    HWY_UNROLL(9) for (int step = 0; step < kSteps; ++step) {
      FewV w[kVectors];
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) w[v] = hn::LoadU(d, weights + (step * kVectors + v) * lanes);
      px.hide(kPixels);
      HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
        HWY_UNROLL(28) for (int p = 0; p < kPixels; ++p) {
          const FewV input = hn::Set(d, px.at(base[row][p / kBasePixels], p % kBasePixels)[step]);
          HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) sum[row][p][v] = add_product(d, input, w[v], sum[row][p][v]);
        }
      }
    }
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(4) for (int b = 0; b < kBases; ++b) {
        const float* next = base[row][b] + kSteps;  // a copy: gcc would keep an array behind the asm in memory
        keep_apart(next);
        base[row][b] = next;
      }
    }
    weights += kSteps * kVectors * lanes;
  }

  /// Prefetches some of the output lines that the next tile stores, a few in each run. A store whose line is not in L1
  /// delays all later stores.
  static HWY_INLINE void prefetch_output(const FewChannelLanesCall& call, std::int64_t run) {
    const auto element = static_cast<std::int64_t>(size_of(call.y_type));
    const std::int64_t vector = static_cast<std::int64_t>(hn::Lanes(FewD())) * element, y_px = call.y_px * element;
    const char* y = static_cast<const char*>(call.y) + (kPixels / kRows + run * call.prefetch_pixels) * y_px;
    for (std::int64_t i = 0; i < call.prefetch_pixels; ++i, y += y_px) {
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) hwy::Prefetch(y + v * vector);
    }
  }

  /// Runs are mostly kernel rows of three channels: multiples of nine or three steps.
  static HWY_INLINE void all(const FewChannelLanesCall& call, const float* const (&x)[kRows], Sums& sum) {
    const FewTileCall& tile = call.tile;
    PixelPitch px = PixelPitch::of(tile.x_px);
    const float* weights = tile.weights;
    for (std::int64_t run = 0; run < tile.runs; ++run) {
      prefetch_output(call, run);
      Bases base;
      HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
        HWY_UNROLL(4) for (int b = 0; b < kBases; ++b) {
          base[row][b] = x[row] + tile.offsets[run] + b * kBasePixels * tile.x_px;
        }
      }
      std::int64_t step = 0;
      for (; step + 9 <= tile.run_steps; step += 9) multiply_add<9>(base, px, weights, sum);
      for (; step + 3 <= tile.run_steps; step += 3) multiply_add<3>(base, px, weights, sum);
      for (; step < tile.run_steps; ++step) multiply_add<1>(base, px, weights, sum);
    }
  }
};

/// All steps of a tile of one row and one vector whose pixels are kPitch apart. Each product reads its input from a
/// base and a constant: with an index, Intel's front end takes it as two instructions.
template <int kPixels, int kPitch>
struct FewStepsOfPitch {
  using Sums = FewV[1][kPixels][1];

  template <int kSteps>
  static HWY_INLINE void multiply_add(const float*& x, const float*& weights, Sums& sum) {
    const FewD d;
    const int lanes = static_cast<int>(hn::Lanes(d));
    HWY_UNROLL(9) for (int step = 0; step < kSteps; ++step) {
      const FewV w = hn::LoadU(d, weights + step * lanes);
      HWY_UNROLL(28) for (int p = 0; p < kPixels; ++p) {
        sum[0][p][0] = add_product(d, hn::Set(d, x[p * kPitch]), w, sum[0][p][0]);
      }
      ++x;
      keep_apart(x);  // else gcc keeps inputs that several steps read, and no register is left for them
    }
    weights += kSteps * lanes;
  }

  static HWY_INLINE void all(const FewChannelLanesCall& call, const float* first, Sums& sum) {
    const FewTileCall& tile = call.tile;
    const float* weights = tile.weights;
    for (std::int64_t run = 0; run < tile.runs; ++run) {
      FewSteps<1, kPixels, 1>::prefetch_output(call, run);
      const float* x = first + tile.offsets[run];
      std::int64_t step = 0;
      for (; step + 9 <= tile.run_steps; step += 9) multiply_add<9>(x, weights, sum);
      for (; step + 3 <= tile.run_steps; step += 3) multiply_add<3>(x, weights, sum);
      for (; step < tile.run_steps; ++step) multiply_add<1>(x, weights, sum);
    }
  }
};

template <int kRows, int kPixels, int kVectors>
void channel_lanes_tile(const FewChannelLanesCall& call) {
  const FewD d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  FewV sum[kRows][kPixels][kVectors];
  HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
    const FewV bias = hn::LoadU(d, call.tile.bias + v * lanes);
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(28) for (int p = 0; p < kPixels; ++p) sum[row][p][v] = bias;
    }
  }
  const float* x[kRows];
  HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) x[row] = call.tile.x + row * call.tile.x_row;
  if constexpr (kVectors == 1 && kFewSharesTaps && kPixels <= kFewSharedTile) {
    if (call.tile.x_px == 1 && call.tile.run_steps == 5) {
      shared_taps<kRows, kPixels, 5>(call.tile, x, sum);
    } else if (call.tile.x_px == 1 && call.tile.run_steps == 3) {
      shared_taps<kRows, kPixels, 3>(call.tile, x, sum);
    } else {
      FewSteps<kRows, kPixels, 1>::all(call, x, sum);
    }
  } else if constexpr (kVectors == 1 && kPixels > kFewSharedTile) {
    if (call.tile.x_px == 3) {  // three channels, of every pixel or of every second one
      FewStepsOfPitch<kPixels, 3>::all(call, x[0], sum);
    } else if (call.tile.x_px == 6) {
      FewStepsOfPitch<kPixels, 6>::all(call, x[0], sum);
    } else {
      FewSteps<kRows, kPixels, kVectors>::all(call, x, sum);
    }
  } else {
    FewSteps<kRows, kPixels, kVectors>::all(call, x, sum);
  }
  finish_pixels(call, sum);
}

template <int kRows, int kVectors, int kPixels>
void fill_channel_lanes(FewChannelLanesFunction (&table)[kFewMaxPixels + 1]) {
  table[kPixels] = &channel_lanes_tile<kRows, kPixels, kVectors>;
  if constexpr (kPixels > kRows) fill_channel_lanes<kRows, kVectors, kPixels - kRows>(table);
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_FEW_CHANNELS_CHANNEL_LANES_INL_H_
