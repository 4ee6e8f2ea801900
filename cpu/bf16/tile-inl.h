// The dataflow of a tile over eight tile registers: 0-3 are the accumulators [half][16 lanes], 4 and 5 the input of the
// two halves, 6 and 7 the weights of 2 x 16 lanes (6 alone where a panel has at most 16 lanes). A step is one block of
// channels and one tap: it loads 4 KiB for 4 products of 16x16x32. With several products of parts a term, only one
// operand changes from one product to the next: 3 products load 8 registers, 4 load 10 and 6 load 14.
// `Tiles` zeroes, loads, multiplies and stores the registers, and prefetches lines. Its `LineEpilogue` stores one line
// of 32 accumulators as bf16, for the epilogues that `overlaps` accepts: these run between the next tile's products.
#pragma once

#include <algorithm>

#include "cpu/bf16/tile.h"

#ifndef GABLE_BF16_TILE_TARGET
#define GABLE_BF16_TILE_TARGET  // an attribute with the instruction sets that `Tiles` uses
#endif

namespace gable::cpu::bf16 {

/// Part a of the input times part b of the weights; part 0 is the greatest.
struct PartProduct {
  int a, b;
};
template <int kProducts>
struct PartOrder;
template <>
struct PartOrder<1> {
  static constexpr int kParts = 1;
  static constexpr PartProduct kOrder[] = {{0, 0}};
};
template <>
struct PartOrder<3> {
  static constexpr int kParts = 2;
  static constexpr PartProduct kOrder[] = {{1, 0}, {0, 0}, {0, 1}};
};
template <>
struct PartOrder<4> {
  static constexpr int kParts = 2;
  static constexpr PartProduct kOrder[] = {{1, 1}, {1, 0}, {0, 0}, {0, 1}};
};
template <>
struct PartOrder<6> {
  static constexpr int kParts = 3;
  static constexpr PartProduct kOrder[] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 0}, {0, 2}};
};

/// What runs after each step's products, which leave most of the CPU idle: some lines of the previous tile's epilogues,
/// and prefetches of this tile's output lines and of memory that is read after this tile. The instructions between two
/// steps' tile products must fit in the CPU's reorder buffer, so all of it is inlined and its state stays in registers.
template <class Tiles, bool kRunsEpilogues>
class OverlappedWork {
 public:
  GABLE_BF16_TILE_TARGET explicit OverlappedWork(const Tile& tile)
      : next_(tile.overlap.next),
        next_end_(tile.overlap.next + tile.overlap.next_count),
        previous_(tile.overlap.previous->calls),
        previous_end_(previous_ + count_of(*tile.overlap.previous)),
        prefetch_(*tile.overlap.prefetch),
        y_bytes_(tile.overlap.y_bytes),
        lines_per_step_(lines_per_step(tile.blocks.count * tile.taps.rows * tile.taps.columns)),
        prefetches_per_step_(prefetch_.lines_per_step),
        epilogue_(previous_ == previous_end_ ? kNothing : *previous_) {
    begin_output();
    begin_epilogue();
    input_line_ = prefetch_.next_line;
    input_lines_left_ = prefetch_.lines_left;
  }

  GABLE_BF16_TILE_TARGET void step() {
    for (std::int64_t i = 0; i < lines_per_step_ && output_left_ > 0; ++i) {
      Tiles::prefetch_for_write(output_);
      if (y_bytes_ > 64) Tiles::prefetch_for_write(output_ + 64);
      output_ += output_pitch_;
      if (--output_left_ > 0) continue;
      ++next_;
      begin_output();
    }
    const std::int64_t count = std::min(prefetches_per_step_, input_lines_left_);
    for (std::int64_t i = 0; i < count; ++i, input_line_ += 64) Tiles::prefetch_for_read(input_line_);
    input_lines_left_ -= count;
    if (count > 0 && input_lines_left_ == 0) begin_next_run();
    if constexpr (kRunsEpilogues) run_epilogue(lines_per_step_);
  }

  GABLE_BF16_TILE_TARGET void end(const Tile& tile) {
    if constexpr (kRunsEpilogues) {
      while (epilogue_left_ > 0) run_epilogue(epilogue_left_);
    }
    if (previous_ != tile.overlap.previous->calls) tile.overlap.previous->count = 0;
    prefetch_.next_line = input_line_;
    prefetch_.lines_left = input_lines_left_;
  }

 private:
  static constexpr Epilogue kNothing{};

  static std::int64_t lines_per_step(std::int64_t steps) {
    constexpr std::uint32_t kLines = 2 * kHalfPositions;
    const auto few = static_cast<std::uint32_t>(std::clamp<std::int64_t>(steps, 1, kLines));
    return (kLines + few - 1) / few;  // 32 bits divide faster
  }
  /// How many of the previous tile's epilogues run here: all or none.
  static int count_of(const PendingEpilogues& previous) {
    return kRunsEpilogues && previous.count > 0 && Tiles::overlaps(previous.calls[0]) ? previous.count : 0;
  }
  void begin_output() {
    if (next_ == next_end_) return;
    output_ = static_cast<const char*>(next_->y);
    output_pitch_ = next_->y_pixel * y_bytes_ / kLanes;
    output_left_ = next_->pixels;
  }
  void begin_next_run() {
    prefetch_.begin_next_run();
    input_line_ = prefetch_.next_line;
    input_lines_left_ = prefetch_.lines_left;
  }
  void begin_epilogue() {
    if (previous_ == previous_end_) return;
    accumulators_ = previous_->accumulators;
    y_ = static_cast<std::uint16_t*>(previous_->y);
    y_pixel_ = previous_->y_pixel;
    epilogue_left_ = previous_->pixels;
  }
  GABLE_BF16_TILE_TARGET void run_epilogue(std::int64_t lines) {
    const std::int64_t count = std::min(lines, epilogue_left_);
    for (std::int64_t i = 0; i < count; ++i, accumulators_ += kLanes, y_ += y_pixel_) epilogue_.line(accumulators_, y_);
    epilogue_left_ -= count;
    if (count == 0 || epilogue_left_ > 0) return;
    ++previous_;
    begin_epilogue();
  }

