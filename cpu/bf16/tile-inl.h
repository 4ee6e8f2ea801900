// The dataflow of a tile over eight tile registers, for any `Tiles` that can zero, load, multiply and store them, and
// that may take a `Finish` of the sums before (`finishes`, and `line` of 32 sums; those of bf16 storage only): 0–3
// are the sums [half][16 lanes], 4 and 5 the input of the two halves, 6 and 7 the weights of 2 × 16 lanes. A step
// loads 4 KiB for 4 products of 16×16×32. Where terms are made of several products of parts, they are visited in an
// order in which only one operand changes at a time, so 3 products load 8 registers, 4 load 10 and 6 load 14.
#pragma once

#include <algorithm>

#include "cpu/bf16/unit.h"

#ifndef GABLE_MATRIX_TILE_TARGET
#define GABLE_MATRIX_TILE_TARGET  // an attribute with the instruction sets that `Tiles` uses
#endif

namespace gable::cpu {

/// Which part of the input meets which part of the weights; 0 is the greatest part.
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

/// Does something else at each step, since the products leave most of the CPU idle: finishes some of the sums before,
/// and fetches some lines of those that the sums will be written to and of those that are read after this tile. All
/// between two tiles' products must fit in what the CPU looks ahead, so it is inlined and keeps what it needs in
/// registers.
template <class Tiles, bool kFinishes>
class Meanwhile {
 public:
  GABLE_MATRIX_TILE_TARGET explicit Meanwhile(const Bf16Call& call)
      : writes_(call.later),
        end_writes_(call.later + call.later_count),
        before_(call.before->calls),
        end_before_(before_ + count_of(*call.before)),
        reads_(*call.reads),
        y_bytes_(call.y_bytes),
        lines_a_step_(lines_a_step(call.blocks * call.tap_rows * call.tap_columns)),
        reads_a_step_(reads_.a_step),
        finish_(before_ == end_before_ ? kNothing : *before_) {
    begin_writes();
    begin_finish();
    line_ = reads_.line;
    left_line_ = reads_.left;
  }

  GABLE_MATRIX_TILE_TARGET void step() {
    for (std::int64_t i = 0; i < lines_a_step_ && left_write_ > 0; ++i) {
      Tiles::will_write(write_);
      if (y_bytes_ > 64) Tiles::will_write(write_ + 64);
      write_ += write_pitch_;
      if (--left_write_ > 0) continue;
      ++writes_;
      begin_writes();
    }
    const std::int64_t count = std::min(reads_a_step_, left_line_);
    for (std::int64_t i = 0; i < count; ++i, line_ += 64) Tiles::will_read(line_);
    left_line_ -= count;
    if (count > 0 && left_line_ == 0) next_run();
    if constexpr (kFinishes) finish_some(lines_a_step_);
  }

  GABLE_MATRIX_TILE_TARGET void end(const Bf16Call& call) {
    if constexpr (kFinishes) {
      while (left_finish_ > 0) finish_some(left_finish_);
    }
    if (before_ != call.before->calls) call.before->count = 0;
    reads_.line = line_;
    reads_.left = left_line_;
  }

 private:
  static constexpr Bf16Finish kNothing{};

  static std::int64_t lines_a_step(std::int64_t steps) {
    constexpr std::uint32_t kLines = 2 * kHalfPositions;
    const auto few = static_cast<std::uint32_t>(std::clamp<std::int64_t>(steps, 1, kLines));
    return (kLines + few - 1) / few;  // 32 bits divide faster
  }
  /// Those that are finished here: all of a tile or none.
  static int count_of(const Bf16Finishes& before) {
    return kFinishes && before.count > 0 && Tiles::finishes(before.calls[0]) ? before.count : 0;
  }
  void begin_writes() {
    if (writes_ == end_writes_) return;
    write_ = static_cast<const char*>(writes_->y);
    write_pitch_ = writes_->y_pixel * y_bytes_ / kBf16Lanes;
    left_write_ = writes_->pixels;
  }
  void next_run() {
    reads_.next_run();
    line_ = reads_.line;
    left_line_ = reads_.left;
  }
  void begin_finish() {
    if (before_ == end_before_) return;
    c_ = before_->c;
    y_ = static_cast<std::uint16_t*>(before_->y);
    y_pixel_ = before_->y_pixel;
    left_finish_ = before_->pixels;
  }
  GABLE_MATRIX_TILE_TARGET void finish_some(std::int64_t lines) {
    const std::int64_t count = std::min(lines, left_finish_);
    for (std::int64_t i = 0; i < count; ++i, c_ += kBf16Lanes, y_ += y_pixel_) finish_.line(c_, y_);
    left_finish_ -= count;
    if (count == 0 || left_finish_ > 0) return;
    ++before_;
    begin_finish();
  }

