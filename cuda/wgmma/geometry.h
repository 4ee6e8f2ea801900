// How the wgmma kernel cuts a convolution: which pixels a tile holds and how they lie in shared memory, which filter
// taps share a loaded box, how many stages the rings have. Plain host arithmetic, no CUDA call: testable without a GPU.
//
// A tile is `pixels` output pixels (the instruction's N) by 64 output channels for each of two consumer warpgroups.
// Pixel n of a tile lies in row n / row, column n % row. Eight neighbours are one core-matrix group of the instruction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gable/problem.h>

namespace gable::cuda {

inline constexpr int kWgmmaChannels = 64;          ///< output channels of a consumer warpgroup's tile
inline constexpr int kWgmmaPixelBytes = 128;       ///< of input channels that a box holds of each pixel
inline constexpr int kWgmmaWeightBytes = 8192;     ///< of one stage: 64 output channels x 128 bytes of input channels
inline constexpr int kWgmmaMaxTaps = 64;           ///< of a filter
inline constexpr int kWgmmaMaxSteps = 160;         ///< the tables' size: taps times products of parts
inline constexpr int kWgmmaMaxBoxes = 128;         ///< 26 taps, each with a box and four chunks for it, need 104
inline constexpr int kWgmmaChunkTaps = 1;          ///< products of first parts that the matrix unit sums by itself
inline constexpr int kWgmmaMaxSplit = 8;           ///< blocks of a cluster
inline constexpr int kWgmmaPromotedPixels = 256;   ///< of a tile whose sums are promoted
inline constexpr int kWgmmaChunk = 32;             ///< pixels that the epilogue stores at a time
inline constexpr int kWgmmaOutputSetBytes = 8192;  ///< shared memory for outputs that are stored together
inline constexpr int kWgmmaConsumers = 2;          ///< warpgroups of a block that multiply
inline constexpr int kWgmmaBarrierBytes = 1024;    ///< of shared memory for mbarriers of 8 bytes
/// Blocks of a tile's kernel that fit into the registers of a multiprocessor, and into its shared memory.
constexpr int wgmma_resident_blocks(int pixels) { return pixels == 64 ? 2 : 1; }
/// Tiles where each step has its own box alone, whose pixels are few enough for them to matter.
constexpr bool wgmma_needs_common_stages(int pixels) { return pixels == 96 || pixels == 112 || pixels == 160; }
/// Sets of outputs of a consumer: while one is written, others are read by the copy engine.
constexpr int wgmma_output_sets(int pixels) { return pixels == 64 ? 2 : 3; }
/// Pipeline stages of boxes and weights together. Each has two barriers, full and empty; each consumer has one more.
inline constexpr int kWgmmaMaxStages = (kWgmmaBarrierBytes / 8 - kWgmmaConsumers) / 2;

/// One box of input that is loaded for each block of input channels, and the taps that it serves: steps of the
/// reduction that follow one another. With promoted sums, consecutive entries may use the same box.
struct WgmmaBox {
  std::int16_t dx = 0, dy = 0;  ///< from the tile's origin (times the stride) to the box's, in input pixels
  std::int16_t first_tap = 0, taps = 0;
  std::int8_t part = 0;            ///< of the input
  bool first = true, last = true;  ///< entry that uses the box: loads it, releases it
  bool ends_chunk = true;          ///< of promoted sums
};

struct WgmmaTap {
  std::int16_t r = 0, s = 0;  ///< position in the filter
  std::int16_t shift = 0;     ///< from the box's first pixel to the tap's, in pixels of shared memory
  std::int16_t part = 0;      ///< of the weights
};

/// How a block's two consumers share the matrix unit.
enum class WgmmaSchedule {
  own_tiles,  ///< they take turns on the matrix unit, each with its own tile
  one_tile,   ///< they multiply side by side, 64 channels each: less traffic from L2, but nothing overlaps with the
              ///< epilogue
  promoted,   ///< side by side, with the same weights for half of a tile's pixels each. The matrix unit sums chunks of
              ///< products, which are added up in registers, where sums round to nearest
};

/// Overrides of the choice by estimated time, for tests; 0 and -1 leave the choice open.
struct WgmmaOverrides {
  int pixels = 0;          ///< 64, 96, 112, 128, 160, 192, 224 or 256
  int row = 0;             ///< 8 or 16 pixels, or `pixels` where the batch is one line of pixels
  int box_per_tap = -1;    ///< 1: a box for each tap; 0: boxes that serve many taps
  int split = 0;           ///< 1, 2, 4 or 8 blocks for one item
  int schedule = -1;       ///< a WgmmaSchedule
  int chunk_taps = 0;      ///< of promoted sums; 0: kWgmmaChunkTaps
  int common_stages = -1;  ///< 1: WgmmaPipeline::common; 0: not
  int one_item = -1;       ///< 1: WgmmaGrid::one_item; 0: not
};

/// Which output channels a slice of 64 has, and which input channels they need. With groups, a slice is as many whole
/// groups as fit, or a part of one group; or 64 channels in a row where that takes fewer products. Its weights are zero
/// where an output channel doesn't see an input channel, which adds nothing to the sum.
struct WgmmaSlices {
  int width = kWgmmaChannels;            ///< channels that a slice stores, less than 64 only in `windows`
  int parts = 1, unit = kWgmmaChannels;  ///< slices that share a unit, and output channels from one unit to the next
  int last = 1 << 30;                    ///< greatest first channel: the last slice may overlap with the one before
  int group_c = 0, group_k = 0;          ///< channels of a group; 0: one group
  int input_alignment = 1;               ///< of a slice's first input channel, a power of two
  bool windows = false;                  ///< tensor stores see only the slice's channels of a pixel

