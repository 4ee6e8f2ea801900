// A convolution as the loops of the bf16 units see it: extents, and the terms of a sum. Few channels are folded over
// the kernel's columns: a position's blocks of 32 channels then hold the c channels of s neighbouring pixels. A strip
// row holds the image's pixels one after another, with c channels (or c + 1) each, and positions overlap: a row of 224
// pixels of 3 channels takes 1.8 KB of L1 instead of 7 KB of L2. Narrow groups are merged: several of them become one
// group, whose packed weights are zero between channels and lanes of different groups (block-diagonal). An infinite or
// NaN input then makes NaN in all groups that share a block.
#pragma once

#include <algorithm>
#include <cstdint>

#include <gable/problem.h>
#include "cpu/bf16/unit.h"
#include "cpu/common/tiling.h"

namespace gable::cpu::bf16 {

struct Geometry {
  std::int64_t n, h, w;                   // source images; a pointwise problem is one row of all pixels
  std::int64_t rows, columns;             // of convolution output that are needed
  std::int64_t groups, group_c, group_k;  // after merging; the last group may have fewer channels and lanes
  std::int64_t merged;                    // groups of the problem in one group
  std::int64_t panels;                    // of 32 output lanes, a group
  std::int64_t pool;                      // 1, or 2 for 2x2
  std::int64_t c, k;                      // of all groups

  std::int64_t channels_of(std::int64_t group) const { return std::min(group_c, c - group * group_c); }
  /// Lanes of a panel of a group; none where the last group has fewer panels.
  std::int64_t lanes_of(std::int64_t group, std::int64_t panel) const {
    return std::clamp<std::int64_t>(k - group * group_k - panel * kLanes, 0,
                                    std::min<std::int64_t>(kLanes, group_k - panel * kLanes));
  }
};
Geometry geometry_of(const Conv2dProblem& problem, const Bf16Unit& unit);

/// What a sum adds up: taps x channels x products of parts.
struct Terms {
  int products, parts;
  // Kernel rows whose columns a position holds, row after row, of few channels; 0: positions are not gathered. All rows
  // are a whole window, of a unit with panels. Where they do not divide the window's rows, the last tap starts earlier:
  // rows that it shares with the tap before have half of their weight in each.
  std::int64_t gathered_rows;
  std::int64_t fold;      // columns of the kernel in one position; 1: not folded
  std::int64_t position;  // elements of a staged position that is not folded: one block of channels, or fewer
  std::int64_t pixel;     // elements of a folded strip's pixel; even for a unit that multiplies whole pairs only
  // Blocks of up to 32 channels. A unit that loads full halves has blocks of equal size. Where these do not divide the
  // channels, the last one starts earlier: channels that it shares with the block before have half of their weight in
  // each, so that tiles read no channel but a position's own.
  std::int64_t channels;                            // of a position, even for a unit that multiplies whole pairs only
  std::int64_t blocks, block_channels, last_block;  // last_block: its first channel
  int last_pairs;                                   // channel pairs in the last block
  bool last_is_single;                              // the last pair's second channel belongs to the next position
  std::int64_t tap_rows, tap_columns;
  std::int64_t last_tap_row;  // the first kernel row of the last row of taps

  bool gathers() const { return gathered_rows > 0; }
  bool gathers_windows() const { return gathers() && tap_rows == 1; }
  /// The first kernel row of a row of taps.
  std::int64_t kernel_row(std::int64_t tap_row) const {
    return tap_row + 1 == tap_rows ? last_tap_row : tap_row * std::max<std::int64_t>(1, gathered_rows);
  }
  /// Whether two rows of taps have this kernel row.
  bool is_in_two_taps(std::int64_t kernel_row) const {
    return gathers() && kernel_row >= last_tap_row && kernel_row < (tap_rows - 1) * gathered_rows;
  }
  /// The rows of taps that have some of these kernel rows.
  TapRange tap_rows_of(const TapRange& kernel_rows) const;
  std::int64_t tap_count() const { return tap_rows * tap_columns; }
  std::int64_t first_channel(std::int64_t block) const {
    return block + 1 == blocks ? last_block : block * block_channels;
  }
  bool is_in_two_blocks(std::int64_t channel) const {
    return channel >= last_block && channel < (blocks - 1) * block_channels;
  }
  std::int64_t steps() const { return blocks * tap_count(); }  // of one tile
  /// Elements and bytes of one panel of packed weights.
  std::int64_t panel_elements() const { return steps() * parts * kWeightBlock; }
  std::int64_t panel_bytes() const { return panel_elements() * static_cast<std::int64_t>(sizeof(std::uint16_t)); }
};
Terms terms_of(const Conv2dProblem& problem, const Geometry& geometry, int products, const Bf16Unit& unit);

/// Ratio of the computed products, padding channels and lanes included, to the products that the result needs.
double padding_factor(const Conv2dProblem& problem, const Geometry& geometry, const Terms& terms, const Bf16Unit& unit);

}  // namespace gable::cpu::bf16
