// See arguments.h.
#include "cuda/wgmma/arguments.h"

#include <algorithm>

#include "cuda/wgmma/tensor_maps.h"

namespace gable::cuda {
namespace {

/// A divisor by one multiplication if that is exact for all of 0 to `largest`; else `reciprocal` is 0.
Divisor divisor_up_to(std::int64_t largest, std::int64_t value) {
  Divisor d = divisor(static_cast<int>(value));
  if (largest * value >= std::int64_t{1} << 32) d.reciprocal = 0;
  return d;
}

WgmmaChannels channels_of(const Conv2dProblem& p, const WgmmaGeometry& g) {
  const WgmmaSlices& s = g.slices;
  return {.by_parts = divisor_up_to(wgmma_channel_slices(g), s.parts),
          .by_group_k = divisor_up_to(p.k + kWgmmaChannels, std::max(s.group_k, 1)),
          .width = s.width,
          .unit = s.unit,
          .last = s.last,
          .group_c = s.group_c,
          .input_mask = -s.input_alignment,
          .grouped = p.groups > 1};
}

void share_out(const WgmmaGeometry& g, WgmmaShare (&shares)[kWgmmaMaxSplit]) {
  const int boxes = static_cast<int>(g.steps.boxes.size()), taps = static_cast<int>(g.steps.taps.size());
  const auto steps_before = [&](int box) {
    return box / boxes * taps + (box % boxes == 0 ? 0 : g.steps.boxes[static_cast<std::size_t>(box % boxes)].first_tap);
  };
  int begin = 0;
  for (int rank = 0; rank < g.steps.split; ++rank) {
    const int end = g.steps.share_ends[static_cast<std::size_t>(rank)], first_step = steps_before(begin);
    shares[rank] = {begin, end, begin / boxes, begin % boxes, first_step, steps_before(end) - first_step};
    begin = end;
  }
}

}  // namespace

WgmmaArguments wgmma_arguments(const Conv2dProblem& p, const WgmmaGeometry& g) {
  WgmmaArguments a{};
  a.x = wgmma_input_map(p, g);
  a.y = wgmma_output_map(p, g);
  a.output.channels = static_cast<int>(p.k);
  a.tiles.items = g.grid.items;
  a.tiles.by_channel_tiles = divisor_up_to(g.grid.items, g.grid.channel_tiles);
  a.tiles.by_pixel_tiles = divisor_up_to(g.grid.items, g.grid.items / g.grid.channel_tiles);
  a.tiles.by_tiles_x = divisor_up_to(g.grid.items, g.grid.tiles_x);
  a.tiles.by_tiles_y = divisor_up_to(g.grid.items, g.grid.tiles_y);
  const std::int64_t line = p.n * p.ho * p.wo + g.tile.pixels;
  a.tiles.by_out_w = divisor_up_to(line, p.wo);
  a.tiles.by_out_h = divisor_up_to(line, p.ho);
  a.tiles.width = g.tile.width;
  a.tiles.height = g.tile.height;
  a.tiles.images = g.tile.images;
  a.tiles.stride_w = static_cast<int>(p.stride_w);
  a.tiles.stride_h = static_cast<int>(p.stride_h);
  a.output.row = g.tile.row;
  const int pool = p.pool.none() ? 1 : 2;
  a.output.chunk_x = g.tile.row > kWgmmaChunk ? kWgmmaChunk : 0;
  a.output.chunk_y = g.tile.row > kWgmmaChunk ? 0 : kWgmmaChunk / g.tile.row / pool;
  a.output.chunks_per_image = static_cast<int>(ceil_div(g.tile.row * g.tile.rows_per_image, kWgmmaChunk));
  a.reduction.channel_blocks = g.steps.channel_blocks;
  a.reduction.parts = g.steps.parts;
  a.reduction.box_count = static_cast<int>(g.steps.boxes.size());
  a.reduction.tap_count = static_cast<int>(g.steps.taps.size());
  a.reduction.split = g.steps.split;
  share_out(g, a.reduction.shares);
  a.stages.boxes = g.stages.boxes;
  a.stages.box_stage_bytes = g.stages.box_stage_bytes;
  a.stages.box_bytes = g.box.pixels() * kWgmmaPixelBytes;
  a.stages.weights = g.stages.weights;
  a.stages.output_bytes = wgmma_output_bytes(g);
  a.stages.group_pitch = g.box.group_pitch;
  a.tiles.first_x = wgmma_corners(p).left;
  a.tiles.first_y = wgmma_corners(p).top;
  a.reduction.schedule = g.schedule;
  a.tiles.by_tap = g.tile.by_tap;
  a.tiles.pixels_first = g.grid.pixels_first;
  a.stages.resident_weights = g.stages.resident_weights;
  a.channels = channels_of(p, g);
  a.output.windows = g.slices.windows;
  a.output.pool = !p.pool.none();
  a.output.activation = p.activation;
  std::copy(g.steps.boxes.begin(), g.steps.boxes.end(), a.boxes);
  std::transform(g.steps.taps.begin(), g.steps.taps.end(), a.shifts, [](const WgmmaTap& tap) { return tap.shift; });
  return a;
}

}  // namespace gable::cuda