  constexpr int first_in_unit(int part) const {
    return part * kWgmmaChannels < unit - width ? part * kWgmmaChannels : unit - width;
  }
  constexpr int first_output(int slice) const {
    const int first = slice / parts * unit + first_in_unit(slice % parts);
    return first < last ? first : last;
  }
  /// The first input channel of an output channel's group, aligned.
  constexpr int first_input(int output) const {
    return group_k == 0 ? 0 : output / group_k * group_c & -input_alignment;
  }
};

/// The output pixels of a tile.
struct WgmmaTile {
  int pixels = 256, row = 8;
  int width = 8, height = 32, images = 1;  ///< output pixels from one tile to the next
  int rows_per_image = 32;                 ///< rows of a tile that belong to one image
  bool flat = false;                       ///< the whole batch is one line of output pixels
  bool by_tap = false;                     ///< flat, and a box is what one tap reads for these pixels
};

/// The input pixels that are loaded at once, and how they lie in shared memory.
struct WgmmaBoxShape {
  int width = 8, height = 32, images = 1;
  int group_pitch = 1024;  ///< bytes between groups of eight pixels

  constexpr int pixels() const { return width * height * images; }
};

/// The reduction of an item: for each block of channels all boxes, for each box its taps; and how the blocks of a
/// cluster share it.
struct WgmmaSteps {
  int parts = 1;  ///< bf16 parts of an f32 value; box after box of a channel block, each with the weights' parts
  int channel_blocks = 1;  ///< of 128 bytes of input channels that a tile needs
  std::vector<WgmmaBox> boxes;
  std::vector<WgmmaTap> taps;
  int split = 1;  ///< blocks of a cluster that share the reduction of one item
  /// Where their shares end, in boxes of all channel blocks; equal in steps as far as boxes allow.
  std::array<int, kWgmmaMaxSplit> share_ends{};

