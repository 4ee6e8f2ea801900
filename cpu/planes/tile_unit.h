// The contract between the loops of the planes kernel and what computes its register tiles: f32 vectors of any target
// (vector_unit.cpp), AVX512-BF16 (dot.cpp), AMX (amx.cpp) and its emulation in the tests.
//
// y[k][pixel] += w[k][c] * x[c][pixel], over a strip of 32-bit elements [step][position]: a step is one channel in f32,
// or a pair of channels in bf16. A filter tap is a constant offset. There are two kinds of tile:
//   rows of pixels     Lanes of a vector are pixels: a weight is broadcast, a row of x is a vector, and sums are
//                      stored in the order of y. Neither x nor y is transposed.
//   pixels by lanes    Lanes of a vector are output channels: a pixel is broadcast. Only the sums are transposed. For
//                      small images, whose rows fill vectors badly.
#pragma once

#include <gable/problem.h>

#include <cstdint>
#include <string>

#include "cpu/common/coverage.h"
#include "cpu/common/target.h"

namespace gable::cpu::planes {

/// Steps of a block. A tile takes all taps of a block before the next block, so that the taps find its input in L1.
constexpr std::int64_t kBlockSteps = 16;
constexpr int kMaxLanes = 32;
constexpr int kMaxVectors = 4;
constexpr int kMaxPositions = 64;
constexpr int kMaxPixels = 14;

/// Stores from registers instead of to `sums`: the tile's first `count` positions are consecutive pixels of y.
struct DirectStore {
  void* y;             // null: store to sums
  DType type;          // of y
  std::int64_t plane;  // elements from one output channel to the next
  std::int64_t count;
  const float* bias;  // of each lane, or null
  float least;        // 0 for relu, or minus infinity
};

/// One register tile: output lanes x positions, summed over all steps and taps. Elements are 32 bits wide.
struct Tile {
  const void* x;                // the tile's first position, at the first step and the strip's first tap
  std::int64_t x_step, x_part;  // elements from one to the next
  const std::int64_t* taps;     // offset of each tap
  std::int64_t tap_count, steps;
  std::int64_t first_tap, end_tap;  // the taps that are multiplied; the others read padding only
  std::int64_t prefetch;            // 0, or how many elements ahead of the tile its input is prefetched
  const float* weights;             // of the tile's lanes: [block][tap][part][step][lane]; a unit of whole tiles:
                                    // [block][tap][part][lane][step]
  float* sums;                      // [lane][position]; of pixels by lanes: [pixel][lane]
  std::int64_t sums_lane;           // elements from lane to lane; of pixels by lanes: from pixel to pixel
  DirectStore direct;
};
using TileFunction = void (*)(const Tile&);

struct TileUnit {
  const char* name = "";  // of the kernel
  PathUnit coverage = PathUnit::vectors;
  std::string missing;  // why this machine can't run it; empty: it can
  /// Asks the system to let this process use it: empty, or why it may not. Null: nobody has to ask.
  std::string (*ask)() = nullptr;
  int channels = 1;          // of a step
  int positions = 0;         // of a vector
  int most_lanes = 0;        // of a tile
  bool whole_tiles = false;  // computes most_lanes lanes and kBlockSteps steps even where fewer are used
  bool stores[3] = {};       // by the type of results: whether it stores them from registers
  /// By vectors (1, 2, 4) and lanes; null where there is none. A unit of whole tiles has them by vectors and products.
  TileFunction tile[kMaxVectors + 1][kMaxLanes + 1] = {};
  /// The same that read an image in place, by its type. Units that multiply pairs have none.
  TileFunction in_place[3][kMaxVectors + 1][kMaxLanes + 1] = {};
  /// Pixels by lanes, by vectors of lanes (1, 2) and pixels.
  int most_pixels = 0;  // 0: it has no such tiles
  TileFunction pixel_tile[3][kMaxPixels + 1] = {};
  /// Before and after the tiles of a work unit; `steps` of a block. Or null.
  void (*begin)(int lanes, int steps) = nullptr;
  void (*end)() = nullptr;
  /// Nanoseconds of one vector of products, `channels` channels each: a figure for estimates where there is no AMX.
  double vector_ns = 0;

  /// Why a plan can't use it. Asks the system.
  std::string refusal() const { return missing.empty() && ask != nullptr ? ask() : missing; }
  bool multiplies_pairs() const { return channels == 2; }
};

/// f32 vectors of a target. Takes any storage type.
const TileUnit& vector_unit(const Target& target);
const TileUnit& dot_unit();
const TileUnit& amx_unit();

/// bf16 parts of a value.
constexpr int parts_of(int products) { return products <= 1 ? 1 : products == 6 ? 3 : 2; }

}  // namespace gable::cpu::planes
