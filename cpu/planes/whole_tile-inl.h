// The dataflow of a tile over eight tile registers, with weights as the first operand and pixels as the second: 0-3 are
// the sums [16 lanes][vector of 16 positions], 4 and 5 the weights of 2 x 16 lanes, 6 and 7 two vectors of positions of
// 16 pairs of channels. A step (one block of channels, one tap) loads 4 KiB for 4 products of 16x16x32. Several
// products of parts a term are ordered so that only one operand changes from one to the next.
#pragma once

#include <algorithm>

#include "cpu/planes/tile_unit.h"

namespace gable::cpu::planes {

/// Part x of the input times part w of the weights; part 0 is the greatest.
struct PartProduct {
  int x, w;
};
template <int kProducts>
struct PartOrder;
template <>
struct PartOrder<1> {
  static constexpr PartProduct kOrder[] = {{0, 0}};
};
template <>
struct PartOrder<3> {
  static constexpr PartProduct kOrder[] = {{1, 0}, {0, 0}, {0, 1}};
};
template <>
struct PartOrder<4> {
  static constexpr PartProduct kOrder[] = {{1, 1}, {1, 0}, {0, 0}, {0, 1}};
};
template <>
struct PartOrder<6> {
  static constexpr PartProduct kOrder[] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 0}, {0, 2}};
};

/// Weights of one half (16 lanes), block, tap and part: [16 lanes][16 pairs], in 32-bit elements.
constexpr std::int64_t kHalfWeights = 16 * kBlockSteps;

template <class Tiles, int kProducts, int kVectors>
class WholeTile {
 public:
  static void run(const Tile& tile) {
    Tiles tiles;
    tiles.template zero<0>();
    tiles.template zero<2>();
    if constexpr (kVectors == 2) {
      tiles.template zero<1>();
      tiles.template zero<3>();
    }
    const float* weights = tile.weights;
    const auto* block = static_cast<const float*>(tile.x);
    for (std::int64_t left = tile.steps; left > 0; left -= kBlockSteps, block += kBlockSteps * tile.x_step) {
      for (std::int64_t tap = 0; tap < tile.tap_count; ++tap) {
        products<0>(tiles, tile, block + tile.taps[tap], weights);
        weights += parts_of(kProducts) * 2 * kHalfWeights;
      }
    }
    float* second = tile.sums + 16 * tile.sums_lane;
    tiles.template store<0>(tile.sums, tile.sums_lane);
    tiles.template store<2>(second, tile.sums_lane);
    if constexpr (kVectors == 2) {
      tiles.template store<1>(tile.sums + 16, tile.sums_lane);
      tiles.template store<3>(second + 16, tile.sums_lane);
    }
  }

 private:
  static const std::uint16_t* halves(const float* elements) { return reinterpret_cast<const std::uint16_t*>(elements); }

  template <int kStep>
  static void products(Tiles& tiles, const Tile& tile, const float* x, const float* weights) {
    if constexpr (kStep < kProducts) {
      using Order = PartOrder<kProducts>;
      constexpr PartProduct now = Order::kOrder[kStep];
      constexpr PartProduct before = Order::kOrder[kStep == 0 ? 0 : kStep - 1];
      if constexpr (kStep == 0 || now.x != before.x) {
        const float* part = x + now.x * tile.x_part;
        tiles.template load<6>(halves(part), 2 * tile.x_step);
        if constexpr (kVectors == 2) tiles.template load<7>(halves(part + 16), 2 * tile.x_step);
      }
      if constexpr (kStep == 0 || now.w != before.w) {
        const float* part = weights + now.w * 2 * kHalfWeights;
        tiles.template load<4>(halves(part), 2 * kBlockSteps);
        tiles.template load<5>(halves(part + kHalfWeights), 2 * kBlockSteps);
      }
      tiles.template dot<0, 4, 6>();
      if constexpr (kVectors == 2) tiles.template dot<1, 4, 7>();
      tiles.template dot<2, 5, 6>();
      if constexpr (kVectors == 2) tiles.template dot<3, 5, 7>();
      products<kStep + 1>(tiles, tile, x, weights);
    }
  }
};

template <class Tiles>
void fill_whole_tiles(TileUnit& unit) {
  unit.tile[1][1] = WholeTile<Tiles, 1, 1>::run;
  unit.tile[1][3] = WholeTile<Tiles, 3, 1>::run;
  unit.tile[1][4] = WholeTile<Tiles, 4, 1>::run;
  unit.tile[1][6] = WholeTile<Tiles, 6, 1>::run;
  unit.tile[2][1] = WholeTile<Tiles, 1, 2>::run;
  unit.tile[2][3] = WholeTile<Tiles, 3, 2>::run;
  unit.tile[2][4] = WholeTile<Tiles, 4, 2>::run;
  unit.tile[2][6] = WholeTile<Tiles, 6, 2>::run;
}

/// A unit of whole tiles of 32 lanes, whose `Tiles` zeroes, loads, multiplies and stores the registers.
template <class Tiles>
TileUnit whole_tile_unit() {
  TileUnit unit;
  unit.channels = 2;
  unit.positions = 16;
  unit.most_lanes = 32;
  unit.whole_tiles = true;
  fill_whole_tiles<Tiles>(unit);
  return unit;
}

}  // namespace gable::cpu::planes