  int per_item() const { return channel_blocks * static_cast<int>(taps.size()); }
  int of_greatest_share() const;
  int loads_per_block() const;  ///< boxes that are loaded for a block of channels
  /// Each step has a box of its own: 1x1 filters, and boxes by tap.
  bool box_each_step() const { return parts == 1 && boxes.size() == taps.size(); }
  int taps_per_box() const { return static_cast<int>(taps.size()) / loads_per_block(); }
};

/// The items of a launch: tiles of pixels, each with every tile of output channels.
struct WgmmaGrid {
  int tiles_x = 1, tiles_y = 1, tiles_n = 1;
  int channel_tiles = 1;      ///< of one slice or (one_tile) two
  int items = 1;              ///< tiles, all together
  bool pixels_first = false;  ///< neighbouring items share weights, not pixels
  bool one_item = false;      ///< each block has one item of a 1x1 filter, for which there is a kernel of its own
  int ctas = 1;
};

/// The pipeline in shared memory: a ring of boxes and a ring of weights, at most kWgmmaMaxStages of both together.
struct WgmmaPipeline {
  int boxes = 2, box_stage_bytes = 0;
  int weights = 4;
  bool resident_weights = false;  ///< all weights of the only channel tile stay in shared memory
  /// A box has one step, whose weights share a stage and its barriers with it: both rings are one.
  bool common = false;
};

struct WgmmaGeometry {
  WgmmaSchedule schedule = WgmmaSchedule::own_tiles;
  WgmmaTile tile;
  WgmmaBoxShape box;
  WgmmaSteps steps;
  WgmmaSlices slices;
  WgmmaGrid grid;
  WgmmaPipeline stages;
  double cycles = 0;  ///< estimate for the matrix unit, by which tiles are chosen

  std::string tile_description() const;
  std::string staging_description() const;
};

/// The corners that im2col tensor maps take: where an image's first filter starts, and where its last one starts, less
/// the image's size.
struct WgmmaCorners {
  int left, top, right, bottom;
};
WgmmaCorners wgmma_corners(const Conv2dProblem& problem);

/// bf16 parts of an f32 value in split maths; else 1.
constexpr int wgmma_parts(const Conv2dProblem& p) {
  return p.math == Math::split3 ? 2 : p.math == Math::split6 ? 3 : 1;
}

/// What the matrix unit multiplies: parts are bf16, f32 stands for tf32.
constexpr DType wgmma_operand(const Conv2dProblem& p) { return wgmma_parts(p) > 1 ? DType::bf16 : p.dtype; }

/// Channels of 128 bytes.
constexpr int wgmma_channel_block(DType type) { return type == DType::f32 ? 32 : 64; }

/// Empty, or why no tile fits the problem (whatever the device).
std::string wgmma_refusal(const Conv2dProblem& problem);

/// The tile of the least estimated time among those that satisfy the overrides and fit `shared_bytes`. Empty if no tile
/// fits.
std::optional<WgmmaGeometry> find_wgmma_geometry(const Conv2dProblem& problem, int multiprocessors, int shared_bytes,
                                                 const WgmmaOverrides& overrides = {});

/// Whether any tile fits.
bool has_wgmma_geometry(const Conv2dProblem& problem, int multiprocessors, int shared_bytes);

/// Shared memory of a consumer for outputs before their stores, and before that for the partial accumulators that the
/// other blocks of a cluster write there.
int wgmma_output_bytes(const WgmmaGeometry& geometry);

/// Dynamic shared memory of the kernel: alignment, barriers, stages, outputs.
int wgmma_shared_bytes(const WgmmaGeometry& geometry);

/// Equal where the packed weights have their taps and parts in the same order: a hash of that order.
std::int64_t wgmma_tap_order(const WgmmaGeometry& geometry);

/// Slices of 64 output channels that the packed weights hold, those past the last channel included.
int wgmma_channel_slices(const WgmmaGeometry& geometry);

/// Warpgroups of a block that multiply.
int wgmma_consumers(const WgmmaGeometry& geometry);

/// Slices of one tile: those in a row that read the same boxes.
int wgmma_slices_of_tile(const WgmmaGeometry& geometry);

}  // namespace gable::cuda
