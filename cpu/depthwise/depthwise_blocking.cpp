// See depthwise_blocking.h.
#include "cpu/depthwise/depthwise_blocking.h"

#include <algorithm>
#include <utility>

#include "common/swapped_axes.h"
#include "cpu/common/cache.h"
#include "cpu/common/core.h"
#include "cpu/common/estimate.h"

namespace gable::cpu {
namespace {

/// Neighbouring channels of a block: a run that is long enough for the hardware prefetcher, while the block's weights
/// stay in L1.
constexpr std::int64_t kBlockBytes = 512;
/// Those of f32 blocks that are whole pixels, if these have no more.
constexpr std::int64_t kPixelBytes = 8192;
/// Threads that write different channels of the same pixels fetch lines from each other's caches: as long as it takes
/// to add so many products to each output.
constexpr double kSharedPixels = 2;
/// The start of a unit and the rows that it reads beside its own: as long as it takes to add so many products to each
/// output of a row, but at most a row.
constexpr double kHaloProducts = 9;
constexpr std::int64_t kLineBytes = 64;
/// Pointwise pixels are computed in rows of at most this many.
constexpr std::int64_t kPointwiseRow = 256;

/// Whether results need more than the tile can do.
bool stores_rows(const Conv2dProblem& p, std::int64_t lanes) { return p.activation == Activation::tanh || p.k < lanes; }

/// Whether tiles read f32 rows in the workspace: they read and write one type.
bool stages_input(const Conv2dProblem& p, std::int64_t lanes) {
  const bool other_type = stores_rows(p, lanes) && p.dtype != DType::f32;
  return p.k != p.c || p.k < lanes || other_type;
}

/// Whether vectors of more lanes than channels may reach into the next pixels: these are neighbours, one row at most is
/// reached, and the tiles of a row are computed in their order.
bool reaches(const Conv2dProblem& p, std::int64_t lanes) {
  const bool rows_hold_vectors = p.w * p.c >= lanes && p.wo * p.k >= lanes;
  return p.k == p.c && p.k < lanes && p.activation != Activation::tanh && rows_hold_vectors &&
         AxisCut(column_axis(p)).output_step() == 1;
}

/// Pointwise images as one image with rows of up to kPointwiseRow pixels, and enough rows for the threads.
Conv2dProblem with_long_rows(Conv2dProblem p, int threads) {
  if (!is_pointwise(p)) return p;
  const std::int64_t pixels = p.n * p.h * p.w;
  std::int64_t width = std::min(ceil_div(pixels, units_wanted(threads)), kPointwiseRow);
  while (pixels % width != 0) --width;
  if (width < kMaxTileOutputs) return p;
  p.n = 1;
  p.h = p.ho = pixels / width;
  p.w = p.wo = width;
  return p;
}

/// Whether tensors lie beyond L2 in a last level behind a mesh of cores, as those with AMX have it. It answers so
/// slowly that long runs of neighbouring lines are worth more than rows that stay in L1.
bool lies_far(const Conv2dProblem& p, std::int64_t lanes) {
  const std::int64_t bytes = (p.x_elements() + p.y_elements()) * static_cast<std::int64_t>(size_of(p.dtype));
  return bytes > l2_bytes() && core_kind(lanes) == CoreKind::amx;
}

/// Whether rows and columns change places: tiles along a column load each input once for all taps that read it, where
/// tiles along a row would load it for every tap. Pixels are then no longer neighbours, so far ones must be long.
/// Several threads of one image write the same lines at the ends of their columns, which large images hide. Beside AMX,
/// where a pair of threads has an image, tensors that are not tiny do.
bool swaps_axes(const Conv2dProblem& p, const Target& target, int threads) {
  constexpr std::int64_t kFarPixelBytes = 1024, kSharedBytes = 2 << 20, kApartBytes = 512 << 10, kPairBytes = 256 << 10;
  const std::int64_t lanes = depthwise_tiles(target).lanes;
  const bool column = p.s == 1 && p.r > 1 && p.stride_w == 1;
  if (!column || p.k < lanes || stores_rows(p, lanes) || stages_input(p, lanes)) return false;
  const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
  if (lies_far(p, lanes) && p.c * bytes < kFarPixelBytes) return false;
  const bool pairs = core_kind(lanes) == CoreKind::amx && 2 * p.n >= threads;
  const std::int64_t least = threads == 1 ? 0 : pairs ? kPairBytes : p.n >= threads ? kApartBytes : kSharedBytes;
  return (p.x_elements() + p.y_elements()) * bytes >= least;
}

/// Whether row tiles compute such a window.
bool suits_row_tiles(const Conv2dProblem& p, const Target& target) {
  const DepthwiseTiles& tiles = depthwise_tiles(target);
  const bool window = p.r == kRowTileTaps && p.s == kRowTileTaps && p.dilation_h == 1 && p.dilation_w == 1;
  const bool stride = p.stride_h == p.stride_w && p.stride_h <= kMaxTileStride;
  // Parts of vectors were measured on cores that do not halve vectors.
  const bool parts = tiles.parts && core_kind(tiles.lanes) == CoreKind::whole_512;
  return p.k == p.c && (p.k >= tiles.lanes || parts) && window && stride &&
         tiles.row_tile(p.dtype, p.stride_h, tiles.long_row_outputs) != nullptr;
}

/// Whether row tiles are faster for fewer channels than lanes. Half a vector that is full needs no parts. Of fewer
/// channels long rows stay in L1 and gain nothing from loads that two rows share, and very short rows have no time to.
bool suits_parts(const Conv2dProblem& p, std::int64_t lanes) {
  const bool long_row = p.stride_w == 1 && p.wo > 2 * kMaxTileOutputs;
  return p.wo >= kMaxTileOutputs - 1 && (p.k > lanes / 2 || (p.k < lanes / 2 && !long_row));
}

/// Outputs in a row of the widest row tile; 0: no row tiles. Short rows use the widest tiles, which have a single row
/// if no row tile is as wide.
std::int64_t row_tile_outputs(const Conv2dProblem& p, const Target& target) {
  if (!suits_row_tiles(p, target)) return 0;
  const DepthwiseTiles& tiles = depthwise_tiles(target);
  if (p.k < tiles.lanes && !suits_parts(p, tiles.lanes)) return 0;
  const bool widest = tiles.row_tile(p.dtype, p.stride_h, kMaxTileOutputs) != nullptr;
  if (p.stride_w == 1 && p.wo <= 2 * kMaxTileOutputs && widest) return kMaxTileOutputs;
  if (p.stride_w == 1 && p.wo <= kMaxTileOutputs) return 0;
  return tiles.long_row_outputs;
}

class Blocking {
 public:
  Blocking(const Conv2dProblem& problem, const Target& target, int threads)
      : swaps_(swaps_axes(problem, target, threads)),
        p_(swaps_ ? with_axes_swapped(problem) : with_long_rows(problem, threads)),
        threads_(threads),
        columns_(column_axis(p_)) {
    b_.problem = p_;
    b_.x_steps = swaps_ ? ImageSteps{p_.c, p_.h * p_.c} : ImageSteps{p_.w * p_.c, p_.c};
    b_.y_steps = swaps_ ? ImageSteps{p_.k, p_.ho * p_.k} : ImageSteps{p_.wo * p_.k, p_.k};
    b_.sections = choose_sections(p_, target);
    b_.stores_rows = stores_rows(p_, b_.sections.front().lanes);
    b_.stages_input = stages_input(p_, b_.sections.front().lanes);
    if (p_.dtype != DType::f32) b_.stores_rows = b_.stages_input;
    b_.tile_type = b_.stages_input ? DType::f32 : p_.dtype;
    b_.reaches = reaches(p_, b_.sections.front().lanes) && staged_rows_fit();
    const bool in_place = b_.reaches || !(b_.stages_input || b_.stores_rows);
    const bool whole = b_.sections.front().target == &target;
    b_.row_tile_outputs = in_place && whole ? row_tile_outputs(p_, target) : 0;
    b_.copies_input = in_place && !b_.reaches && !swaps_ && shares_sets();
    b_.prefetches = !b_.stages_input && (p_.x_elements() + p_.y_elements()) * element_bytes() > l3_bytes() / 2;
  }

