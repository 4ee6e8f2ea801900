// See geometry.h.
#include "cpu/bf16/geometry.h"

#include <numeric>

#include "cpu/bf16/strip.h"
#include "cpu/common/tiling.h"

namespace gable::cpu::bf16 {

namespace {

/// As many groups as fit the unit's width in both input and output channels.
std::int64_t merged_groups(const Conv2dProblem& p, const Bf16Unit& unit) {
  return std::clamp<std::int64_t>(unit.merged_width / std::max(p.group_c(), p.group_k()), 1, p.groups);
}

/// Whether a position takes all columns of the kernel. That saves blocks of products; a unit that multiplies pairs
/// alone has little to save beyond one block.
bool folds(const Conv2dProblem& p, std::int64_t pixel, const Bf16Unit& unit) {
  if (p.dilation_w != 1 || p.s == 1 || pixel > kChannels) return false;
  return pixel * p.s <= kChannels || (unit.loads_full_halves && ceil_div(pixel * p.s, kChannels) < p.s);
}

/// Whether gathering windows takes less time than folding columns, in half cycles an output: it saves products, of one
/// cycle for 16 lanes, and the staging of folded pixels, which are copied one by one if they are padded; it costs a
/// masked load for each kernel row, and more where a window is cut into two blocks. Fitted to 96 first layers on AMX.
bool gathering_pays(const Conv2dProblem& p, std::int64_t steps, std::int64_t blocks) {
  constexpr std::int64_t kProduct = 3, kPaddedPixel = 2, kPixel = 1, kRow = 3, kCut = 8;
  const std::int64_t products = (steps - blocks) * ceil_div(p.k, std::int64_t{kVector});
  const std::int64_t pixels = p.stride_h * p.stride_w * (p.c % 2 == 1 ? kPaddedPixel : kPixel);
  return products * kProduct + pixels > p.r * kRow + (blocks - 1) * kCut;
}

/// Steps of a tile's panel where nothing is gathered.
std::int64_t steps_of_columns(const Conv2dProblem& p, const Bf16Unit& unit) {
  const std::int64_t pixel = round_up(p.c, 2);
  return p.r * (folds(p, pixel, unit) ? ceil_div(pixel * p.s, kChannels) : p.s * ceil_div(p.c, kChannels));
}

/// Whether a position holds all channels of its window's pixels. A window then has few steps, where folded columns have
/// at least one for each kernel row; a panel's weights of one or two stay in registers.
bool gathers(const Conv2dProblem& p, const Geometry& g, int products, const Bf16Unit& unit) {
  constexpr std::int64_t kMaxGatheredChannels = 8, kMaxBlocks = 16;
  if (unit.panels == nullptr || products != 1 || g.pool != 1 || p.activation == Activation::tanh) return false;
  if (p.r * p.s == 1 || p.dilation_w != 1 || g.groups != 1 || g.merged != 1 || p.c > kMaxGatheredChannels) return false;
  const std::int64_t blocks = ceil_div(p.r * p.s * p.c, kChannels), steps = steps_of_columns(p, unit);
  return blocks <= kMaxBlocks && blocks < steps && gathering_pays(p, steps, blocks);
}

/// The terms of positions that hold `rows` kernel rows, whose channels are [row][column][channel].
Terms gathered_terms(const Conv2dProblem& p, std::int64_t rows) {
  const std::int64_t channels = round_up(rows * p.s * p.c, 2), blocks = ceil_div(channels, kChannels);
  Terms terms{.products = 1,
              .parts = 1,
              .gathered_rows = rows,
              .fold = 1,
              .position = blocks * kChannels,
              .pixel = p.c,
              .channels = channels,
              .blocks = blocks,
              .block_channels = round_up(ceil_div(channels, blocks), 2),
              .last_block = 0,
              .last_pairs = 0,
              .last_is_single = false,
              .tap_rows = ceil_div(p.r, rows),
              .tap_columns = 1,
              .last_tap_row = p.r - rows};
  terms.last_block = channels - terms.block_channels;
  terms.last_pairs = static_cast<int>(terms.block_channels / 2);
  return terms;
}

/// Cycles of an output, of gathered positions: each step of 16 lanes (1.7 where the matrix unit runs at its full rate,
/// 5 at its slow one), and their copies. Read off 30 first layers on AMX.
constexpr double kGatherStep = 2.5;
/// Of a whole window, by the loop of 1x1.
double window_gather_cycles(const Conv2dProblem& p, std::int64_t vectors) {
  constexpr double kRow = 1.5, kCut = 4;
  const std::int64_t blocks = ceil_div(p.r * p.s * p.c, kChannels);
  return static_cast<double>(vectors * blocks) * kGatherStep + static_cast<double>(p.r) * kRow +
         static_cast<double>(blocks - 1) * kCut;
}
/// Of `rows` kernel rows a position. Each phase of the strip's rows is a copy, and tiles of few steps wait for their
/// stores.
double row_gather_cycles(const Conv2dProblem& p, std::int64_t vectors, std::int64_t rows) {
  constexpr double kPosition = 4, kRow = 3, kStored = 2;
  const Terms terms = gathered_terms(p, rows);
  return static_cast<double>(vectors * terms.tap_rows) * kGatherStep + static_cast<double>(vectors) * kStored +
         static_cast<double>(phases_of(p, terms).count()) * (kPosition + kRow * static_cast<double>(rows));
}

/// How many kernel rows a position should hold, of a window that has room for several positions: as many as one block
/// has room for, in as few taps; 0 where folding columns takes less time. A strip of such positions holds each row of
/// the image once for the window's rows. Folded columns need no copy of each column, but pad each kernel row to a
/// block.
std::int64_t rows_to_gather(const Conv2dProblem& p, const Geometry& g, int products, const Bf16Unit& unit) {
  if (!unit.loads_full_halves || products != 1 || g.pool != 1) return 0;
  if (p.r == 1 || p.s == 1 || p.dilation_w != 1 || g.groups != 1 || g.merged != 1 || p.c * p.s > kChannels) return 0;
  const std::int64_t taps = ceil_div(p.r, kChannels / (p.c * p.s)), rows = ceil_div(p.r, taps);
  if (taps == 1) return 0;
  const std::int64_t vectors = ceil_div(g.group_k, std::int64_t{kVector});
  const double folded = static_cast<double>(vectors * steps_of_columns(p, unit)) * kGatherStep;
  return row_gather_cycles(p, vectors, rows) < 0.97 * folded ? rows : 0;
}

/// The kernel rows of a position: all, some, or 0 where nothing is gathered.
std::int64_t gathered_rows(const Conv2dProblem& p, const Geometry& g, int products, const Bf16Unit& unit) {
  constexpr double kClearly = 0.95;
  const std::int64_t rows = rows_to_gather(p, g, products, unit);
  if (!gathers(p, g, products, unit)) return rows;
  const std::int64_t vectors = ceil_div(g.group_k, std::int64_t{kVector});
  const bool by_rows = rows > 0 && window_gather_cycles(p, vectors) >= kClearly * row_gather_cycles(p, vectors, rows);
  return by_rows ? rows : p.r;
}

/// How many of a tile's rows cross a cache line, counted over the positions after which addresses repeat. Positions lie
/// `pitch` elements apart, the first one at the start of a line, as those of a first group do.
std::int64_t rows_across_lines(const Terms& terms, std::int64_t pitch) {
  constexpr std::int64_t kLine = kChannels;  // elements
  std::int64_t count = 0;
  for (std::int64_t position = 0; position < kLine / std::gcd(kLine, pitch); ++position) {
    for (std::int64_t block = 0; block < terms.blocks; ++block) {
      const std::int64_t in_line = (position * pitch + terms.first_channel(block)) % kLine;
      if (in_line + terms.block_channels > kLine) ++count;
    }
  }
  return count;
}

/// Cuts the channels of a unit that loads full halves into blocks of equal size: the even one, of those that need no
/// more blocks, whose rows cross the fewest cache lines where tiles read the image. Such a row takes two loads.
void cut_channels(Terms& terms, std::int64_t pitch) {
  const auto cut = [&](std::int64_t block_channels) -> const Terms& {
    terms.block_channels = block_channels;
    terms.last_block = terms.channels - block_channels;
    return terms;
  };
  std::int64_t best = round_up(ceil_div(terms.channels, terms.blocks), 2);
  const bool may_read_image = terms.fold == 1 && terms.parts == 1 && terms.blocks > 1;
  if (may_read_image && best < kChannels) {
    std::int64_t least = rows_across_lines(cut(best), pitch);
    for (std::int64_t tried = best + 2; tried <= kChannels; tried += 2) {
      const std::int64_t rows = rows_across_lines(cut(tried), pitch);
      if (rows >= least) continue;
      best = tried;
      least = rows;
    }
  }
  cut(best);
}

}  // namespace

Geometry geometry_of(const Conv2dProblem& p, const Bf16Unit& unit) {
  const std::int64_t merged = merged_groups(p, unit);
  const bool pointwise = is_pointwise(p);
  const std::int64_t pool = p.pool.none() ? 1 : 2;
  const std::int64_t w = pointwise ? p.n * p.h * p.w : p.w;
  return {.n = pointwise ? 1 : p.n,
          .h = pointwise ? 1 : p.h,
          .w = w,
          .rows = pointwise ? 1 : p.out_h() * pool,
          .columns = pointwise ? w : p.out_w() * pool,
          .groups = ceil_div(p.groups, merged),
          .group_c = merged * p.group_c(),
          .group_k = merged * p.group_k(),
          .merged = merged,
          .panels = ceil_div(merged * p.group_k(), kLanes),
          .pool = pool,
          .c = p.c,
          .k = p.k};
}

Terms terms_of(const Conv2dProblem& p, const Geometry& g, int products, const Bf16Unit& unit) {
  if (const std::int64_t rows = gathered_rows(p, g, products, unit); rows > 0) return gathered_terms(p, rows);
  const bool pairs_only = unit.loads_full_halves;
  const std::int64_t pixel = pairs_only ? round_up(g.group_c, 2) : g.group_c;
  const std::int64_t fold = folds(p, pixel, unit) ? p.s : 1;
  const std::int64_t channels = fold > 1 ? pixel * fold : g.group_c;
  const std::int64_t blocks = ceil_div(channels, kChannels);
  Terms terms{.products = products,
              .parts = parts_of(products),
              .gathered_rows = 0,
              .fold = fold,
              // A unit that reads single pairs needs no room for a whole block: few channels take less of L1.
              .position = pairs_only || channels > kChannels ? kChannels : round_up(channels, kChannels / 4),
              .pixel = pixel,
              .channels = pairs_only ? round_up(channels, 2) : channels,
              .blocks = blocks,
              .block_channels = kChannels,
              .last_block = 0,
              .last_pairs = 0,
              .last_is_single = !pairs_only && channels % 2 == 1 && (fold > 1 || p.r * p.s == 1),
              .tap_rows = p.r,
              .tap_columns = fold > 1 ? 1 : p.s,
              .last_tap_row = p.r - 1};
  terms.last_block = (blocks - 1) * kChannels;
  if (pairs_only) cut_channels(terms, p.c);
  terms.last_pairs = static_cast<int>(ceil_div(channels - terms.last_block, 2));
  return terms;
}

TapRange Terms::tap_rows_of(const TapRange& kernel_rows) const {
  if (!gathers()) return kernel_rows;
  TapRange found{0, 0};
  for (std::int64_t row = 0; row < tap_rows; ++row) {
    if (kernel_row(row) >= kernel_rows.end || kernel_row(row) + gathered_rows <= kernel_rows.begin) continue;
    if (found.begin == found.end) found.begin = row;
    found.end = row + 1;
  }
  return found;
}

double padding_factor(const Conv2dProblem& p, const Geometry& g, const Terms& terms, const Bf16Unit& unit) {
  const std::int64_t last = unit.loads_full_halves ? kChannels : 2 * terms.last_pairs;
  const std::int64_t channels = ((terms.blocks - 1) * kChannels + last) * terms.tap_count();
  const double of_channels = static_cast<double>(channels) / static_cast<double>(p.group_c() * p.r * p.s);
  const std::int64_t lanes = round_up(g.group_k, unit.loads_full_halves ? kVector : kVector / 2);
  return of_channels * static_cast<double>(lanes) / static_cast<double>(p.group_k());
}

}  // namespace gable::cpu::bf16
