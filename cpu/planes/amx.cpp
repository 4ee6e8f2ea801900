// AMX tiles: see whole_tile-inl.h.
#include <algorithm>

#include "cpu/bf16/cpuid.h"
#include "cpu/planes/tile_unit.h"
#include "cpu/planes/whole_tile-inl.h"

namespace gable::cpu::planes {

#if defined(__x86_64__)
namespace {

// Operand of LDTILECFG, palette 1: eight tiles of up to 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

void begin_tiles(int, int steps) {
  TileConfig config;
  std::fill_n(config.column_bytes + 4, 2, static_cast<std::uint16_t>(4 * steps));
  std::fill_n(config.rows + 6, 2, static_cast<std::uint8_t>(steps));
  asm volatile("ldtilecfg %0" : : "m"(config));
}
void end_tiles() { asm volatile("tilerelease"); }

// Assembly rather than intrinsics: those take only literal register numbers, and g++ 12's forget what memory they read.
struct AmxTiles {
  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  void load(const std::uint16_t* rows, std::int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(rows), "r"(stride * 2) : "memory");
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

}  // namespace
#endif

const TileUnit& amx_unit() {
  static const TileUnit unit = [] {
    TileUnit made;
#if defined(__x86_64__)
    made = whole_tile_unit<AmxTiles>();
    made.begin = begin_tiles;
    made.end = end_tiles;
#endif
    made.name = "planes_amx";
    made.coverage = PathUnit::amx;
    made.missing = bf16::missing_amx();
    return made;
  }();
  return unit;
}

}  // namespace gable::cpu::planes