  DepthwiseBlocking run() {
    const UnitSize unit = choose_unit();
    for (std::size_t i = 0; i < b_.sections.size(); ++i) cut_channels(i, unit.channels);
    cut_pixels(std::min(unit.channels, p_.k));
    b_.unit_rows = unit.rows;
    b_.row_blocks = ceil_div(p_.ho, unit.rows);
    b_.unit_blocks = unit.whole_pixels ? static_cast<std::int64_t>(b_.channel_blocks.size()) : 1;
    lay_out();
    return b_;
  }

  /// The number of pixel blocks is greatest with the most channels, as for one thread; the number of channel blocks
  /// with the fewest.
  std::int64_t table_pieces() const {
    const AxisCut cut(columns_);
    const std::int64_t pixels = block_pixels(cut, std::min(block_channels(), p_.k));
    const std::int64_t of_pixels = ceil_div(p_.wo, pixels) * cut.most_positions(pixels, tile_outputs());
    return std::max(of_pixels, channel_blocks(std::min(block_channels(), least_channels())));
  }

 private:
  /// Rows of input under a row of outputs, or under those of a row tile.
  std::int64_t copied_window_rows() const { return (p_.r - 1) * p_.dilation_h + 1 + (kRowTileRows - 1) * p_.stride_h; }
  /// Whether L2 holds the staged rows of a window and their outputs without cutting them into blocks of pixels: a block
  /// would overwrite the first pixels of the block beside it.
  bool staged_rows_fit() const {
    return floats_of(p_.wo) * b_.sections.front().lanes * static_cast<std::int64_t>(sizeof(float)) <= l2_bytes() / 2;
  }
  /// Whether the pixels under a tile share so few sets of L1 that their lines leave it before the next vector of a
  /// line, or a tile of the next rows, reads them, and copies of them pay. A multiple of a way's bytes apart they share
  /// one set, of half of them two. Where no window overlaps another, whole vectors are not read again.
  bool shares_sets() const {
    constexpr std::int64_t kWindow = 9, kWays = 8;
    const bool overlaps = p_.s > p_.stride_w || p_.r > p_.stride_h;
    if (!l1_has_few_ways() || p_.r == 1 || p_.s == 1 || !overlaps) return false;
    if (copied_window_rows() * p_.w * kBlockBytes > l2_bytes() / 2) return false;  // the copies would leave L2
    const bool paired = b_.sections.front().paired;
    // Pairs are loaded once, but twice in row tiles, of which those without stride read fewer pixels.
    if (paired && b_.row_tile_outputs == 0) return false;
    const bool parts = b_.sections.front().lanes * element_bytes() < kLineBytes;  // a line is several vectors
    const bool often = paired ? p_.stride_w > 1 : parts && p_.r * p_.s >= kWindow * p_.stride_w;
    const std::int64_t pixel = p_.c * element_bytes();
    const std::int64_t sets = pixel % kL1WayBytes == 0 ? 1 : 2;
    return pixel % (kL1WayBytes / sets) == 0 && (sets == 1 || often) && pixels_under_tiles() > 2 * sets * kWays;
  }
  std::int64_t pixels_under_tiles() const {
    return std::min(p_.h, copied_window_rows()) * columns_under(kMaxTileOutputs);
  }
  std::int64_t element_bytes() const { return static_cast<std::int64_t>(size_of(b_.tile_type)); }
  static std::int64_t l1_floats() { return l1_bytes() * 3 / 4 / static_cast<std::int64_t>(sizeof(float)); }
  /// Blocks have a multiple of this many channels.
  std::int64_t channel_step() const {
    const ChannelSection& section = b_.sections.front();
    return section.paired ? 2 * section.lanes : section.lanes;
  }
  std::int64_t tile_outputs() const { return b_.row_tile_outputs > 0 ? b_.row_tile_outputs : kMaxTileOutputs; }
  std::int64_t columns_under(std::int64_t pixels) const {
    return std::min(p_.w, (pixels - 1) * p_.stride_w + (p_.s - 1) * p_.dilation_w + 1);
  }
  /// Floats of a channel in L1 for so many pixels.
  std::int64_t floats_of(std::int64_t pixels) const {
    const std::int64_t elements = std::min(p_.r, p_.h) * columns_under(pixels) + (b_.stores_rows ? pixels : 0);
    return b_.tile_type == DType::f32 ? elements : ceil_div(elements, 2);
  }

