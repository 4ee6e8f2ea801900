// The dataflow of a tile over eight tile registers, for any `Tiles` that can zero, load, multiply and store them: 0–3
// are the sums [half][16 lanes], 4 and 5 the input of the two halves, 6 and 7 the weights of 2 × 16 lanes. A step
// loads 4 KiB for 4 products of 16×16×32. Where terms are made of several products of parts, they are visited in an
// order in which only one operand changes at a time, so 3 products load 8 registers, 4 load 10 and 6 load 14.
#pragma once

#include <algorithm>

#include "cpu/matrix_unit.h"

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
/// and fetches some lines of those that the sums will be written to and of those that are read after this tile.
template <class Tiles>
class Meanwhile {
 public:
  explicit Meanwhile(const MatrixCall& call)
      : finish_(call.later),
        end_(call.later + call.later_count),
        before_(call.before->calls),
        end_before_(before_ + call.before->count),
        reads_(*call.reads),
        line_bytes_(call.y_bytes),
        writes_a_step_(
            ceil_div(2 * kHalfPositions, std::max<std::int64_t>(1, call.blocks * call.tap_rows * call.tap_columns))),
        finishes_a_step_(std::max(kLeastFinishes, writes_a_step_)) {
    begin_finish();
    begin_before();
  }

  void step() {
    fetch();
    if (before_ != end_before_) finish_some(finishes_a_step_);
  }
  void end(const MatrixCall& call) {
    while (before_ != end_before_) finish_some(2 * kHalfPositions);
    call.before->count = 0;
    *call.reads = reads_;
  }

 private:
  static constexpr std::int64_t kLeastFinishes = 4;  // a call

  void fetch() {
    for (std::int64_t i = 0; i < writes_a_step_ && left_ > 0; ++i) {
      Tiles::will_write(y_);
      if (line_bytes_ > 64) Tiles::will_write(y_ + 64);
      y_ += pitch_;
      if (--left_ > 0) continue;
      ++finish_;
      begin_finish();
    }
    const std::int64_t count = std::min(reads_.a_step, reads_.left);
    for (std::int64_t i = 0; i < count; ++i, reads_.line += 64) Tiles::will_read(reads_.line);
    reads_.left -= count;
    if (count > 0 && reads_.left == 0) reads_.next_run();
  }
  void finish_some(std::int64_t pixels) {
    some_.pixels = std::min(pixels, left_before_);
    some_.run(some_);
    left_before_ -= some_.pixels;
    if (left_before_ > 0) {
      const std::int64_t sums = some_.pixels * (some_.below == nullptr ? kMatrixLanes : 2 * kMatrixLanes);
      some_.c += sums;
      if (some_.below != nullptr) some_.below += sums;
      some_.y = static_cast<char*>(some_.y) + some_.pixels * some_.y_pixel * line_bytes_ / kMatrixLanes;
    } else {
      ++before_;
      begin_before();
    }
  }
  void begin_before() {
    if (before_ == end_before_) return;
    some_ = *before_;
    left_before_ = some_.pixels;
  }
  void begin_finish() {
    if (finish_ == end_) return;
    y_ = static_cast<const char*>(finish_->y);
    pitch_ = finish_->y_pixel * line_bytes_ / kMatrixLanes;
    left_ = finish_->pixels;
  }

  const MatrixFinish* finish_;
  const MatrixFinish* end_;
  const MatrixFinish* before_;
  const MatrixFinish* end_before_;
  MatrixReadAhead reads_;
  std::int64_t line_bytes_, writes_a_step_, finishes_a_step_;
  const char* y_ = nullptr;
  std::int64_t pitch_ = 0, left_ = 0;
  MatrixFinish some_;  // of those before: what is left of one
  std::int64_t left_before_ = 0;
};

template <class Tiles, int kProducts, int kHalves, bool kKeepsB>
class TileSum {
 public:
  static void run(const MatrixCall& call) {
    Tiles tiles;
    tiles.template zero<0>();
    tiles.template zero<1>();
    if constexpr (kHalves == 2) {
      tiles.template zero<2>();
      tiles.template zero<3>();
    }
    Meanwhile<Tiles> meanwhile(call);
    for (std::int64_t block = 0; block < call.blocks; ++block) {
      for (std::int64_t row = 0; row < call.tap_rows; ++row) {
        for (std::int64_t column = 0; column < call.tap_columns; ++column) {
          const std::int64_t tap = row * call.tap_pitch + column;
          const std::int64_t weights = (block * call.tap_count + tap) * PartOrder<kProducts>::kParts * kWeightBlock;
          products<0>(tiles, call, block * call.a_block + call.taps[tap], call.b + weights);
          meanwhile.step();
        }
      }
    }
    meanwhile.end(call);
    tiles.template store<0>(call.c, kMatrixLanes);
    tiles.template store<1>(call.c + kMatrixLanes / 2, kMatrixLanes);
    if constexpr (kHalves == 2) {
      tiles.template store<2>(call.c + kHalfFloats, kMatrixLanes);
      tiles.template store<3>(call.c + kHalfFloats + kMatrixLanes / 2, kMatrixLanes);
    }
  }

 private:
  template <int kStep>
  static void products(Tiles& tiles, const MatrixCall& call, std::int64_t offset, const std::uint16_t* b) {
    if constexpr (kStep < kProducts) {
      using Order = PartOrder<kProducts>;
      constexpr PartProduct now = Order::kOrder[kStep];
      constexpr PartProduct before = Order::kOrder[kStep == 0 ? 0 : kStep - 1];
      if constexpr (kStep == 0 || now.b != before.b) {
        tiles.template load<6, kKeepsB>(b + now.b * kWeightBlock, kMatrixChannels);
        tiles.template load<7, kKeepsB>(b + now.b * kWeightBlock + kWeightBlock / 2, kMatrixChannels);
      }
      if constexpr (kStep == 0 || now.a != before.a) {
        tiles.template load<4>(call.a[0] + offset + now.a * call.a_part, call.position);
        if constexpr (kHalves == 2) tiles.template load<5>(call.a[1] + offset + now.a * call.a_part, call.position);
      }
      tiles.template dot<0, 4, 6>();
      tiles.template dot<1, 4, 7>();
      if constexpr (kHalves == 2) {
        tiles.template dot<2, 5, 6>();
        tiles.template dot<3, 5, 7>();
      }
      products<kStep + 1>(tiles, call, offset, b);
    }
  }
};

template <class Tiles, int kProducts>
void matrix_tile(const MatrixCall& call) {
  if (call.count[1] > 0) {
    (call.b_passes_l1 ? TileSum<Tiles, kProducts, 2, false>::run : TileSum<Tiles, kProducts, 2, true>::run)(call);
  } else {
    (call.b_passes_l1 ? TileSum<Tiles, kProducts, 1, false>::run : TileSum<Tiles, kProducts, 1, true>::run)(call);
  }
}

}  // namespace gable::cpu
