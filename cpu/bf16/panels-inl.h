// A tile of a 1x1 convolution times consecutive panels, in the registers of tile-inl.h. With few input channels a panel
// has one or two steps of 64 cycles, in which 32 lines of output are converted and stored: the loop over panels keeps
// its state in registers, and a line is two loads, a conversion and a store. A panel's accumulators stay in registers
// until the next panel has loaded its first operands, and are stored one between two of its first products: four stores
// in a row would fill the store buffer while they wait for the last products, and later loads would wait behind them.
// `Tiles` as in tile-inl.h; its `PanelEpilogue` stores lines of up to 32 accumulators as bf16.
#pragma once

#include <algorithm>

#include "cpu/bf16/tile-inl.h"

namespace gable::cpu::bf16 {

/// The epilogue of a pending panel, some lines at a time.
template <class Tiles>
class PanelLines {
 public:
  GABLE_BF16_TILE_TARGET explicit PanelLines(const PanelTile& tile)
      : epilogue_(tile, tile.pending),
        pitch_(tile.y_pixel),
        accumulators_(tile.accumulators + tile.pending.skipped[0] * kLanes),
        y_(tile.pending.y[0]),
        left_(tile.pending.pixels[0]),
        second_accumulators_(tile.accumulators + kHalfFloats + tile.pending.skipped[1] * kLanes),
        second_y_(tile.pending.y[1]),
        second_left_(tile.pending.pixels[1]) {}

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

/// Stores an accumulator of the pending panel, if it has this one, before the panel that is multiplied takes the
/// register for its first product.
template <class Tiles, int kSum, bool kTakes>
GABLE_BF16_TILE_TARGET void replace_sum(Tiles& tiles, const PanelTile& tile) {
  constexpr int kHalf = kSum / 2, kOfLanes = kSum % 2;
  if (tile.pending.pixels[kHalf] > 0 && tile.pending.lanes > kOfLanes * kVector) {
    tiles.template store<kSum>(tile.accumulators + kHalf * kHalfFloats + kOfLanes * kVector, kLanes);
  }
  if constexpr (kTakes) {
    tiles.template zero<kSum>();
    tiles.template dot<kSum, 4 + kHalf, 6 + kOfLanes>();
  }
}

/// The products of one panel, and the pending epilogue. kVectors: of 16 lanes.
template <class Tiles, int kHalves, int kVectors, bool kKeepsB>
GABLE_BF16_TILE_TARGET void multiply_panel(const PanelTile& tile, const std::uint16_t* b) {
  const std::uint16_t* const first = tile.half[0].a;
  const std::uint16_t* const second = tile.half[1].a;
  const std::int64_t position = tile.operands.position, a_block = tile.operands.a_block,
                     a_last_block = tile.operands.a_last_block, blocks = tile.blocks,
                     lines_per_step = tile.lines_per_step;
  Tiles tiles;
  const std::int64_t first_channels = blocks == 1 ? a_last_block : 0;
  tiles.template load<6, kKeepsB>(b, kChannels);
  tiles.template load<4>(first + first_channels, position);
  if constexpr (kVectors == 2) tiles.template load<7, kKeepsB>(b + kWeightBlock / 2, kChannels);
  if constexpr (kHalves == 2) tiles.template load<5>(second + first_channels, position);
  replace_sum<Tiles, 0, true>(tiles, tile);
  replace_sum<Tiles, 1, kVectors == 2>(tiles, tile);
  replace_sum<Tiles, 2, kHalves == 2>(tiles, tile);
  replace_sum<Tiles, 3, kHalves == 2 && kVectors == 2>(tiles, tile);
  PanelLines<Tiles> pending(tile);
  for (std::int64_t block = 1; block < blocks; ++block) {
    b += kWeightBlock;
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
}

/// The halves [first, first + kHalves) of a panel wait.
template <int kHalves>
void leave_pending(PanelTile& tile, int first, std::int64_t first_lane, int lanes) {
  PendingPanel& pending = tile.pending;
  for (int half = 0; half < kHalves; ++half) {
    pending.skipped[half] = tile.half[first + half].skipped;
    pending.pixels[half] = tile.half[first + half].pixels;
    pending.y[half] = tile.half[first + half].y + first_lane;
  }
  if constexpr (kHalves == 1) pending.pixels[1] = 0;
  pending.lanes = lanes;
  pending.bias = tile.bias == nullptr ? nullptr : tile.bias + first_lane;
}

template <class Tiles, int kHalves, bool kKeepsB>
GABLE_BF16_TILE_TARGET void multiply_panels(PanelTile& tile) {
  const std::uint16_t* b = tile.operands.b;
  for (std::int64_t lane = 0; lane < tile.lanes; lane += kLanes, b += tile.blocks * kWeightBlock) {
    const int lanes = static_cast<int>(std::min<std::int64_t>(kLanes, tile.lanes - lane));
    if (lanes > kVector) {
      multiply_panel<Tiles, kHalves, 2, kKeepsB>(tile, b);
    } else {
      multiply_panel<Tiles, kHalves, 1, true>(tile, b);
    }
    leave_pending<kHalves>(tile, 0, lane, lanes);
  }
}

/// The products of a half with the second block of a panel's weights.
template <class Tiles, int kVectors>
GABLE_BF16_TILE_TARGET void add_second_block(const PanelTile& tile, const std::uint16_t* a) {
  Tiles tiles;
  tiles.template load<4>(a + tile.operands.a_block, tile.operands.position);
  tiles.template dot<0, 4, 2>();
  if constexpr (kVectors == 2) tiles.template dot<1, 4, 3>();
}
/// The blocks whose weights pass through register 5.
template <class Tiles, int kVectors>
GABLE_BF16_TILE_TARGET void add_streamed_blocks(const PanelTile& tile, const std::uint16_t* a, const std::uint16_t* b) {
  Tiles tiles;
  for (std::int64_t block = kHeldBlocks; block < tile.blocks; ++block) {
    const std::uint16_t* const weights = b + block * kWeightBlock;
    const std::int64_t channels = block + 1 == tile.blocks ? tile.operands.a_last_block : block * tile.operands.a_block;
    tiles.template load<4>(a + channels, tile.operands.position);
    tiles.template load<5>(weights, kChannels);
    tiles.template dot<0, 4, 5>();
    if constexpr (kVectors == 2) {
      tiles.template load<5>(weights + kWeightBlock / 2, kChannels);
      tiles.template dot<1, 4, 5>();
    }
  }
}

/// Begins a half times a panel whose weights are in registers 6 and 7 (first block), 2 and 3 (second block). The
/// accumulators of the half before, of kPending vectors or none, are stored before its first products.
template <class Tiles, int kVectors, int kPending, bool kStreams>
GABLE_BF16_TILE_TARGET void begin_held_half(const PanelTile& tile, const std::uint16_t* a) {
  float* const sums = tile.accumulators;
  Tiles tiles;
  tiles.template load<4>(a, tile.operands.position);
  if constexpr (!kStreams) tiles.template load<5>(a + tile.operands.a_last_block, tile.operands.position);
  if constexpr (kPending > 0) tiles.template store<0>(sums, kLanes);
  tiles.template zero<0>();
  tiles.template dot<0, 4, 6>();
  if constexpr (kPending > 1) tiles.template store<1>(sums + kVector, kLanes);
  if constexpr (kVectors == 2) {
    tiles.template zero<1>();
    tiles.template dot<1, 4, 7>();
  }
  if constexpr (kStreams) add_second_block<Tiles, kVectors>(tile, a);
}
template <class Tiles, int kVectors, bool kStreams>
GABLE_BF16_TILE_TARGET void end_held_half(const PanelTile& tile, const std::uint16_t* a, const std::uint16_t* b) {
  if constexpr (kStreams) {
    add_streamed_blocks<Tiles, kVectors>(tile, a, b);
  } else {
    Tiles tiles;
    tiles.template dot<0, 5, 2>();
    if constexpr (kVectors == 2) tiles.template dot<1, 5, 3>();
  }
}

/// The first half of a panel, and the epilogue of the panel before.
template <class Tiles, int kVectors, bool kStreams>
GABLE_BF16_TILE_TARGET void multiply_first_held_half(const PanelTile& tile, const std::uint16_t* b) {
  const PendingPanel& pending = tile.pending;
  const std::uint16_t* const a = tile.half[0].a;
  (pending.pixels[0] == 0    ? begin_held_half<Tiles, kVectors, 0, kStreams>
   : pending.lanes > kVector ? begin_held_half<Tiles, kVectors, 2, kStreams>
                             : begin_held_half<Tiles, kVectors, 1, kStreams>)(tile, a);
  end_held_half<Tiles, kVectors, kStreams>(tile, a, b);
  PanelLines<Tiles>(tile).finish();
}

/// All halves times one panel. A half loads its input alone: 2 KiB for 4 products of 16x16x32, where multiply_panel()
/// loads 4 KiB; with kStreams, 3 KiB for 2 products of each block beyond those that are held.
template <class Tiles, int kVectors, bool kStreams>
GABLE_BF16_TILE_TARGET void multiply_held_panel(PanelTile& tile, const std::uint16_t* b, std::int64_t lane, int lanes) {
  Tiles tiles;
  tiles.template load<6>(b, kChannels);
  tiles.template load<2>(b + kWeightBlock, kChannels);
  if constexpr (kVectors == 2) {
    tiles.template load<7>(b + kWeightBlock / 2, kChannels);
    tiles.template load<3>(b + kWeightBlock + kWeightBlock / 2, kChannels);
  }
  multiply_first_held_half<Tiles, kVectors, kStreams>(tile, b);
  const int last = tile.halves - 1;
  leave_pending<1>(tile, last, lane, lanes);
  const typename Tiles::PanelEpilogue epilogue(tile, tile.pending);
  const std::int64_t pitch = tile.y_pixel;
  for (int half = 0; half < last; ++half) {
    const PanelHalf& pending = tile.half[half];
    const float* const sums = tile.accumulators + pending.skipped * kLanes;
    std::uint16_t* const y = pending.y + lane;
    const int lines = pending.pixels / 2;
    const std::uint16_t* const a = tile.half[half + 1].a;
    begin_held_half<Tiles, kVectors, kVectors, kStreams>(tile, a);
    epilogue.lines(sums, y, pitch, lines);
    end_held_half<Tiles, kVectors, kStreams>(tile, a, b);
    epilogue.lines(sums + lines * kLanes, y + lines * pitch, pitch, pending.pixels - lines);
  }
}

template <class Tiles, bool kStreams>
GABLE_BF16_TILE_TARGET void multiply_held_panels(PanelTile& tile) {
  const std::uint16_t* b = tile.operands.b;
  for (std::int64_t lane = 0; lane < tile.lanes; lane += kLanes, b += tile.blocks * kWeightBlock) {
    const int lanes = static_cast<int>(std::min<std::int64_t>(kLanes, tile.lanes - lane));
    (lanes > kVector ? multiply_held_panel<Tiles, 2, kStreams> : multiply_held_panel<Tiles, 1, kStreams>)(tile, b, lane,
                                                                                                          lanes);
  }
}

/// Where weights are held, no second half is pending.
template <class Tiles>
GABLE_BF16_TILE_TARGET void finish_pending(PanelTile& tile) {
  Tiles tiles;
  replace_sum<Tiles, 0, false>(tiles, tile);
  replace_sum<Tiles, 1, false>(tiles, tile);
  replace_sum<Tiles, 2, false>(tiles, tile);
  replace_sum<Tiles, 3, false>(tiles, tile);
  PanelLines<Tiles>(tile).finish();
  tile.pending.pixels[0] = tile.pending.pixels[1] = 0;
}

template <class Tiles>
GABLE_BF16_TILE_TARGET void bf16_panels(PanelTile& tile) {
  if (tile.lanes == 0) {
    finish_pending<Tiles>(tile);
  } else if (tile.holds_weights) {
    (tile.blocks > kHeldBlocks ? multiply_held_panels<Tiles, true> : multiply_held_panels<Tiles, false>)(tile);
  } else if (tile.halves == 2) {
    (tile.operands.b_bypasses_l1 ? multiply_panels<Tiles, 2, false> : multiply_panels<Tiles, 2, true>)(tile);
  } else {
    (tile.operands.b_bypasses_l1 ? multiply_panels<Tiles, 1, false> : multiply_panels<Tiles, 1, true>)(tile);
  }
}

}  // namespace gable::cpu::bf16
