// The contract between the loop nests of bf16 products and the units that compute them: AMX's tile registers (amx.cpp),
// AVX512-BF16's pair product (bf16_dot.cpp), and a plain C++ emulation of the former in the tests.
#pragma once

#include <cstdint>
#include <string>

#include <gable/problem.h>
#include "cpu/bf16/tile.h"
#include "cpu/common/coverage.h"

namespace gable::cpu {
namespace bf16 {

/// bf16 parts of a value: f16 and bf16 hold at most 11 and 8 bits, so 2 parts and 1 are exact; f32's 24 bits take 3.
constexpr int parts_of(int products) { return products == 1 ? 1 : products == 6 ? 3 : 2; }

/// A tile, by products a term; null where the unit has none.
struct TileFunctions {
  TileFunction one = nullptr, three = nullptr, four = nullptr, six = nullptr;
};

/// Epilogues without tanh, faster than the target's; or null.
struct UnitEpilogues {
  EpilogueFunction bf16 = nullptr, f16 = nullptr;
};

/// Splits a block of up to 32 channels of positions that lie `pitch` elements apart, into consecutive positions of the
/// strip's parts, `part` elements apart. The other channels of the strip's positions become zero.
struct SplitCall {
  const void* x;
  std::int64_t pitch, positions, channels;
  std::uint16_t* strip;
  std::int64_t part;
};
using SplitFunction = void (*)(const SplitCall&);

/// Splits faster than the target's, or null; of f32 by the number of parts.
struct SplitFunctions {
  SplitFunction f16 = nullptr;
  SplitFunction f32[4] = {};
};

/// Where a unit reads windows that it could read in the image as in a strip. Tests name one.
enum class WindowInput { by_time, strip, image };

/// Whether a panel's weights stay in registers from half to half (PanelTile): not, all of them, or those of the first
/// kHeldBlocks blocks, while others pass through a register.
enum class PanelWeights { loaded, held, held_and_streamed };

/// Cycles, for estimates.
struct UnitCosts {
  double position = 0;  // one block of 32 channels and 32 lanes for a position
  double weights = 0;   // the same in a tile with few positions, which waits for weights
  double tile = 0;      // fixed, of a tile of `positions` positions
  double step = 0;      // of each step of a tile
  double start = 0;     // of a work unit
};

}  // namespace bf16

struct Bf16Unit {
  const char* name = "";
  PathUnit coverage = PathUnit::emulated;  // which coverage counts its paths
  std::string missing;                     // why this machine can't run it; empty: it can
  /// Asks the system to let this process use it: empty, or why it may not. Null: nobody has to ask.
  std::string (*ask)() = nullptr;
  int positions = 0;         // most positions of a half, up to kHalfPositions
  int narrow_positions = 0;  // the same where all panels have one vector, up to kNarrowPositions; or 0
  /// A half may be several runs of positions (PositionRuns): one that rows_of_half() allows.
  bool takes_runs = false;
  /// The unit always loads and multiplies `positions` positions of a half, even if fewer are used; its halves share
  /// weights.
  bool loads_full_halves = false;
  bf16::WindowInput windows = bf16::WindowInput::by_time;  // of a unit that takes one half at a time
  int merged_width = 1;                                    // groups are merged up to so many channels and lanes
  double most_padding = 0;  // the direct kernel is faster if padding multiplies the products by more than this
  bf16::UnitCosts costs;
  /// Before and after the tiles of a work unit: `positions` in each half, `pairs` of channels in each block; what its
  /// panels do with their weights.
  void (*begin)(int positions, int pairs, bf16::PanelWeights weights) = nullptr;
  void (*end)() = nullptr;
  bf16::TileFunctions tiles;
  bf16::PanelsFunction panels = nullptr;    // for 1x1 in bf16 without a pool or tanh; or null
  bool runs_epilogue_in_registers = false;  // for the outputs that its epilogue takes, without a pool
  bf16::UnitEpilogues epilogues;
  bf16::SplitFunctions splits;

  /// Why a plan can't use it. Asks the system.
  std::string refusal() const { return missing.empty() && ask != nullptr ? ask() : missing; }
  bf16::TileFunction tile(int products) const {
    return products == 1 ? tiles.one : products == 3 ? tiles.three : products == 4 ? tiles.four : tiles.six;
  }
  bf16::EpilogueFunction epilogue(DType type) const {
    return type == DType::bf16 ? epilogues.bf16 : type == DType::f16 ? epilogues.f16 : nullptr;
  }
  /// Whether the unit's own epilogue can store such output.
  bool takes_epilogue(DType type, Activation activation) const {
    return epilogue(type) != nullptr && activation != Activation::tanh;
  }
  bf16::SplitFunction split(DType type, int parts) const { return type == DType::f16 ? splits.f16 : splits.f32[parts]; }
};

/// The units of this machine's architecture; Bf16Unit::missing says whether the CPU has them.
const Bf16Unit& amx_unit();
const Bf16Unit& bf16_dot_unit();

}  // namespace gable::cpu