  /// As many channels as L1 holds for one tile, or for the row if it is short: whole vectors, at least one.
  std::int64_t block_channels() const {
    const std::int64_t step = channel_step();
    const std::int64_t columns = b_.stages_input ? std::min<std::int64_t>(p_.wo, 2 * kMaxTileOutputs) : p_.wo;
    const std::int64_t fitting = l1_floats() / floats_of(columns);
    const std::int64_t least = b_.stages_input ? step : least_channels(streams_pixels() ? kPixelBytes : kBlockBytes);
    const std::int64_t whole = std::max(least, fitting / step * step);
    return even_part(ceil_div(p_.k, step), whole / step) * step;
  }

  struct UnitSize {
    std::int64_t channels, rows;  // of a block of channels
    bool whole_pixels;            // all blocks of channels
  };

  std::int64_t channel_blocks(std::int64_t channels) const {
    std::int64_t blocks = 0;
    for (const ChannelSection& section : b_.sections) {
      blocks += ceil_div(section.vectors(), std::max<std::int64_t>(1, channels / section.lanes));
    }
    return blocks;
  }
  std::int64_t units_of(const UnitSize& unit) const {
    return p_.n * (unit.whole_pixels ? 1 : channel_blocks(unit.channels)) * ceil_div(p_.ho, unit.rows);
  }
  std::int64_t least_channels(std::int64_t bytes = kBlockBytes) const {
    return round_up(bytes / element_bytes(), channel_step());
  }
  /// Whether one thread computes whole pixels at a time, so that it reads and writes one stream each. A single tap
  /// reads nothing again.
  bool streams_pixels() const {
    const bool streams = p_.r * p_.s == 1 || lies_far(p_, b_.sections.front().lanes);
    return threads_ == 1 && b_.tile_type == DType::f32 && streams;
  }

