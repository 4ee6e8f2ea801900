// See geometry.h.
#include "cuda/wgmma/geometry.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <utility>

#include "cuda/wgmma/estimate.h"

namespace gable::cuda {
namespace {

constexpr int kMaxBoxStages = 4, kMaxSmallBoxStages = 8;
constexpr int kMaxShortBoxStages = 16;  // of boxes with fewer pixels than a tile
constexpr int kMaxWeightStages = 16;    // in a ring; resident ones take what they need
// With fewer, boxes have more stages in a ring of their own. Two blocks of a multiprocessor have six together.
constexpr int kMinCommonStages = 4, kMinCommonStagesOfTwo = 3;
// Of a block with one item. Stages that are used again are best few (of one consumer, of two).
constexpr int kMaxItemStages = 12, kMaxReusedStages = 8, kMaxReusedStagesOfTwo = 6;
constexpr int kAlignment = 1024;  // the swizzle's period; dynamic shared memory is aligned to less

int as_int(std::int64_t value) { return static_cast<int>(value); }

/// Taps that read the same phase of a strided input, so that one box serves them.
struct Phase {
  int y = 0, x = 0;
  auto operator<=>(const Phase&) const = default;
};

struct Span {
  int h = 0, w = 0;
};

/// How far the taps of one box reach beyond the tile, in pixels of shared memory.
Span span_of(const Conv2dProblem& p, bool box_per_tap) {
  if (box_per_tap) return {};
  return {as_int((p.r - 1) * p.dilation_h / p.stride_h), as_int((p.s - 1) * p.dilation_w / p.stride_w)};
}

/// The steps of one box: its part of the input with each part of the weights that it is multiplied by, tap by tap.
/// Parts i and j of values are 2^-8i and 2^-8j of them: products with i + j >= parts are left out.
void add_entries(WgmmaBox box, const std::vector<WgmmaTap>& taps, int chunk_taps, WgmmaGeometry& g) {
  std::vector<WgmmaTap> steps;
  for (int part = 0; part < g.steps.parts - box.part; ++part) {
    for (WgmmaTap tap : taps) {
      tap.part = static_cast<std::int16_t>(part);
      steps.push_back(tap);
    }
  }
  std::size_t at = 0;
  while (at < steps.size()) {
    std::size_t count = steps.size() - at;
    // Products of first parts are summed apart from the others, in chunks short enough for the matrix unit's rounding.
    const bool greatest = g.schedule == WgmmaSchedule::promoted && box.part == 0 && at < taps.size();
    if (greatest) count = std::min(static_cast<std::size_t>(chunk_taps), taps.size() - at);
    box.first = at == 0;
    box.last = at + count == steps.size();
    box.ends_chunk = greatest || (box.last && box.part + 1 == g.steps.parts);
    box.first_tap = static_cast<std::int16_t>(g.steps.taps.size() + at);
    box.taps = static_cast<std::int16_t>(count);
    g.steps.boxes.push_back(box);
    at += count;
  }
  g.steps.taps.insert(g.steps.taps.end(), steps.begin(), steps.end());
}

/// A box of each part of the input.
void add_parts(WgmmaBox box, const std::vector<WgmmaTap>& taps, int chunk_taps, WgmmaGeometry& g) {
  for (int part = 0; part < g.steps.parts; ++part) {
    box.part = static_cast<std::int8_t>(part);
    add_entries(box, taps, chunk_taps, g);
  }
}

/// Boxes that the copy engine gathers: taps are offsets from the pixel where a filter starts.
void add_gathered_boxes(const Conv2dProblem& p, int chunk_taps, WgmmaGeometry& g) {
  for (int r = 0; r < p.r; ++r) {
    for (int s = 0; s < p.s; ++s) {
      WgmmaBox box;
      box.dx = static_cast<std::int16_t>(s * p.dilation_w);
      box.dy = static_cast<std::int16_t>(r * p.dilation_h);
      add_parts(box, {{static_cast<std::int16_t>(r), static_cast<std::int16_t>(s), 0, 0}}, chunk_taps, g);
    }
  }
}

void add_boxes(const Conv2dProblem& p, bool box_per_tap, int chunk_taps, WgmmaGeometry& g) {
  std::map<Phase, std::vector<WgmmaTap>> of_phase;
  for (int r = 0; r < p.r; ++r) {
    for (int s = 0; s < p.s; ++s) {
      const int y = as_int(r * p.dilation_h), x = as_int(s * p.dilation_w);
      const int stride_h = as_int(p.stride_h), stride_w = as_int(p.stride_w);
      const Phase phase = box_per_tap ? Phase{y, x} : Phase{y % stride_h, x % stride_w};
      const int shift = box_per_tap ? 0 : y / stride_h * g.box.width + x / stride_w;
      of_phase[phase].push_back(
          {static_cast<std::int16_t>(r), static_cast<std::int16_t>(s), static_cast<std::int16_t>(shift), 0});
    }
  }
  for (const auto& [phase, taps] : of_phase) {
    WgmmaBox box;
    box.dx = static_cast<std::int16_t>(phase.x - p.pad_left);
    box.dy = static_cast<std::int16_t>(phase.y - p.pad_top);
    add_parts(box, taps, chunk_taps, g);
  }
}

/// The input's pixels are the output's, one by one.
bool is_line(const Conv2dProblem& p) {
  return p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && p.pad_top == 0 && p.pad_left == 0 &&
         p.ho == p.h && p.wo == p.w;
}

/// One line of pixels over the whole batch. If it is shorter than a tile, so are the boxes: the copy engine reads lines
/// for the pixels past the tensor's end too, the same few for all blocks. Products then read what lies behind a box,
/// for outputs that are not stored.
void lay_out_flat(const Conv2dProblem& p, WgmmaGeometry& g) {
  const std::int64_t line = p.n * p.ho * p.wo;
  g.tile.flat = true;
  g.tile.by_tap = !is_line(p);
  g.tile.row = g.tile.width = g.tile.pixels;
  g.box.width = as_int(std::min<std::int64_t>(g.tile.pixels, round_up(line, 8)));
  g.tile.height = g.tile.rows_per_image = g.box.height = 1;
  g.grid.tiles_x = as_int(ceil_div(line, g.tile.pixels));
}

bool has_short_boxes(const WgmmaGeometry& g) { return g.tile.flat && g.box.width < g.tile.pixels; }

/// Strips of eight pixels; the box is as wide as the taps need, so groups of eight lie at the box's row pitch. Images
/// that are lower than the strip share a tile, a multiple of four rows each (what the epilogue stores at once).
bool lay_out_strip(const Conv2dProblem& p, const Span& span, WgmmaGeometry& g) {
  const int rows = g.tile.pixels / 8;
  g.tile.row = 8;
  g.tile.width = 8;
  g.box.width = 8 + span.w;
  g.box.group_pitch = g.box.width * kWgmmaPixelBytes;
  // Rows beyond an image are zeros, and so are the padding rows above the next: the two may overlap.
  const std::int64_t pad_bottom = p.ho + span.h - p.pad_top - p.h;  // where the stride is 1
  const std::int64_t shared = p.stride_h == 1 ? std::max<std::int64_t>(0, std::min(p.pad_top, pad_bottom)) : 0;
  const int image_rows = as_int(round_up(p.ho + span.h - shared, 4));
  const int images = as_int(std::min<std::int64_t>(rows / image_rows, p.n));
  if (images > 1 && rows % image_rows == 0) {
    g.tile.images = g.box.images = rows / image_rows;
    g.tile.height = g.tile.rows_per_image = g.box.height = image_rows;
  } else {
    g.tile.height = g.tile.rows_per_image = rows;
    g.box.height = rows + span.h;
  }
  g.grid.tiles_x = as_int(ceil_div(p.wo, 8));
  g.grid.tiles_y = as_int(ceil_div(p.ho, g.tile.height));
  return g.box.height <= 256;
}

/// Rows of sixteen pixels, loaded with what lies beyond them, so that all groups of eight are 1024 bytes apart.
bool lay_out_line(const Conv2dProblem& p, const Span& span, WgmmaGeometry& g) {
  if (p.wo + span.w > 16) return false;
  g.tile.row = g.box.width = g.tile.width = 16;
  g.tile.height = g.tile.rows_per_image = g.tile.pixels / 16;
  g.box.height = g.tile.height + span.h;
  g.grid.tiles_y = as_int(ceil_div(p.ho, g.tile.height));
  return true;
}

int slices_of(const WgmmaGeometry& g) { return g.schedule == WgmmaSchedule::one_tile ? 2 : 1; }

/// Tiles of output channels, and the blocks of input channels that the tile with the most of them needs.
struct ChannelCut {
  WgmmaSlices slices;
  int tiles = 0, blocks = 0;
};

ChannelCut cut_channels(const Conv2dProblem& p, const WgmmaSlices& slices, int count, int slices_of_tile) {
  const int block = wgmma_channel_block(wgmma_operand(p));
  ChannelCut cut{.slices = slices, .tiles = as_int(ceil_div(count, slices_of_tile))};
  for (int tile = 0; tile < cut.tiles; ++tile) {
    const int first = slices.first_output(tile * slices_of_tile);
    const std::int64_t end = slices.first_output((tile + 1) * slices_of_tile - 1) + slices.width;
    const std::int64_t last_group = (std::min(end, p.k) - 1) / p.group_k();
    const std::int64_t inputs = (last_group + 1) * p.group_c() - slices.first_input(first);
    cut.blocks = std::max(cut.blocks, as_int(ceil_div(inputs, block)));
  }
  return cut;
}

/// The cut of the fewest products.
ChannelCut cut_channels(const Conv2dProblem& p, int slices_of_tile) {
  WgmmaSlices slices;
  const int rows = as_int(ceil_div(p.k, kWgmmaChannels));
  if (p.groups == 1) return cut_channels(p, slices, rows, slices_of_tile);
  const int k = as_int(p.k), group_k = as_int(p.group_k());
  const int vector = 16 / as_int(static_cast<std::int64_t>(size_of(p.dtype)));
  slices.group_c = as_int(p.group_c());
  slices.group_k = group_k;
  // Split maths lay out the parts of a block of channels one after the other.
  slices.input_alignment = wgmma_parts(p) > 1 ? wgmma_channel_block(DType::bf16) : vector;
  ChannelCut best = cut_channels(p, slices, rows, slices_of_tile);
  const auto consider = [&](int count) {
    const ChannelCut cut = cut_channels(p, slices, count, slices_of_tile);
    if (cut.tiles * cut.blocks < best.tiles * best.blocks) best = cut;
  };
  if (group_k > kWgmmaChannels) {
    slices.parts = as_int(ceil_div(group_k, kWgmmaChannels));
    slices.unit = group_k;
    if (group_k % vector == 0) consider(slices.parts * as_int(p.groups));
    return best;
  }
  int width = kWgmmaChannels / group_k * group_k;
  while (width > 0 && width % vector != 0) width -= group_k;
  if (width == 0 || width > k) return best;
  slices.width = slices.unit = width;
  slices.last = k - width;
  slices.windows = width < kWgmmaChannels;
  consider(as_int(ceil_div(k, width)));
  return best;
}

/// Whether blocks that start together, on neighbouring multiprocessors, read less if they are neighbours in pixels.
/// Fitted to 93 layers: bytes of weights count 2.5 times, and 16 blocks are neighbours.
bool pixels_should_be_first(const WgmmaGeometry& g) {
  static constexpr int kNeighbours = 16;
  const int channel_tiles = g.grid.channel_tiles, pixel_tiles = g.grid.items / channel_tiles;
  const int weights = 5 * kWgmmaWeightBytes * slices_of(g), box = 2 * g.box.pixels() * kWgmmaPixelBytes;
  const auto cost = [](int first, int of_first, int of_second) {
    return std::min(first, kNeighbours) * of_first + ceil_div(kNeighbours, first) * of_second;
  };
  return cost(pixel_tiles, box, weights) <= cost(channel_tiles, weights, box);
}

/// Stages of a block with one item, in whose place its outputs lie.
bool share_out_memory_of_item(int shared_bytes, WgmmaGeometry& g) {
  g.stages.box_stage_bytes = as_int(round_up(g.box.pixels() * kWgmmaPixelBytes, kAlignment));
  const int stage_bytes = g.stages.box_stage_bytes + kWgmmaWeightBytes * slices_of(g);
  const int reused = slices_of(g) == 1 ? kMaxReusedStages : kMaxReusedStagesOfTwo;
  g.stages.boxes = std::min(has_short_boxes(g) ? kMaxShortBoxStages : kMaxItemStages,
                            (shared_bytes - kAlignment - kWgmmaBarrierBytes) / stage_bytes);
  // Weights that no other block reads are the longest part of the traffic: the more in flight, the better, and no other
  // block may share the multiprocessor, as those of the next launch would, two by two.
  const bool streams = g.grid.items == g.grid.channel_tiles;
  if (!streams && g.stages.boxes < g.steps.channel_blocks) g.stages.boxes = std::min(g.stages.boxes, reused);
  g.stages.weights = g.stages.boxes;
  g.stages.common = true;
  return g.stages.boxes >= kMinCommonStages;
}

/// How many stages both rings have; false if the box is too large. `shared_bytes`: of a block.
bool share_out_memory(int shared_bytes, const Span& span, const WgmmaOverrides& overrides, WgmmaGeometry& g) {
  if (g.grid.one_item) return share_out_memory_of_item(shared_bytes, g);
  // The last row that a tap reads may end past the box. The kernel clears this slack once.
  const int slack = g.tile.flat ? 0 : span.h * g.box.width + span.w;
  g.stages.box_stage_bytes = as_int(round_up((g.box.pixels() + slack) * kWgmmaPixelBytes, kAlignment));
  const int free = shared_bytes - kAlignment - kWgmmaBarrierBytes - 2 * wgmma_output_bytes(g);
  const int weight_bytes = kWgmmaWeightBytes * slices_of(g);
  if (g.steps.box_each_step() && overrides.common_stages != 0) {
    const int most = has_short_boxes(g) ? kMaxShortBoxStages : kMaxSmallBoxStages;
    g.stages.boxes = g.stages.weights = std::min(most, free / (g.stages.box_stage_bytes + weight_bytes));
    g.stages.common =
        g.stages.boxes >= (wgmma_resident_blocks(g.tile.pixels) > 1 ? kMinCommonStagesOfTwo : kMinCommonStages);
    if (g.stages.common) return true;
  }
  if (overrides.common_stages == 1 || wgmma_needs_common_stages(g.tile.pixels)) return false;
  const int steps = g.steps.per_item();
  const int beside_resident = (free - steps * kWgmmaWeightBytes) / g.stages.box_stage_bytes;
  g.stages.resident_weights = g.grid.channel_tiles == 1 && g.schedule == WgmmaSchedule::own_tiles &&
                              g.steps.split == 1 && beside_resident >= 2 && steps + kMaxBoxStages <= kWgmmaMaxStages;
  if (g.stages.resident_weights) {
    g.stages.weights = steps;
    g.stages.boxes = std::min(beside_resident, kMaxBoxStages);
    return true;
  }
  static_assert(kMaxSmallBoxStages + kMaxWeightStages <= kWgmmaMaxStages);
  const int of_both = std::clamp(free / (g.stages.box_stage_bytes + weight_bytes), kMaxBoxStages, kMaxSmallBoxStages);
  const int wanted = g.steps.taps_per_box() >= 4 ? 2 : g.steps.taps_per_box() > 1 ? kMaxBoxStages : of_both;
  const int least_weights = slices_of(g) == 2 ? 3 : 4;
  for (g.stages.boxes = wanted; g.stages.boxes >= 2; --g.stages.boxes) {
    const int left = free - g.stages.boxes * g.stages.box_stage_bytes;
    g.stages.weights = std::min(kMaxWeightStages, left / weight_bytes);
    if (left > 0 && g.stages.weights >= least_weights) return true;
  }
  return false;
}

/// Each share has at least one box, because there are no fewer boxes than shares.
void share_out_boxes(WgmmaSteps& s) {
  s.share_ends = {};
  const int boxes = s.channel_blocks * static_cast<int>(s.boxes.size());
  const double wanted = s.per_item() / static_cast<double>(s.split);
  int box = 0, steps = 0;
  for (int share = 0; share < s.split; ++share) {
    const int last_possible = boxes - (s.split - 1 - share);
    const int begin = box;
    while (box < last_possible) {
      const int taps = s.boxes[static_cast<std::size_t>(box) % s.boxes.size()].taps;
      if (box > begin && steps + taps / 2.0 > wanted * (share + 1)) break;
      steps += taps;
      ++box;
    }
    s.share_ends[static_cast<std::size_t>(share)] = box;
  }
  s.share_ends[static_cast<std::size_t>(s.split - 1)] = boxes;
}

bool can_have_one_item(const WgmmaGeometry& g, int multiprocessors) {
  return g.tile.flat && g.steps.box_each_step() && g.schedule != WgmmaSchedule::promoted &&
         g.grid.items <= multiprocessors;
}

/// What candidates of one shape share: the tile and its boxes.
bool lay_out_tile(const Conv2dProblem& p, const WgmmaOverrides& candidate, WgmmaGeometry& g) {
  const Span span = span_of(p, candidate.box_per_tap == 1);
  g.tile = {};
  g.box = {};
  g.grid = {};
  g.tile.pixels = candidate.pixels;
  if (candidate.row == 8) {
    if (!lay_out_strip(p, span, g)) return false;
  } else if (candidate.row == 16) {
    if (!lay_out_line(p, span, g)) return false;
  } else {
    lay_out_flat(p, g);
  }
  g.grid.tiles_n = g.tile.flat ? 1 : as_int(ceil_div(p.n, g.tile.images));
  return true;
}

/// The boxes and their steps, which do not depend on the number of pixels.
WgmmaSteps steps_of(const Conv2dProblem& p, const WgmmaOverrides& candidate, const WgmmaGeometry& tile) {
  WgmmaGeometry g;
  g.schedule = tile.schedule;
  g.tile = tile.tile;
  g.box = tile.box;
  g.steps.parts = wgmma_parts(p);
  const int chunk_taps = candidate.chunk_taps > 0 ? candidate.chunk_taps : kWgmmaChunkTaps;
  if (g.tile.by_tap) {
    add_gathered_boxes(p, chunk_taps, g);
  } else {
    add_boxes(p, candidate.box_per_tap == 1, chunk_taps, g);
  }
  return std::move(g.steps);
}

bool fits_tables(const WgmmaSteps& steps) {
  return steps.taps.size() <= std::size_t{kWgmmaMaxSteps} && steps.boxes.size() <= std::size_t{kWgmmaMaxBoxes};
}

void set_channels(const Conv2dProblem& p, const ChannelCut& channels, WgmmaGeometry& g) {
  g.slices = channels.slices;
  g.grid.channel_tiles = channels.tiles;
  g.steps.channel_blocks = channels.blocks;
  g.grid.pixels_first = p.k * p.r * p.s > 4 * p.n * p.h * p.w * p.groups;
  g.grid.items = g.grid.tiles_x * g.grid.tiles_y * g.grid.tiles_n * g.grid.channel_tiles;
}

/// Whether the candidate's split and its blocks' number of items suit the input that is laid out.
bool suits(const WgmmaOverrides& candidate, const WgmmaGeometry& input, int multiprocessors) {
  const int split = candidate.split;
  if (split > 1 && input.tile.pixels % kWgmmaChunk != 0) return false;  // the last two chunks overlap
  if (split > input.steps.channel_blocks * static_cast<int>(input.steps.boxes.size())) return false;
  if (candidate.common_stages == 1 && !input.steps.box_each_step()) return false;
  return candidate.one_item == 0 || (split == 1 && can_have_one_item(input, multiprocessors));
}

/// Lays out candidates one after the other in the same place, since there are hundreds: what a candidate has in common
/// with the one before it stays, and steps and cuts of channels are computed once for all.
class CandidateLayout {
 public:
  CandidateLayout(const Conv2dProblem& problem, int multiprocessors, int shared_bytes)
      : problem_(problem), multiprocessors_(multiprocessors), shared_bytes_(shared_bytes) {}

