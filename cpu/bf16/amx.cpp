// AMX tile products: 1024 multiply-adds in one instruction of 16 cycles. See tile-inl.h for the dataflow.
#include "cpu/bf16/amx_registers.h"
#include "cpu/bf16/epilogue_x86-inl.h"
#include "cpu/bf16/unit.h"
#include "cpu/common/cpuid.h"

#if defined(__x86_64__)
#define GABLE_BF16_TILE_TARGET GABLE_CPU_BF16
#include "cpu/bf16/panels-inl.h"
#include "cpu/bf16/tile-inl.h"
#endif

namespace gable::cpu {

#if defined(__x86_64__)
namespace bf16 {
namespace {

struct AmxTiles : AmxRegisters {
  static bool overlaps(const Epilogue& call) {
    return call.run == &run_epilogue<DType::bf16> && call.accumulators_below == nullptr && !call.non_temporal;
  }
  class LineEpilogue {
   public:
    GABLE_CPU_BF16 explicit LineEpilogue(const Epilogue& call) : vectors_(call) {}
    GABLE_CPU_BF16 void line(const float* accumulators, std::uint16_t* y) const {
      vectors_.store(_mm512_loadu_ps(accumulators), _mm512_loadu_ps(accumulators + kLanes / 2), y);
    }

   private:
    EpilogueVectors<DType::bf16, false> vectors_;
  };

  class PanelEpilogue {
   public:
    GABLE_CPU_BF16 PanelEpilogue(const PanelTile& tile, const PendingPanel& panel)
        : vectors_(tile, panel), ahead_(tile.output_ahead) {}
    GABLE_CPU_BF16 void lines(const float* accumulators, std::uint16_t* y, std::int64_t pitch,
                              std::int64_t count) const {
      if (ahead_ != 0) {
        const char* line = reinterpret_cast<const char*>(y + ahead_);
        for (std::int64_t i = 0; i < count; ++i, line += 2 * pitch) prefetch_for_write(line);
      }
      if (vectors_.non_temporal) {
        for (std::int64_t i = 0; i < count; ++i, accumulators += kLanes, y += pitch) {
          vectors_.store(_mm512_loadu_ps(accumulators), _mm512_loadu_ps(accumulators + kVector), y);
        }
      } else if (vectors_.lanes <= 0xffff) {
#pragma GCC unroll 4
        for (std::int64_t i = 0; i < count; ++i, accumulators += kLanes, y += pitch) {
          vectors_.store_low(_mm512_loadu_ps(accumulators), y);
        }
      } else if (vectors_.whole) {
#pragma GCC unroll 4
        for (std::int64_t i = 0; i < count; ++i, accumulators += kLanes, y += pitch) {
          const __m512 low = _mm512_loadu_ps(accumulators), high = _mm512_loadu_ps(accumulators + kVector);
          _mm512_storeu_si512(y, vectors_.halves(low, high));
        }
      } else {
#pragma GCC unroll 4
        for (std::int64_t i = 0; i < count; ++i, accumulators += kLanes, y += pitch) {
          const __m512 low = _mm512_loadu_ps(accumulators), high = _mm512_loadu_ps(accumulators + kVector);
          _mm512_mask_storeu_epi16(y, vectors_.lanes, vectors_.halves(low, high));
        }
      }
    }

   private:
    EpilogueVectors<DType::bf16> vectors_;
    std::int64_t ahead_;
  };

  static void prefetch_for_read(const char* line) { __builtin_prefetch(line, 0, 2); }
  static void prefetch_for_write(const char* line) { asm volatile("prefetchw %0" : : "m"(*line)); }
};

GABLE_CPU_BF16 inline __m512 widened(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, halves), 16));
}

/// Lanes outside the mask are zero, and are not read.
template <DType kType>
GABLE_CPU_BF16 inline __m512 load_as_f32(__mmask16 lanes, const void* x, std::int64_t element) {
  if constexpr (kType == DType::f32) return _mm512_maskz_loadu_ps(lanes, static_cast<const float*>(x) + element);
  const void* halves = static_cast<const std::uint16_t*>(x) + element;
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_maskz_loadu_epi16(lanes, halves));
}

/// Each part is the remainder after the parts before it, rounded to bf16 (subnormals to zero); subtractions are exact.
template <DType kType, int kParts>
GABLE_CPU_BF16 void split_positions(const SplitCall& call) {
  const auto lanes = static_cast<__mmask32>((std::uint64_t{1} << call.channels) - 1);
  const auto low_lanes = static_cast<__mmask16>(lanes), high_lanes = static_cast<__mmask16>(lanes >> 16);
  std::uint16_t* strip = call.strip;
  for (std::int64_t i = 0; i < call.positions; ++i, strip += kChannels) {
    __m512 low = load_as_f32<kType>(low_lanes, call.x, i * call.pitch);
    __m512 high = load_as_f32<kType>(high_lanes, call.x, i * call.pitch + kChannels / 2);
#pragma GCC unroll 3
    for (int p = 0; p < kParts; ++p) {
      const __m256i low_part = (__m256i)_mm512_cvtneps_pbh(low), high_part = (__m256i)_mm512_cvtneps_pbh(high);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(strip + p * call.part), low_part);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(strip + p * call.part + kChannels / 2), high_part);
      low = _mm512_sub_ps(low, widened(low_part));
      high = _mm512_sub_ps(high, widened(high_part));
    }
  }
}

/// The function where this CPU has AVX512-BF16, else null.
template <typename Function>
Function* with_bf16(Function* function) {
  return missing_bf16_dot().empty() ? function : nullptr;
}

}  // namespace
}  // namespace bf16

const Bf16Unit& amx_unit() {
  using namespace bf16;
  static const Bf16Unit unit{
      .name = "amx",
      .coverage = PathUnit::amx,
      .missing = missing_amx(),
      .ask = refused_amx,
      .positions = kHalfPositions,
      .loads_full_halves = true,
      .merged_width = kChannels,
      .most_padding = 17.0,
      .costs = {.position = 3, .weights = 50, .start = 1000},
      .begin = load_tile_config,
      .end = release_tiles,
      .tiles = {.one = bf16_tile<AmxTiles, 1>,
                .three = bf16_tile<AmxTiles, 3>,
                .four = bf16_tile<AmxTiles, 4>,
                .six = bf16_tile<AmxTiles, 6>},
      .panels = bf16_panels<AmxTiles>,
      .runs_epilogue_in_registers = false,
      .epilogues = {.bf16 = run_epilogue<DType::bf16>, .f16 = with_bf16(run_epilogue<DType::f16>)},
      .splits = {.f16 = with_bf16(split_positions<DType::f16, 2>),
                 .f32 = {nullptr, nullptr, with_bf16(split_positions<DType::f32, 2>),
                         with_bf16(split_positions<DType::f32, 3>)}}};
  return unit;
}

#else

const Bf16Unit& amx_unit() {
  static const Bf16Unit unit{.name = "amx", .coverage = PathUnit::amx, .missing = missing_amx()};
  return unit;
}

#endif

}  // namespace gable::cpu