  /// The time of the busiest thread, in channels of a row of output. A unit takes up to one more row of time for its
  /// halo, and one more if a row has no partner for a row tile. At the end a thread waits for a part of a unit.
  double cost(const UnitSize& unit) const {
    const auto turns = static_cast<double>(ceil_div(units_of(unit), threads_));
    const auto rows = static_cast<double>(unit.rows);
    const double halo = p_.r > 1 ? std::min(1.0, kHaloProducts / static_cast<double>(p_.r * p_.s)) : 0;
    const double extra = b_.row_tile_outputs > 0 && unit.rows % kRowTileRows != 0 ? 1.5 : halo;
    const auto channels = static_cast<double>(unit.whole_pixels ? p_.k : unit.channels);
    const double shared = unit.whole_pixels ? 0 : kSharedPixels / static_cast<double>(p_.r * p_.s);
    const double wait = threads_ == 2 ? 0.25 : 0.5;  // with two threads more than in parallel_time()
    return (turns * (rows + extra) + rows * wait) * channels * (1 + shared);
  }

  /// Whether each thread can get rows of its own, as long as there are enough rows.
  bool rows_apart(const UnitSize& unit) const {
    return p_.n * ceil_div(p_.ho, unit.rows) >= std::min<std::int64_t>(threads_, p_.n * p_.ho);
  }

  /// One thread takes whole images. For several, units get fewer rows, and fewer channels down to kBlockBytes.
  UnitSize choose_unit() const {
    UnitSize best{block_channels(), p_.ho, true};
    if (threads_ == 1) return best;
    const std::int64_t most_blocks = std::min(p_.ho, units_wanted(threads_));
    const std::int64_t least = std::min(best.channels, least_channels());
    const auto try_unit = [&](const UnitSize& unit) {
      if (rows_apart(unit) && (!rows_apart(best) || cost(unit) < cost(best))) best = unit;
    };
    for (std::int64_t blocks = 1; blocks <= most_blocks; ++blocks)
      try_unit({best.channels, ceil_div(p_.ho, blocks), true});
    for (std::int64_t channels = block_channels(); channels >= least; channels -= channel_step()) {
      for (std::int64_t blocks = 1; blocks <= most_blocks; ++blocks)
        try_unit({channels, ceil_div(p_.ho, blocks), false});
    }
    return best;
  }

  void cut_channels(std::size_t section, std::int64_t most) {
    const ChannelSection& s = b_.sections[section];
    const std::int64_t step = std::max<std::int64_t>(1, most / s.lanes);
    for (std::int64_t vector = 0; vector < s.vectors(); vector += step) {
      const std::int64_t vectors = std::min(step, s.vectors() - vector);
      const std::int64_t first = vector * s.lanes;
      const std::int64_t end = vector + vectors == s.vectors() ? s.channels : first + vectors * s.lanes;
      // A block with a single, overlapping vector begins where the vector begins.
      const std::int64_t begin = vectors == 1 ? s.channel(vector, 0) : first;
      b_.channel_blocks.push_back({&depthwise_tiles(*s.target),
                                   &depthwise_row_kernels(*s.target),
                                   s.first + begin,
                                   {vectors, std::max<std::int64_t>(0, end - begin - s.lanes), end - begin},
                                   vector,
                                   section});
    }
  }

  std::int64_t block_pixels(const AxisCut& cut, std::int64_t channels) const {
    const std::int64_t step = std::max<std::int64_t>(kMaxTileOutputs, cut.output_step());
    std::int64_t most = p_.wo;
    while (b_.stages_input && !b_.reaches && most > step && floats_of(most) * channels > l1_floats())
      most = std::max(step, ceil_div(most, 2));
    return most;
  }

