// The tile registers of AMX as the bf16 products use them: 0 to 3 hold accumulators, 4 and 5 input, 6 and 7 weights.
// Where a panel's weights are held, 2 and 3 hold weights too, and where others are streamed, 5.
// Only for CPUs that have them: see cpuid.h.
#pragma once

#if defined(__x86_64__)
#include <algorithm>
#include <cstdint>

#include "cpu/bf16/unit.h"

namespace gable::cpu::bf16 {

/// Operand of LDTILECFG, palette 1: eight tiles of up to 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

/// Configures the tile registers. A product takes a cycle for each row (position) of accumulators and input. Input is
/// loaded up to the last of `pairs` pairs of channels and not beyond, where memory may hold NaN.
inline void load_tile_config(int positions, int pairs, PanelWeights weights) {
  TileConfig config;
  std::fill_n(config.rows, 6, static_cast<std::uint8_t>(positions));
  std::fill_n(config.column_bytes + 4, 2, static_cast<std::uint16_t>(4 * pairs));
  std::fill_n(config.rows + 6, 2, static_cast<std::uint8_t>(pairs));
  if (weights != PanelWeights::loaded) std::fill_n(config.rows + 2, 2, static_cast<std::uint8_t>(pairs));
  if (weights == PanelWeights::held_and_streamed) {
    config.rows[5] = static_cast<std::uint8_t>(pairs);
    config.column_bytes[5] = 64;
  }
  asm volatile("ldtilecfg %0" : : "m"(config));
}
inline void release_tiles() { asm volatile("tilerelease"); }

// Assembly rather than intrinsics: intrinsics take only literal register numbers, and g++ 12's do not declare the
// memory that they read.
struct AmxRegisters {
  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile, bool kKeepsInL1 = true>
  void load(const std::uint16_t* rows, std::int64_t stride) {
    if constexpr (kKeepsInL1) {
      asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(rows), "r"(stride * 2) : "memory");
    } else {
      asm volatile("tileloaddt1 (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(rows), "r"(stride * 2) : "memory");
    }
  }
  template <int kSum, int kA, int kB>
  void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
  template <int kTile>
  void store(float* rows, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(rows), "r"(stride * 4) : "memory");
  }
};

}  // namespace gable::cpu::bf16
#endif
