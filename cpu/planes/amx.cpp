// AMX tiles: see whole_tile-inl.h.
#include "cpu/bf16/amx_registers.h"
#include "cpu/common/cpuid.h"
#include "cpu/planes/tile_unit.h"
#include "cpu/planes/whole_tile-inl.h"

namespace gable::cpu::planes {

#if defined(__x86_64__)
namespace {
struct AmxTiles : bf16::AmxRegisters {};  // of this file alone, so that its loops are inlined
}  // namespace
#endif

const TileUnit& amx_unit() {
  static const TileUnit unit = [] {
    TileUnit made;
#if defined(__x86_64__)
    made = whole_tile_unit<AmxTiles>();
    made.begin = [](int, int steps) { bf16::load_tile_config(16, steps, bf16::PanelWeights::loaded); };
    made.end = bf16::release_tiles;
#endif
    made.name = "planes_amx";
    made.coverage = PathUnit::amx;
    made.missing = missing_amx();
    made.ask = refused_amx;
    return made;
  }();
  return unit;
}

}  // namespace gable::cpu::planes