  /// False if the candidate does not fit, or if its estimate is surely not below `limit`; cycles() is undefined then.
  bool lay_out(const WgmmaOverrides& candidate, double limit) {
    if (!last_ || candidate.pixels != last_->pixels || candidate.row != last_->row ||
        candidate.schedule != last_->schedule)
      fits_ = lay_out_input(candidate);
    last_ = candidate;
    if (!fits_ || !suits(candidate, g_, multiprocessors_)) return false;
    g_.steps.split = candidate.split;
    if (g_.steps.parts > 1) share_out_boxes(g_.steps);  // the estimate counts the greatest share
    g_.stages = {};
    g_.grid.one_item = candidate.one_item == 1;
    g_.grid.pixels_first = g_.grid.one_item ? pixels_should_be_first(g_) : pixels_first_;
    const Span span = span_of(problem_, candidate.box_per_tap == 1);
    return share_out_memory(bytes_of_block(), span, candidate, g_) &&
           estimate_wgmma(problem_, multiprocessors_, limit, g_);
  }

  double cycles() const { return g_.cycles; }

  /// With the shares of a split reduction, which take longer to find than most estimates.
  WgmmaGeometry geometry() {
    share_out_boxes(g_.steps);
    return g_;
  }

 private:
  /// Shared memory of one block.
  int bytes_of_block() const {
    constexpr int kReserved = 1024;  // by the system, of each block
    const int blocks = wgmma_blocks_of_multiprocessor(g_, multiprocessors_);
    return (shared_bytes_ + kReserved) / blocks - kReserved;
  }

