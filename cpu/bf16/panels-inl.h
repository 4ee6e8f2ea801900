// A tile of a 1x1 convolution times consecutive panels, in the registers of tile-inl.h. With few input channels a panel
// has one or two steps of 64 cycles, in which 32 lines of output are converted and stored: the loop over panels keeps
// its state in registers, and a line is two loads, a conversion and a store.
// `Tiles` as in tile-inl.h; its `PanelEpilogue` stores lines of up to 32 accumulators as bf16.
#pragma once

#include <algorithm>

#include "cpu/bf16/tile-inl.h"

namespace gable::cpu::bf16 {

/// The epilogue of a pending panel, some lines at a time.
template <class Tiles>
class PanelLines {
 public:
  GABLE_BF16_TILE_TARGET PanelLines(const PanelTile& tile, const PendingPanel& panel)
      : epilogue_(tile, panel),
        pitch_(tile.y_pixel),
        accumulators_(panel.accumulators[0]),
        y_(panel.y[0]),
        left_(panel.pixels[0]),
        second_accumulators_(panel.accumulators[1]),
        second_y_(panel.y[1]),
        second_left_(panel.pixels[1]) {}

  GABLE_BF16_TILE_TARGET void step(std::int64_t lines) {
    const std::int64_t count = std::min(lines, left_);
    epilogue_.lines(accumulators_, y_, pitch_, count);
    accumulators_ += count * kLanes;
    y_ += count * pitch_;
    left_ -= count;
    if (left_ > 0) return;
    accumulators_ = second_accumulators_;
    y_ = second_y_;
    left_ = second_left_;
    second_left_ = 0;
  }
  GABLE_BF16_TILE_TARGET void finish() {
    while (left_ > 0) step(kHalfPositions);
  }

 private:
  typename Tiles::PanelEpilogue epilogue_;
  std::int64_t pitch_;
  const float* accumulators_;
  std::uint16_t* y_;
  std::int64_t left_;
  const float* second_accumulators_;
  std::uint16_t* second_y_;
  std::int64_t second_left_;
};

/// The products of one panel, and a pending epilogue. kVectors: of 16 lanes.
template <class Tiles, int kHalves, int kVectors, bool kKeepsB>
GABLE_BF16_TILE_TARGET void multiply_panel(const PanelTile& tile, const PendingPanel& before, const std::uint16_t* b,
                                           float* sums) {
  const std::uint16_t* const first = tile.operands.a[0];
  const std::uint16_t* const second = tile.operands.a[1];
  const std::int64_t position = tile.operands.position, a_block = tile.operands.a_block,
                     a_last_block = tile.operands.a_last_block, blocks = tile.blocks,
                     lines_per_step = tile.lines_per_step;
  Tiles tiles;
  tiles.template zero<0>();
  if constexpr (kVectors == 2) tiles.template zero<1>();
  if constexpr (kHalves == 2) tiles.template zero<2>();
  if constexpr (kHalves == 2 && kVectors == 2) tiles.template zero<3>();
  PanelLines<Tiles> pending(tile, before);
  for (std::int64_t block = 0; block < blocks; ++block, b += kWeightBlock) {
    const std::int64_t channels = block + 1 == blocks ? a_last_block : block * a_block;
    tiles.template load<6, kKeepsB>(b, kChannels);
    tiles.template load<4>(first + channels, position);
    tiles.template dot<0, 4, 6>();
    if constexpr (kVectors == 2) {
      tiles.template load<7, kKeepsB>(b + kWeightBlock / 2, kChannels);
      tiles.template dot<1, 4, 7>();
    }
    if constexpr (kHalves == 2) {
      tiles.template load<5>(second + channels, position);
      tiles.template dot<2, 5, 6>();
      if constexpr (kVectors == 2) tiles.template dot<3, 5, 7>();
    }
    pending.step(lines_per_step);
  }
  pending.finish();
  tiles.template store<0>(sums, kLanes);
  if constexpr (kVectors == 2) tiles.template store<1>(sums + kVector, kLanes);
  if constexpr (kHalves == 2) tiles.template store<2>(sums + kHalfFloats, kLanes);
  if constexpr (kHalves == 2 && kVectors == 2) tiles.template store<3>(sums + kHalfFloats + kVector, kLanes);
}

inline void leave_pending(PanelTile& tile, PendingPanel& pending, const float* sums, std::int64_t first_lane,
                          int lanes) {
  for (int half = 0; half < 2; ++half) {
    pending.accumulators[half] = sums + half * kHalfFloats + tile.skipped[half] * kLanes;
    pending.pixels[half] = tile.pixels[half];
    pending.y[half] = tile.y[half] + first_lane;
  }
  pending.lanes = lanes;
  pending.bias = tile.bias == nullptr ? nullptr : tile.bias + first_lane;
}

template <class Tiles, int kHalves, bool kKeepsB>
GABLE_BF16_TILE_TARGET void multiply_panels(PanelTile& tile) {
  const std::uint16_t* b = tile.operands.b;
  for (std::int64_t lane = 0; lane < tile.lanes; lane += kLanes, b += tile.blocks * kWeightBlock) {
    const int lanes = static_cast<int>(std::min<std::int64_t>(kLanes, tile.lanes - lane));
    const int now = tile.next;
    tile.next = now + 1 == kPanelsAlive ? 0 : now + 1;
    PendingPanel& before = tile.pending[tile.next];
    float* const sums = tile.accumulators + now * 2 * kHalfFloats;
    if (lanes > kVector) {
      multiply_panel<Tiles, kHalves, 2, kKeepsB>(tile, before, b, sums);
    } else {
      multiply_panel<Tiles, kHalves, 1, true>(tile, before, b, sums);
    }
    before.pixels[0] = before.pixels[1] = 0;
    leave_pending(tile, tile.pending[now], sums, lane, lanes);
  }
}

template <class Tiles>
GABLE_BF16_TILE_TARGET void finish_pending(PanelTile& tile) {
  for (PendingPanel& panel : tile.pending) {
    PanelLines<Tiles>(tile, panel).finish();
    panel.pixels[0] = panel.pixels[1] = 0;
  }
}

template <class Tiles>
GABLE_BF16_TILE_TARGET void bf16_panels(PanelTile& tile) {
  if (tile.lanes == 0) {
    finish_pending<Tiles>(tile);
  } else if (tile.has_second) {
    (tile.operands.b_bypasses_l1 ? multiply_panels<Tiles, 2, false> : multiply_panels<Tiles, 2, true>)(tile);
  } else {
    (tile.operands.b_bypasses_l1 ? multiply_panels<Tiles, 1, false> : multiply_panels<Tiles, 1, true>)(tile);
  }
}

}  // namespace gable::cpu::bf16
