// How a convolution is cut for the bf16 units.
//   unit   (image, rows × columns of output, group, panels of output lanes); spread over threads. Its input is staged
//          once: strip [part][block of 32 channels][row phase][column phase][row][column][32 channels]. A phase holds
//          the rows (columns) that are equal modulo the stride, so neighbouring outputs are neighbours for every stride
//          and 64 bytes apart, and a tap is a constant offset. All input channels are in the strip: sums never leave
//          the registers.
//   panel  32 output lanes. Their weights stream from L2 once a tile, the strip from L2 once a panel; the taps of a
//          block of channels find its lines in L1.
//   chunk  panels that a tile's positions go through before the next tile's: with one tap, as many as fit in half of L2
//          beside the input or, if not all do, in an eighth, so that a tile's input stays in L1; else one.
//   tile   two halves of up to 16 positions: the same columns of two rows (the vertical half of a 2×2 pool), or,
//   `flat`,
//          consecutive positions of the strip, which also computes the few between one row's end and the next's start.
// Small bf16 images with weights beyond half of L2 are taken 16 at a time (`by_images`): the positions of a half are
// one pixel of 16 images, strip [block][row][column][image][32 channels]. Weights then pass through L2 once for 16
// images instead of once an image, halves are always full, and taps that padding meets are left out.
// Where it pays, taps are read where the image lies instead, and outputs are cut into regions whose taps all fall
// inside the image: a column of outputs at the border is then a tile of 16 rows, with the taps that padding leaves it.
// Few channels are folded over the kernel's columns, so that s·c of 32 are used: a strip row then holds the image's
// pixels one after another, of c channels or one more, and a position is the s pixels from its first one on. Positions
// overlap, and a row of 224 pixels of 3 channels is 1.8 KB in L1 instead of 7 KB in L2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gable/problem.h>
#include "cpu/bf16/unit.h"
#include "cpu/common/check.h"

namespace gable::cpu {

struct Bf16Blocking {
  std::int64_t n, h, w;        // source images; a pointwise problem is one row of all pixels
  std::int64_t rows, columns;  // of convolution output that are needed
  std::int64_t groups, group_c, group_k;
  std::int64_t pool;  // 1, or 2 for 2×2
  int products, parts;
  int positions;        // of a half
  std::int64_t fold;    // columns of the kernel in one position
  std::int64_t pixel;   // elements of a folded strip's pixel; even, where a unit can't leave out half a pair
  std::int64_t blocks;  // of 32 channels
  int last_pairs;       // channel pairs in the last block
  bool last_is_single;  // the last one's second channel is the next position's
  std::int64_t tap_count;
  std::vector<std::int64_t> row_phases, column_phases;  // those that some tap reads
  std::int64_t panels, unit_panels, panel_tiles;
  std::int64_t unit_rows, unit_columns, row_blocks, column_blocks, units;  // of convolution output
  std::int64_t strip_rows, strip_columns;                                  // of one phase, in positions
  std::int64_t position;                                                   // elements from one to the next
  std::int64_t a_block, a_part;                                            // elements
  std::vector<std::int64_t> taps;                                          // element offsets in the strip or image
  bool weights_once;         // units that share weights follow one another, instead of those that share input
  bool in_image;             // bf16 input is read in the image, region by region; nothing is staged
  bool by_images;            // a half's positions are up to 16 images at one pixel
  std::int64_t images;       // of a unit
  bool in_place;             // pointwise bf16 input is read where it is, but for ends
  bool weights_fit_l1;       // those that follow one another for every tile, beside its input
  bool weights_fit_l2;       // those of a unit
  std::int64_t chunk;        // panels that a tile's positions pass before the next tile's do
  bool weights_stream;       // a chunk's come from the last level, during the one before it
  std::size_t thread_bytes;  // workspace: sums, bias, strip
};

/// Empty, or why this kernel does not take the problem. `products` is 1 for bf16 storage, 3 or 4 for f16, 3 or 6 for
/// f32.
std::string bf16_refusal(const Conv2dProblem& problem, int products, const Bf16Unit& unit);

Bf16Blocking bf16_blocking(const Conv2dProblem& problem, int products, const Bf16Unit& unit, int threads);

constexpr std::int64_t kHalfCost = 2;  // positions in whose time a half starts and ends

/// Tiles whose sums exist at a time: one that is summed, and the one before, which is finished meanwhile.
constexpr std::int64_t kBf16Sums = 2;
/// Floats of a thread's sums and of one panel's bias, which come before its strip.
constexpr std::int64_t kBf16SumFloats = 2 * kHalfFloats;
constexpr std::int64_t kBf16HeadFloats = kBf16Sums * kBf16SumFloats + kBf16Lanes;

}  // namespace gable::cpu