  /// What candidates of one shape and schedule share.
  bool lay_out_input(const WgmmaOverrides& candidate) {
    g_.schedule = static_cast<WgmmaSchedule>(candidate.schedule);
    if (!lay_out_tile(problem_, candidate, g_)) return false;
    std::optional<WgmmaSteps>& steps = steps_[candidate.row == 8 ? 0 : candidate.row == 16 ? 1 : 2];
    if (!steps) steps = steps_of(problem_, candidate, g_);
    if (!fits_tables(*steps)) return false;
    g_.steps = *steps;
    std::optional<ChannelCut>& channels = channels_[static_cast<std::size_t>(slices_of(g_) - 1)];
    if (!channels) channels = cut_channels(problem_, slices_of(g_));
    set_channels(problem_, *channels, g_);
    pixels_first_ = g_.grid.pixels_first;
    return true;
  }

  const Conv2dProblem& problem_;
  int multiprocessors_, shared_bytes_;
  WgmmaGeometry g_{};
  std::optional<WgmmaOverrides> last_{};
  bool fits_ = false, pixels_first_ = false;             // of the last candidate's shape and schedule
  std::array<std::optional<WgmmaSteps>, 3> steps_{};     // by the row: 8, 16, all pixels
  std::array<std::optional<ChannelCut>, 2> channels_{};  // by the slices of a tile
};

bool can_be_flat(const Conv2dProblem& p) {
  if (is_line(p)) return p.pool.none();
  const auto fits = [](std::int64_t corner) { return corner >= -128 && corner <= 127; };
  return p.pool.none() && p.c > 0 && (p.r - 1) * p.dilation_h < 256 && (p.s - 1) * p.dilation_w < 256 &&
         fits(-p.pad_left) && fits(-p.pad_top) && fits(wgmma_corners(p).right) && fits(wgmma_corners(p).bottom);
}

/// Whether the batch is one line of fewer pixels than a tile. A flat tile's box is then as short, while rows of other
/// boxes beyond the batch are read all the same, by all blocks from one line.
bool has_short_line(const Conv2dProblem& p, int pixels) {
  return is_line(p) && can_be_flat(p) && p.n * p.h * p.w < pixels;
}

/// Sums of split6 are promoted; split3 leaves out more than the matrix unit cuts off.
std::vector<int> schedules(const Conv2dProblem& p, const WgmmaOverrides& overrides, int pixels) {
  const auto promoted = static_cast<int>(WgmmaSchedule::promoted);
  if (overrides.schedule == promoted || (overrides.schedule < 0 && p.math == Math::split6)) {
    return pixels == kWgmmaPromotedPixels ? std::vector{promoted} : std::vector<int>{};
  }
  return overrides.schedule < 0 ? std::vector{0, 1} : std::vector{overrides.schedule};
}

/// Gathered boxes of several taps have common stages with their weights, or weights that may stay: both are candidates.
std::vector<int> common_stages(const Conv2dProblem& p, const WgmmaOverrides& overrides, bool flat, int one_item) {
  if (overrides.common_stages >= 0 || !flat || one_item == 1 || p.r * p.s == 1) return {overrides.common_stages};
  return {1, 0};
}

std::vector<WgmmaOverrides> candidates(const Conv2dProblem& p, const WgmmaOverrides& overrides) {
  std::vector<WgmmaOverrides> list;
  const auto allows = [](int wanted, int open, int value) { return wanted == open || wanted == value; };
  for (const int pixels : {256, 224, 192, 160, 128, 112, 96, 64}) {
    for (const int row : {pixels, 16, 8}) {
      if (row != pixels && wgmma_needs_common_stages(pixels)) continue;
      if (row != pixels && overrides.row == 0 && has_short_line(p, pixels)) continue;
      if (!allows(overrides.pixels, 0, pixels) || !allows(overrides.row, 0, row) || (row == pixels && !can_be_flat(p)))
        continue;
      for (const int schedule : schedules(p, overrides, pixels)) {
        for (const int split : {1, 2, 4, kWgmmaMaxSplit}) {
          if (!allows(overrides.split, 0, split)) continue;
          for (const int one_item : {0, 1}) {
            if (!allows(overrides.one_item, -1, one_item)) continue;
            for (const int common : common_stages(p, overrides, row == pixels, one_item))
              list.push_back({pixels, row, std::max(overrides.box_per_tap, 0), split, schedule, overrides.chunk_taps,
                              common, one_item});
          }
        }
      }
    }
  }
  return list;
}

std::string pair(std::int64_t a, std::int64_t b) { return std::to_string(a) + "x" + std::to_string(b); }

}  // namespace

std::string WgmmaGeometry::tile_description() const {
  const std::string shape = tile.flat ? std::to_string(tile.pixels) : pair(tile.row, tile.rows_per_image);
  const std::string images = tile.images > 1 ? " of " + std::to_string(tile.images) + " images" : "";
  return shape + (tile.by_tap ? " gathered" : "") + " pixels" + images + " by " +
         std::to_string(kWgmmaChannels * slices_of(*this)) + " channels" +
         (steps.split > 1 ? ", the reduction split over " + std::to_string(steps.split) + " blocks of a cluster" : "");
}

std::string WgmmaGeometry::staging_description() const {
  if (stages.common) {
    return "input boxes of " + pair(box.width, box.height) + " pixels, each with its weights, in " +
           std::to_string(stages.boxes) + " stages in shared memory" + (grid.one_item ? ", a block for each tile" : "");
  }
  const std::string weights =
      stages.resident_weights ? "all weights stay" : std::to_string(stages.weights) + " stages of weights";
  return "input boxes of " + pair(box.width, box.height) + " pixels for " + std::to_string(steps.taps_per_box()) +
         " taps in " + std::to_string(stages.boxes) + " stages and " + weights + " in shared memory";
}

int WgmmaSteps::of_greatest_share() const {
  int greatest = 0, begin = 0;
  for (int share = 0; share < split; ++share) {
    const int end = share_ends[static_cast<std::size_t>(share)];
    int steps = 0;
    for (; begin < end; ++begin) steps += boxes[static_cast<std::size_t>(begin) % boxes.size()].taps;
    greatest = std::max(greatest, steps);
  }
  return greatest;
}

int WgmmaSteps::loads_per_block() const {
  return static_cast<int>(std::count_if(boxes.begin(), boxes.end(), [](const WgmmaBox& box) { return box.first; }));
}

int wgmma_output_bytes(const WgmmaGeometry& g) {
  constexpr int kChunkBytes = kWgmmaChunk * kWgmmaChannels * static_cast<int>(sizeof(float));
  const int slots = kWgmmaOutputSetBytes * wgmma_output_sets(g.tile.pixels);
  const int pixels = g.schedule == WgmmaSchedule::promoted ? g.tile.pixels / kWgmmaConsumers : g.tile.pixels;
  const int finished = as_int(ceil_div(pixels / kWgmmaChunk, g.steps.split));  // chunks, by one block of the cluster
  return std::max(slots, (g.steps.split - 1) * finished * kChunkBytes);
}

int wgmma_shared_bytes(const WgmmaGeometry& g) {
  const int outputs = g.grid.one_item ? 0 : 2 * wgmma_output_bytes(g);
  return kAlignment + kWgmmaBarrierBytes + outputs + g.stages.boxes * g.stages.box_stage_bytes +
         g.stages.weights * slices_of(g) * kWgmmaWeightBytes;
}

int wgmma_channel_slices(const WgmmaGeometry& g) { return g.grid.channel_tiles * slices_of(g); }

int wgmma_slices_of_tile(const WgmmaGeometry& g) { return slices_of(g); }

int wgmma_consumers(const WgmmaGeometry& g) { return g.grid.one_item ? slices_of(g) : kWgmmaConsumers; }

std::int64_t wgmma_tap_order(const WgmmaGeometry& g) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const WgmmaTap& tap : g.steps.taps) {
    for (const std::int16_t value : {tap.r, tap.s, tap.part})
      hash = (hash ^ static_cast<std::uint16_t>(value)) * 1099511628211u;
  }
  return static_cast<std::int64_t>(hash);
}

