// The dataflow of a tile over eight tile registers, for any `Tiles` that can zero, load, multiply and store them: 0–3
// are the sums [half][16 lanes], 4 and 5 the input of the two halves, 6 and 7 the weights of 2 × 16 lanes. A step
// loads 4 KiB for 4 products of 16×16×32. Where terms are made of several products of parts, they are visited in an
// order in which only one operand changes at a time, so 3 products load 8 registers, 4 load 10 and 6 load 14.
#pragma once

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

/// Fetches some lines at each step: those that the sums will be written to, and those that are read after this tile.
template <class Tiles>
class Meanwhile {
 public:
  explicit Meanwhile(const MatrixCall& call)
      : finish_(call.later),
        end_(call.later + call.later_count),
        reads_(call.reads),
        y_bytes_(call.y_bytes),
        pixels_a_step_(ceil_div(2 * kHalfPositions, call.blocks * call.tap_count)) {}

  void step() {
    for (std::int64_t i = 0; i < pixels_a_step_ && finish_ != end_; ++i) fetch_pixel();
    for (std::int64_t i = 0; i < reads_->a_step && reads_->rows > 0; ++i) Tiles::will_read(reads_->next());
  }

 private:
  void fetch_pixel() {
    const char* y = static_cast<const char*>(finish_->y) + pixel_ * finish_->y_pixel * y_bytes_ / kMatrixLanes;
    for (int byte = 0; byte < y_bytes_; byte += 64) Tiles::will_write(y + byte);
    if (++pixel_ < finish_->pixels) return;
    pixel_ = 0;
    ++finish_;
  }

  const MatrixFinish* finish_;
  const MatrixFinish* end_;
  MatrixReadAhead* reads_;
  int y_bytes_;
  std::int64_t pixels_a_step_;
  std::int64_t pixel_ = 0;
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
    const std::uint16_t* b = call.b;
    for (std::int64_t block = 0; block < call.blocks; ++block) {
      for (std::int64_t tap = 0; tap < call.tap_count; ++tap) {
        const std::int64_t offset = block * call.a_block + call.taps[tap];
        products<0>(tiles, call, offset, b);
        b += PartOrder<kProducts>::kParts * kWeightBlock;
        meanwhile.step();
      }
    }
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
    (call.b_fits_l2 ? TileSum<Tiles, kProducts, 2, false>::run : TileSum<Tiles, kProducts, 2, true>::run)(call);
  } else {
    (call.b_fits_l2 ? TileSum<Tiles, kProducts, 1, false>::run : TileSum<Tiles, kProducts, 1, true>::run)(call);
  }
}

}  // namespace gable::cpu
