// See few_channels_blocking.h. A unit's strip and results stay in L1 with pixel lanes (40 KB), which are for small
// images, and in L2 with channel lanes (160 KB).
#include "cpu/few_channels/few_channels_blocking.h"

#include <algorithm>
#include <limits>

#include "cpu/common/strips.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kPixelLanesUnitFloats = 10 << 10;
constexpr std::int64_t kChannelLanesUnitFloats = 40 << 10;
constexpr std::int64_t kLineFloats = 16;

/// Whether lanes are pixels: if vectors of pixels are fuller than vectors of output channels. A vector of one lane is
/// always full.
bool prefers_pixel_lanes(const Conv2dProblem& p, int lanes) {
  if (p.k > kFewMaxPixelLanesChannels) return false;
  return lanes == 1 || round_up(conv_pixels(p), lanes) * p.k < conv_pixels(p) * round_up(p.k, lanes);
}

FewTileShape choose_tile(const Conv2dProblem& p, const FewChannelsKernels& kernels) {
  if (prefers_pixel_lanes(p, kernels.lanes)) {
    return {.pixel_lanes = true, .rows = kernels.pixel_lanes_rows, .vectors = 1, .stores_output = false};
  }
  return {.pixel_lanes = false,
          .rows = pool_side(p),
          .vectors = std::min<std::int64_t>(kFewMaxVectors, ceil_div(p.k, kernels.lanes)),
          .stores_output = p.nhwc};
}

/// Whether a row of the kernel is a run of taps that share broadcasts (shared_taps in channel_lanes-inl.h).
bool shares_taps(const Conv2dProblem& p, const FewTileShape& tile) {
  return !tile.pixel_lanes && tile.vectors == 1 && p.stride_w == 1 && p.dilation_w == 1 && (p.s == 3 || p.s == 5);
}

FewStrip strip_of_planes(const Conv2dProblem& p, const FewTileShape& tile, int lanes) {
  const std::int64_t halo = (p.s - 1) * p.dilation_w / p.stride_w;
  const std::int64_t pixels = tile.pixel_lanes ? round_up(conv_pixels(p), lanes) : conv_pixels(p);
  const std::int64_t pitch = round_up(halo + pixels, kLineFloats);
  return {.planes = true,
          .phases = p.stride_w,
          .columns = conv_pixels(p) + halo,
          .pitch = pitch,
          .row = p.c * p.stride_w * pitch,
          .pixel_step = 1,
          .run_steps = shares_taps(p, tile) ? p.s : 1};
}

FewStrip strip_of_copies(const Conv2dProblem& p) {
  const std::int64_t together = p.nhwc ? p.c : 1;  // channels that lie side by side
  const std::int64_t columns = ((conv_pixels(p) - 1) * p.stride_w + (p.s - 1) * p.dilation_w + 1) * together;
  const std::int64_t pitch = round_up(columns, kLineFloats);
  return {.planes = false,
          .phases = 1,
          .columns = columns,
          .pitch = pitch,
          .row = pitch * p.c / together,
          .pixel_step = p.stride_w * together,
          .run_steps = p.dilation_w == 1 ? together * p.s : together};
}

/// Whether the outputs [first, first + count) of a row read no column of padding.
bool touches_no_padding(const Conv2dProblem& p, std::int64_t first, std::int64_t count) {
  const WindowAxis columns = column_axis(p);
  return columns.first(first) >= 0 && columns.first(first + count - 1) + (p.s - 1) * p.dilation_w < p.w;
}

FewStrip choose_strip(const Conv2dProblem& p, const FewTileShape& tile, int lanes) {
  return tile.pixel_lanes || shares_taps(p, tile) ? strip_of_planes(p, tile, lanes) : strip_of_copies(p);
}

/// Copies of an image in its own order can be left out, but for the padding. Under a pool, rows of padding are not
/// skipped.
bool may_read_image(const Conv2dProblem& p, const FewTileShape& tile, const FewStrip& strip) {
  const std::int64_t window_floats = ((p.r - 1) * p.dilation_h + 1) * p.w * p.c;
  return tile.stores_output && p.dtype == DType::f32 && !strip.planes && p.pool.none() &&
         window_floats <= std::numeric_limits<std::int32_t>::max();
}