  const Epilogue* next_;
  const Epilogue* next_end_;
  const Epilogue* previous_;
  const Epilogue* previous_end_;
  Prefetch& prefetch_;
  std::int64_t y_bytes_, lines_per_step_, prefetches_per_step_;
  typename Tiles::LineEpilogue epilogue_;
  // Progress of the output line prefetches, of the prefetched run and of the current epilogue.
  const char* output_ = nullptr;
  std::int64_t output_pitch_ = 0, output_left_ = 0;
  const char* input_line_ = nullptr;
  std::int64_t input_lines_left_ = 0;
  const float* accumulators_ = nullptr;
  std::uint16_t* y_ = nullptr;
  std::int64_t y_pixel_ = 0, epilogue_left_ = 0;
};

/// kVectors: of 16 lanes. One leaves out registers 1, 3 and 7.
template <class Tiles, int kProducts, int kHalves, int kVectors, bool kKeepsB>
class TileProducts {
 public:
  GABLE_BF16_TILE_TARGET static void run(const Tile& tile) {
    const Input from{tile.operands.a[0], tile.operands.a[1], tile.operands.position, tile.operands.a_part};
    const std::int64_t* const tap_offsets = tile.operands.tap_offsets;
    const std::int64_t blocks = tile.blocks.count, tap_count = tile.taps.count, tap_rows = tile.taps.rows,
                       tap_columns = tile.taps.columns, tap_pitch = tile.taps.pitch, a_block = tile.operands.a_block,
                       a_last_block = tile.operands.a_last_block;
    const std::uint16_t* const b = tile.operands.b;
    Tiles tiles;
    tiles.template zero<0>();
    if constexpr (kVectors == 2) tiles.template zero<1>();
    if constexpr (kHalves == 2) tiles.template zero<2>();
    if constexpr (kHalves == 2 && kVectors == 2) tiles.template zero<3>();
    OverlappedWork<Tiles, kProducts == 1> overlapped(tile);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t channels = block + 1 == blocks ? a_last_block : block * a_block;
      for (std::int64_t row = 0; row < tap_rows; ++row) {
        for (std::int64_t column = 0; column < tap_columns; ++column) {
          const std::int64_t tap = row * tap_pitch + column;
          const std::int64_t weights = (block * tap_count + tap) * PartOrder<kProducts>::kParts * kWeightBlock;
          products<0>(tiles, from, channels + tap_offsets[tap], b + weights);
          overlapped.step();
        }
      }
    }
    overlapped.end(tile);
    float* const sums = tile.accumulators;
    tiles.template store<0>(sums, kLanes);
    if constexpr (kVectors == 2) tiles.template store<1>(sums + kVector, kLanes);
    if constexpr (kHalves == 2) tiles.template store<2>(sums + kHalfFloats, kLanes);
    if constexpr (kHalves == 2 && kVectors == 2) tiles.template store<3>(sums + kHalfFloats + kVector, kLanes);
  }

 private:
  /// Copies of Tile::operands. The compiler must assume that the tile stores change the original.
  struct Input {
    const std::uint16_t* first;
    const std::uint16_t* second;
    std::int64_t position, part;
  };

  template <int kStep>
  static void products(Tiles& tiles, const Input& from, std::int64_t offset, const std::uint16_t* b) {
    if constexpr (kStep < kProducts) {
      using Order = PartOrder<kProducts>;
      constexpr PartProduct now = Order::kOrder[kStep];
      constexpr PartProduct before = Order::kOrder[kStep == 0 ? 0 : kStep - 1];
      if constexpr (kStep == 0 || now.b != before.b) {
        tiles.template load<6, kKeepsB>(b + now.b * kWeightBlock, kChannels);
        if constexpr (kVectors == 2) {
          tiles.template load<7, kKeepsB>(b + now.b * kWeightBlock + kWeightBlock / 2, kChannels);
        }
      }
      if constexpr (kStep == 0 || now.a != before.a) {
        tiles.template load<4>(from.first + offset + now.a * from.part, from.position);
        if constexpr (kHalves == 2) tiles.template load<5>(from.second + offset + now.a * from.part, from.position);
      }
      tiles.template dot<0, 4, 6>();
      if constexpr (kVectors == 2) tiles.template dot<1, 4, 7>();
      if constexpr (kHalves == 2) tiles.template dot<2, 5, 6>();
      if constexpr (kHalves == 2 && kVectors == 2) tiles.template dot<3, 5, 7>();
      products<kStep + 1>(tiles, from, offset, b);
    }
  }
};

template <class Tiles, int kProducts, int kHalves>
void run_tile(const Tile& tile) {
  if (tile.vectors == 1) return TileProducts<Tiles, kProducts, kHalves, 1, true>::run(tile);
  (tile.operands.b_bypasses_l1 ? TileProducts<Tiles, kProducts, kHalves, 2, false>::run
                               : TileProducts<Tiles, kProducts, kHalves, 2, true>::run)(tile);
}

template <class Tiles, int kProducts>
void bf16_tile(const Tile& tile) {
  (tile.positions[1] > 0 ? run_tile<Tiles, kProducts, 2> : run_tile<Tiles, kProducts, 1>)(tile);
}

}  // namespace gable::cpu::bf16