WgmmaCorners wgmma_corners(const Conv2dProblem& p) {
  const auto end = [](std::int64_t outputs, std::int64_t stride, std::int64_t pad, std::int64_t inputs) {
    return as_int((outputs - 1) * stride + 1 - pad - inputs);
  };
  return {.left = as_int(-p.pad_left),
          .top = as_int(-p.pad_top),
          .right = end(p.wo, p.stride_w, p.pad_left, p.w),
          .bottom = end(p.ho, p.stride_h, p.pad_top, p.h)};
}

std::string wgmma_refusal(const Conv2dProblem& p) {
  if (p.dtype == DType::f32 && p.math == Math::strict) {
    return "f32 in strict math; its products are of tf32 values, of bf16 parts (split3, split6) or of 16-bit values";
  }
  if (p.dtype != DType::f32 && p.math != Math::strict) {
    return std::string("a math mode for ") + name_of(p.dtype) + "; it takes strict";
  }
  if (!p.nhwc) return "layout nchw; it takes nhwc";
  const std::int64_t vector = 16 / static_cast<std::int64_t>(size_of(p.dtype));
  if (p.groups != 1 && (p.c % vector != 0 || p.k % vector != 0)) {
    return std::to_string(p.groups) + " groups of " + std::to_string(p.c) + " input and " + std::to_string(p.k) +
           " output channels in all; with groups it takes whole vectors of " + std::to_string(vector);
  }
  if (p.r * p.s > kWgmmaMaxTaps) {
    return pair(p.r, p.s) + " filter taps; its tables hold " + std::to_string(kWgmmaMaxTaps);
  }
  const int parts = wgmma_parts(p);
  const std::int64_t steps = p.r * p.s * parts * (parts + 1) / 2;
  if (steps > kWgmmaMaxSteps) {
    return pair(p.r, p.s) + " filter taps in " + std::to_string(parts * (parts + 1) / 2) +
           " products each; its tables hold " + std::to_string(kWgmmaMaxSteps);
  }
  if (p.stride_h > 8 || p.stride_w > 8) {
    return "stride " + pair(p.stride_h, p.stride_w) + "; tensor copies step at most 8";
  }
  if (!p.pool.none() && !p.pool.is_2x2()) {
    return "max-pool " + pair(p.pool.h, p.pool.w) + " with stride " + pair(p.pool.stride_h, p.pool.stride_w) +
           "; its epilogue pools 2x2 with stride 2";
  }
  return {};
}