  void cut_pixels(std::int64_t channels) {
    const AxisCut cut(columns_);
    const std::int64_t blocks = ceil_div(p_.wo, block_pixels(cut, channels));
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::int64_t first = p_.wo * i / blocks;
      const std::int64_t end = p_.wo * (i + 1) / blocks;
      PixelBlock block{b_.tiles.size(), 0, first, end - first, 0, 0};
      const std::vector<AxisTile> tiles = cut.tiles(first, end, tile_outputs(), b_.positions);
      b_.tiles.insert(b_.tiles.end(), tiles.begin(), tiles.end());
      block.end_tile = b_.tiles.size();
      block.first_column = std::clamp<std::int64_t>(columns_.first(first), 0, p_.w);
      const std::int64_t last = columns_.first(end - 1) + (p_.s - 1) * p_.dilation_w + 1;
      block.columns = std::max<std::int64_t>(0, std::min(last, p_.w) - block.first_column);
      b_.pixel_blocks.push_back(block);
    }
  }

  /// So many bytes or a cache line more: an odd number of lines.
  static std::int64_t odd_lines(std::int64_t bytes) { return (ceil_div(bytes, kLineBytes) | 1) * kLineBytes; }

  void lay_out() {
    std::int64_t lanes = 0, columns = 0, pixels = 0;
    for (const ChannelBlock& block : b_.channel_blocks) {
      lanes = std::max(lanes, block.vectors.vectors * b_.sections[block.section].lanes);
    }
    for (const PixelBlock& block : b_.pixel_blocks) {
      columns = std::max(columns, block.columns);
      pixels = std::max(pixels, block.pixels);
    }
    if (b_.copies_input) {
      constexpr std::int64_t kFloat = sizeof(float);
      b_.copied_pixel = odd_lines(lanes * element_bytes()) / element_bytes();
      b_.row_floats = std::max<std::int64_t>(1, columns) * b_.copied_pixel * element_bytes() / kFloat;
      // The rows of the last window are copied again when the others are full.
      b_.ring_rows = std::min(p_.h, std::max(l2_bytes() / 4 / kFloat / b_.row_floats, copied_window_rows()));
    } else {
      b_.ring_rows = b_.stages_input ? std::min(p_.h, (p_.r - 1) * p_.dilation_h + 1) : 0;
      b_.row_floats = static_cast<std::int64_t>(line_floats(columns * lanes));
    }
    b_.result_floats = b_.stores_rows ? static_cast<std::int64_t>(line_floats(pixels * lanes)) : 0;
  }

  bool swaps_;
  Conv2dProblem p_;
  int threads_;
  WindowAxis columns_;
  DepthwiseBlocking b_{};
};

}  // namespace

std::vector<ChannelSection> choose_sections(const Conv2dProblem& p, const Target& target) {
  const DepthwiseTiles& tiles = depthwise_tiles(target);
  const std::int64_t lanes = tiles.lanes;
  const Target* half = half_width_target(target);
  // Whole vectors that reach into the next pixels replace two of half the lanes. Pointwise images have few rows. Row
  // tiles take whole vectors, as those of half the lanes store no parts.
  const bool few = p.k < lanes && reaches(p, lanes) && row_tile_outputs(p, target) > 0;
  if ((p.k > lanes / 2 && p.k < lanes && p.r * p.s > 1) || few) return {{&target, lanes, 0, p.k, 0, false}};
  if (half != nullptr && p.k < lanes) return {{half, lanes / 2, 0, p.k, 0, false}};
  // Pairs are loaded as whole cache lines: across two of them they are no faster than their vectors.
  const bool paired = tiles.pairs && p.dtype == DType::bf16 && !stages_input(p, lanes) && p.k % (2 * lanes) == 0;
  const std::int64_t tail = p.k % lanes;
  // For row tiles, another pass over the input costs more than unused lanes. So it does on cores that do not halve
  // vectors: half a vector takes as long as a whole one there.
  const bool takes_one_pass = suits_row_tiles(p, target) || core_kind(lanes) == CoreKind::whole_512;
  if (half == nullptr || tail == 0 || tail > lanes / 2 || takes_one_pass) return {{&target, lanes, 0, p.k, 0, paired}};
  const std::int64_t whole = p.k - tail;
  // A tail of fewer channels than half a vector takes some from the whole vectors.
  return {{&target, lanes, 0, whole, 0, false}, {half, lanes / 2, p.k - lanes / 2, lanes / 2, whole, false}};
}

std::int64_t depthwise_table_pieces(const Conv2dProblem& problem, const Target& target) {
  return Blocking(problem, target, 1).table_pieces();
}

DepthwiseBlocking choose_depthwise_blocking(const Conv2dProblem& problem, const Target& target, int threads) {
  return Blocking(problem, target, threads).run();
}

}  // namespace gable::cpu