/// The outputs that no panel's tiles read from a strip.
FewInPlace outputs_in_place(const Conv2dProblem& p, const FewChannelsBlocking& b, const FewChannelsKernels& kernels) {
  if (b.tile.pixel_lanes) return {p.out_w(), p.out_w()};
  const std::int64_t vectors = ceil_div(p.k, kernels.lanes);
  const std::int64_t last = vectors - (ceil_div(vectors, b.tile.vectors) - 1) * b.tile.vectors;
  FewInPlace found{0, p.out_w()};
  for (const std::int64_t panel : {b.tile.vectors, last}) {
    const FewRow row = few_row(p, b.tile, b.strip, kernels, panel);
    found = {std::max(found.begin, row.tiles.begin(row.first_in_place)),
             std::min(found.end, row.tiles.begin(row.end_in_place))};
  }
  return found.any() ? found : FewInPlace{p.out_w(), p.out_w()};
}

FewWorkspace lay_out(const Conv2dProblem& p, const FewTileShape& tile, const FewStrip& strip, std::int64_t unit_rows,
                     int lanes) {
  const std::int64_t conv_rows = round_up(unit_rows * pool_side(p), tile.rows);
  const std::int64_t strip_rows = (conv_rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1;
  FewWorkspace w{};
  w.plane_pitch = round_up(p.out_w(), lanes) + lanes;
  std::int64_t planes = 0;
  std::int64_t out = 0;
  if (tile.pixel_lanes) {
    planes = round_up(conv_rows / pool_side(p), 2) * p.k * w.plane_pitch;
    out = p.nhwc ? unit_rows * p.out_w() * p.k + lanes : 0;
  } else if (!tile.stores_output) {
    planes = 2 * kStoreBlockFloats;
    out = unit_rows * p.out_w() * round_up(p.k, lanes);
  }
  // A vector of pixels may reach beyond the last column of the last row.
  w.row_offset = line_floats(strip_rows * strip.row + lanes);
  w.planes_offset = w.row_offset + line_floats(p.w * p.c);
  w.out_offset = w.planes_offset + line_floats(planes);
  w.floats = w.out_offset + line_floats(out);
  return w;
}

}  // namespace

std::int64_t widest_tile(const FewChannelsKernels& k, const FewTileShape& tile) {
  return (tile.rows == 2 ? k.max_pair_pixels : k.max_pixels)[static_cast<std::size_t>(tile.vectors)];
}

FewRow few_row(const Conv2dProblem& p, const FewTileShape& tile, const FewStrip& strip,
               const FewChannelsKernels& kernels, std::int64_t vectors) {
  const std::int64_t side = pool_side(p);
  const auto& widest = side == 2 ? kernels.max_pair_pixels : kernels.max_pixels;
  std::int64_t most = widest[static_cast<std::size_t>(vectors)] / side;
  if (side == 1 && strip.pixel_step == 1) most = std::min<std::int64_t>(most, kernels.max_neighbours);
  FewRow row{Tiles(p.out_w(), most), 0, 0};
  const Tiles& tiles = row.tiles;
  if (!may_read_image(p, tile, strip)) return row;
  std::int64_t first = 0, end = tiles.count;
  while (first < end && !touches_no_padding(p, tiles.begin(first), tiles.width(first))) ++first;
  while (end > first && !touches_no_padding(p, tiles.begin(end - 1), tiles.width(end - 1))) --end;
  row.first_in_place = first;
  row.end_in_place = end;
  return row;
}

/// The fewest units of an image that fit their cache and feed the threads.
FewChannelsBlocking few_channels_blocking(const Conv2dProblem& p, const FewChannelsKernels& kernels, int threads) {
  FewChannelsBlocking b{};
  b.tile = choose_tile(p, kernels);
  b.strip = choose_strip(p, b.tile, kernels.lanes);
  b.in_place = outputs_in_place(p, b, kernels);
  const std::int64_t most = b.tile.pixel_lanes ? kPixelLanesUnitFloats : kChannelLanesUnitFloats;
  const std::int64_t step = std::max<std::int64_t>(1, b.tile.rows / pool_side(p));
  const auto cut = [&](std::int64_t blocks) {
    b.units.rows = round_up(ceil_div(p.out_h(), blocks), step);
    b.workspace = lay_out(p, b.tile, b.strip, b.units.rows, kernels.lanes);
  };
  const auto suffice = [&](std::int64_t blocks) {
    cut(blocks);
    const bool enough = p.n * ceil_div(p.out_h(), b.units.rows) >= units_wanted(threads);
    return b.units.rows <= step || (enough && static_cast<std::int64_t>(b.workspace.floats) <= most);
  };
  // Searches by halving, since an image may have 10^9 rows.
  std::int64_t too_few = 0, blocks = p.out_h();
  while (blocks - too_few > 1) {
    const std::int64_t middle = too_few + (blocks - too_few) / 2;
    (suffice(middle) ? blocks : too_few) = middle;
  }
  cut(blocks);
  b.units.row_blocks = ceil_div(p.out_h(), b.units.rows);
  return b;
}

}  // namespace gable::cpu