std::optional<WgmmaGeometry> find_wgmma_geometry(const Conv2dProblem& p, int multiprocessors, int shared_bytes,
                                                 const WgmmaOverrides& overrides) {
  CandidateLayout layout(p, multiprocessors, shared_bytes);
  const std::vector<WgmmaOverrides> all = candidates(p, overrides);  // those of one input follow one another
  const WgmmaOverrides* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const WgmmaOverrides& candidate : all) {
    if (!layout.lay_out(candidate, least) || layout.cycles() >= least) continue;
    best = &candidate;
    least = layout.cycles();
  }
  if (best == nullptr) return {};
  layout.lay_out(*best, std::numeric_limits<double>::infinity());
  return layout.geometry();
}

bool has_wgmma_geometry(const Conv2dProblem& p, int multiprocessors, int shared_bytes) {
  CandidateLayout layout(p, multiprocessors, shared_bytes);
  const auto fits = [&](const WgmmaOverrides& candidate) {
    return layout.lay_out(candidate, std::numeric_limits<double>::infinity());
  };
  // If any tile fits, a small one usually does.
  for (const WgmmaOverrides& tiles : {WgmmaOverrides{.pixels = 64, .split = 1}, WgmmaOverrides{}}) {
    const std::vector<WgmmaOverrides> all = candidates(p, tiles);
    if (std::any_of(all.begin(), all.end(), fits)) return true;
  }
  return false;
}

}  // namespace gable::cuda