  const Bf16Finish* writes_;
  const Bf16Finish* end_writes_;
  const Bf16Finish* before_;
  const Bf16Finish* end_before_;
  Bf16ReadAhead& reads_;
  std::int64_t y_bytes_, lines_a_step_, reads_a_step_;
  typename Tiles::Finish finish_;
  // What is left of one of each.
  const char* write_ = nullptr;
  std::int64_t write_pitch_ = 0, left_write_ = 0;
  const char* line_ = nullptr;
  std::int64_t left_line_ = 0;
  const float* c_ = nullptr;
  std::uint16_t* y_ = nullptr;
  std::int64_t y_pixel_ = 0, left_finish_ = 0;
};

template <class Tiles, int kProducts, int kHalves, bool kKeepsB>
class TileSum {
 public:
  GABLE_MATRIX_TILE_TARGET static void run(const Bf16Call& call) {
    const Operands from{call.a[0], call.a[1], call.position, call.a_part};
    const std::int64_t* const taps = call.taps;
    const std::int64_t blocks = call.blocks, tap_count = call.tap_count, tap_rows = call.tap_rows,
                       tap_columns = call.tap_columns, tap_pitch = call.tap_pitch, a_block = call.a_block;
    const std::uint16_t* const b = call.b;
    Tiles tiles;
    tiles.template zero<0>();
    tiles.template zero<1>();
    if constexpr (kHalves == 2) {
      tiles.template zero<2>();
      tiles.template zero<3>();
    }
    Meanwhile<Tiles, kProducts == 1> meanwhile(call);
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (std::int64_t row = 0; row < tap_rows; ++row) {
        for (std::int64_t column = 0; column < tap_columns; ++column) {
          const std::int64_t tap = row * tap_pitch + column;
          const std::int64_t weights = (block * tap_count + tap) * PartOrder<kProducts>::kParts * kWeightBlock;
          products<0>(tiles, from, block * a_block + taps[tap], b + weights);
          meanwhile.step();
        }
      }
    }
    meanwhile.end(call);
    tiles.template store<0>(call.c, kBf16Lanes);
    tiles.template store<1>(call.c + kBf16Lanes / 2, kBf16Lanes);
    if constexpr (kHalves == 2) {
      tiles.template store<2>(call.c + kHalfFloats, kBf16Lanes);
      tiles.template store<3>(call.c + kHalfFloats + kBf16Lanes / 2, kBf16Lanes);
    }
  }

 private:
  /// Copied out of the call, which the tiles' stores might change for all that the compiler knows.
  struct Operands {
    const std::uint16_t* first;
    const std::uint16_t* second;
    std::int64_t position, part;
  };

  template <int kStep>
  static void products(Tiles& tiles, const Operands& from, std::int64_t offset, const std::uint16_t* b) {
    if constexpr (kStep < kProducts) {
      using Order = PartOrder<kProducts>;
      constexpr PartProduct now = Order::kOrder[kStep];
      constexpr PartProduct before = Order::kOrder[kStep == 0 ? 0 : kStep - 1];
      if constexpr (kStep == 0 || now.b != before.b) {
        tiles.template load<6, kKeepsB>(b + now.b * kWeightBlock, kBf16Channels);
        tiles.template load<7, kKeepsB>(b + now.b * kWeightBlock + kWeightBlock / 2, kBf16Channels);
      }
      if constexpr (kStep == 0 || now.a != before.a) {
        tiles.template load<4>(from.first + offset + now.a * from.part, from.position);
        if constexpr (kHalves == 2) tiles.template load<5>(from.second + offset + now.a * from.part, from.position);
      }
      tiles.template dot<0, 4, 6>();
      tiles.template dot<1, 4, 7>();
      if constexpr (kHalves == 2) {
        tiles.template dot<2, 5, 6>();
        tiles.template dot<3, 5, 7>();
      }
      products<kStep + 1>(tiles, from, offset, b);
    }
  }
};

template <class Tiles, int kProducts>
void bf16_tile(const Bf16Call& call) {
  if (call.count[1] > 0) {
    (call.b_passes_l1 ? TileSum<Tiles, kProducts, 2, false>::run : TileSum<Tiles, kProducts, 2, true>::run)(call);
  } else {
    (call.b_passes_l1 ? TileSum<Tiles, kProducts, 1, false>::run : TileSum<Tiles, kProducts, 1, true>::run)(call);
  }
}

}  // namespace gable::cpu
