// See pointwise_unit.h.
#include "cpu/pointwise/pointwise_unit.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <limits>

#include "cpu/common/strides.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

/// One unit of work.
class Unit {
 public:
  Unit(const PointwiseRun& run, std::int64_t index, float* strip)
      : r_(run),
        p_(run.problem),
        b_(run.blocking),
        strip_(strip),
        first_(index / run.blocking.units.lane_blocks * run.blocking.units.pixels),
        end_(std::min(run.blocking.pixels, first_ + run.blocking.units.pixels)),
        first_lane_(index % run.blocking.units.lane_blocks * run.blocking.units.lanes),
        end_lane_(std::min(run.problem.k, first_lane_ + run.blocking.units.lanes)) {}

  void compute() const {
    if (b_.widens_tiles) {
      compute_widened();
    } else if (b_.copies_input) {
      for (std::int64_t pixel = first_; pixel < end_; pixel += b_.band_pixels) {
        compute_copied(pixel, std::min(b_.band_pixels, end_ - pixel));
      }
    } else {
      compute_in_place();
    }
    if (r_.non_temporal) hwy::FlushStream();
  }

 private:
  static constexpr std::size_t kMaxParts = 5;
  /// Consecutive panels with the same number of vectors.
  struct Part {
    std::int64_t vectors;
    std::int64_t first_lane, panels;
    int last_lanes;  // valid ones of the last panel
  };
  /// Calls visit(part) for the widest panels, then for the remaining lanes: at most one panel is not full.
  template <class Visit>
  void for_each_part(const Visit& visit) const {
    const std::int64_t vector = r_.kernels.lanes;
    std::int64_t lane = first_lane_;
    for (std::int64_t vectors = b_.tile.vectors; lane < end_lane_; vectors /= 2) {  // the last one is kHalfVector
      if (r_.kernels.most_pixels[static_cast<std::size_t>(vectors)] == 0) continue;
      const std::int64_t lanes = vectors == kHalfVector ? r_.kernels.least_lanes : vectors * vector;
      const std::int64_t full = (end_lane_ - lane) / lanes;
      const std::int64_t rest = end_lane_ - lane - full * lanes;
      const bool takes_rest = vectors <= kThreeVectors && rest > lanes - r_.kernels.least_lanes;
      const std::int64_t panels = full + (takes_rest ? 1 : 0);
      if (panels == 0) continue;
      visit(Part{vectors, lane, panels, static_cast<int>(takes_rest ? rest : lanes)});
      lane = std::min(end_lane_, lane + panels * lanes);
    }
  }

  /// The call for `panels` panels of the part from panel `panel` on, at the unit's first pixels.
  PointwiseCall make_call(const Part& part, std::int64_t panel, std::int64_t panels) const {
    const std::int64_t lanes = part.vectors == kHalfVector ? r_.kernels.least_lanes : part.vectors * r_.kernels.lanes;
    const std::int64_t lane = part.first_lane + panel * lanes;
    PointwiseCall call;
    call.in.channels = p_.c;
    call.panels.weights = r_.packed + lane * p_.c;
    call.panels.count = panels;
    call.out.bias = r_.bias + lane;
    call.out.y = advance(r_.y, p_.dtype, first_ * r_.pixel_outputs + lane);
    call.out.type = p_.dtype;
    call.out.pixel = r_.pixel_outputs;
    call.out.lanes = static_cast<int>(panel + panels == part.panels ? part.last_lanes : lanes);
    call.out.least = p_.activation == Activation::relu ? 0.0f : -std::numeric_limits<float>::infinity();
    call.out.non_temporal = r_.non_temporal;
    call.prefetch = {};
    return call;
  }

  /// The call of a part, reused from tile to tile: only a few fields change, and with few channels filling all of them
  /// would take longer than the tile.
  struct Prepared {
    const PointwiseFunction* tile;
    const PointwiseFunction* run_of_tiles;  // null: of wider panels
    PointwiseCall call;
  };
  /// Calls of all panels of each part, for pixels that lie x_pixel apart. Returns the number of parts.
  std::size_t prepare(std::array<Prepared, kMaxParts>& prepared, std::int64_t x_pixel) const {
    std::size_t parts = 0;
    for_each_part([&](const Part& part) {
      const auto vectors = static_cast<std::size_t>(part.vectors);
      const bool narrow = part.vectors <= r_.kernels.most_run_vectors;
      prepared[parts] = {r_.kernels.tile[vectors], narrow ? r_.kernels.run_of_tiles[vectors] : nullptr,
                         make_call(part, 0, part.panels)};
      prepared[parts++].call.in.pixel = x_pixel;
    });
    return parts;
  }

  /// Each tile's pixels are widened into L1, then pass through all panels.
  void compute_widened() const {
    std::array<Prepared, kMaxParts> prepared;
    const std::size_t parts = prepare(prepared, b_.strip_pixel);
    const Tiles cut(end_ - first_, b_.tile.pixels);
    for (std::int64_t tile = 0; tile < cut.count; ++tile) {
      const std::int64_t width = cut.width(tile);
      const std::int64_t pixel = first_ + cut.begin(tile);
      copy(pixel, width, strip_);
      prepared[0].call.prefetch = next_widened(pixel + width, width, prepared[0].call.panels.count);
      for (std::size_t part = 0; part < parts; ++part) {
        PointwiseCall& call = prepared[part].call;
        call.in.x = strip_;
        prepared[part].tile[width](call);
        call.out.y = advance(call.out.y, p_.dtype, width * r_.pixel_outputs);
      }
    }
  }

  void compute_in_place() const {
    if (b_.run_pixels > 0) return compute_panels_of_runs();
    std::array<Prepared, kMaxParts> prepared;
    const std::size_t parts = prepare(prepared, p_.stride_w * r_.pixel_inputs);
    if (b_.runs_of_tiles) return compute_narrow(prepared[0]);
    for (std::int64_t first = first_; first < end_;) {
      const std::int64_t row_end = std::min(end_, (first / b_.row_pixels + 1) * b_.row_pixels);
      const Tiles cut(row_end - first, b_.tile.pixels);
      for (std::int64_t tile = 0; tile < cut.count; ++tile) {
        const std::int64_t pixel = first + cut.begin(tile);
        const std::int64_t width = cut.width(tile);
        prepared[0].call.prefetch = next_tile(pixel + width, width, prepared[0].call);
        for (std::size_t part = 0; part < parts; ++part) {
          PointwiseCall& call = prepared[part].call;
          call.in.x = source(pixel);
          prepared[part].tile[width](call);
          call.out.y = static_cast<float*>(call.out.y) + width * r_.pixel_outputs;
        }
      }
      first = row_end;
    }
  }

  /// Blocks of pixels that stay near for all panels, each of which takes the tiles of a row, or all, in one call or
  /// two.
  void compute_panels_of_runs() const {
    for (std::int64_t block = first_; block < end_; block += b_.run_pixels) {
      const std::int64_t block_end = std::min(end_, block + b_.run_pixels);
      for_each_part([&](const Part& part) {
        const PointwiseFunction* const run_of_tiles = r_.kernels.run_of_tiles[static_cast<std::size_t>(part.vectors)];
        for (std::int64_t panel = 0; panel < part.panels; ++panel) {
          PointwiseCall call = make_call(part, panel, 1);
          call.in.pixel = p_.stride_w * r_.pixel_inputs;
          call.out.y = static_cast<float*>(call.out.y) + (block - first_) * r_.pixel_outputs;
          for (std::int64_t first = block; first < block_end;) {
            const std::int64_t row_end = std::min(block_end, (first / b_.row_pixels + 1) * b_.row_pixels);
            compute_runs(run_of_tiles, call, first, Tiles(row_end - first, b_.tile.pixels));
            first = row_end;
          }
        }
      });
    }
  }

  /// The unit's pixels, of which those of a row, or all, lie equally far apart.
  void compute_narrow(Prepared& prepared) const {
    for (std::int64_t first = first_; first < end_;) {
      const std::int64_t row_end = std::min(end_, (first / b_.row_pixels + 1) * b_.row_pixels);
      if (b_.holds_weights) {
        compute_held(prepared, prepared.call, first, row_end - first);
      } else {
        compute_runs(prepared.run_of_tiles, prepared.call, first, Tiles(row_end - first, b_.tile.pixels));
      }
      first = row_end;
    }
  }
  /// The tiles of `cut` from pixel `first` on, in one run for each of their two widths.
  void compute_runs(const PointwiseFunction* run_of_tiles, PointwiseCall& call, std::int64_t first,
                    const Tiles& cut) const {
    for (std::int64_t tile = 0; tile < cut.count; tile += call.tiles) {
      call.tiles = tile < cut.wide_tiles ? cut.wide_tiles : cut.count - tile;
      compute_run(run_of_tiles[cut.width(tile)], call, first + cut.begin(tile), cut.width(tile));
    }
  }
  void compute_run(PointwiseFunction run_of_tiles, PointwiseCall& call, std::int64_t first, std::int64_t width) const {
    call.in.x = source(first);
    run_of_tiles(call);
    call.out.y = static_cast<float*>(call.out.y) + call.tiles * width * r_.pixel_outputs;
  }
  /// The same with tiles that keep weights in registers, and a last tile of the pixels that they leave.
  void compute_held(const Prepared& prepared, PointwiseCall& call, std::int64_t first, std::int64_t pixels) const {
    call.tiles = pixels / kHeldPixels;
    if (call.tiles > 0) compute_run(r_.kernels.held_weights, call, first, kHeldPixels);
    const std::int64_t rest = pixels % kHeldPixels;
    if (rest == 0) return;
    call.tiles = 1;
    compute_run(prepared.run_of_tiles[rest], call, first + pixels - rest, rest);
  }

  /// Prefetches the next tile's pixels, a share in each panel.
  PrefetchLines next_tile(std::int64_t next, std::int64_t width, const PointwiseCall& call) const {
    if (next >= end_) return {};
    const std::int64_t share = ceil_div(width, call.panels.count);
    return {source(next), share, call.in.pixel, kPointwiseRun, share * call.in.pixel};
  }

  /// The same for pixels that will be widened: pixels that lie together as one piece of memory; of others each line
  /// twice, since a line holds two runs of channels.
  PrefetchLines next_widened(std::int64_t next, std::int64_t width, std::int64_t panels) const {
    if (next >= end_ || !b_.prefetches_widened) return {};
    const auto* from = static_cast<const float*>(advance(r_.x, p_.dtype, source_offset(next)));
    if (b_.strip_pixel != p_.c) {
      const std::int64_t share = ceil_div(width, panels), pixel = p_.stride_w * r_.pixel_inputs / 2;
      return {from, share, pixel, kPointwiseRun / 2, share * pixel};
    }
    const std::int64_t runs = ceil_div(p_.c, kPointwiseRun);
    const std::int64_t lines = ceil_div(ceil_div(width * p_.c, 2 * kPointwiseRun), runs * panels);
    return {from, lines, kPointwiseRun, lines * kPointwiseRun, runs * lines * kPointwiseRun};
  }

  std::int64_t source_offset(std::int64_t pixel) const {
    if (b_.row_pixels == b_.pixels) return pixel * p_.stride_w * r_.pixel_inputs;
    const std::int64_t row = pixel / p_.wo;
    const std::int64_t image = row / p_.ho;
    return ((image * p_.h + row % p_.ho * p_.stride_h) * p_.w + pixel % p_.wo * p_.stride_w) * r_.pixel_inputs;
  }
  const float* source(std::int64_t pixel) const { return static_cast<const float*>(r_.x) + source_offset(pixel); }

  void compute_copied(std::int64_t first, std::int64_t pixels) const {
    const Tiles cut(pixels, b_.tile.pixels);
    for_each_part([&](const Part& part) {
      for (std::int64_t panel = 0; panel < part.panels; ++panel) {
        const PointwiseCall shared = make_call(part, panel, 1);
        const bool copies = panel == 0 && part.first_lane == first_lane_;
        for (std::int64_t tile = 0; tile < cut.count; ++tile) {
          const std::int64_t pixel = first + cut.begin(tile);
          const std::int64_t width = cut.width(tile);
          float* strip = strip_ + cut.begin(tile) * b_.strip_pixel;
          if (copies) copy(pixel, width, strip);
          PointwiseCall call = shared;
          call.in.x = strip;
          call.in.pixel = b_.strip_pixel;
          call.out.y = advance(call.out.y, p_.dtype, (pixel - first_) * r_.pixel_outputs);
          call.prefetch = p_.dtype != DType::f32 ? PrefetchLines{}
                          : !b_.panels_outside   ? next_pixels(pixel + width, panel, part.panels)
                          : copies               ? next_pixels(pixel + width, 0, 1)
                                                 : next_weights(call, part, panel, tile, cut.count);
          r_.kernels.tile[part.vectors][width](call);
        }
      }
    });
  }

  void copy(std::int64_t first, std::int64_t width, float* strip) const {
    if (p_.dtype != DType::f32) return widen(first, width, strip);
    for (std::int64_t i = 0; i < width; ++i) {
      std::copy_n(source(first + i), p_.c, strip + i * b_.strip_pixel);
    }
  }

  /// Pixels of one row of the output are equally far apart.
  void widen(std::int64_t first, std::int64_t width, float* strip) const {
    const WidenPixelsFunction to_f32 = p_.dtype == DType::f16 ? r_.kernels.widen_f16 : r_.kernels.widen_bf16;
    for (const std::int64_t end = first + width; first < end;) {
      const std::int64_t count = std::min(end, (first / b_.row_pixels + 1) * b_.row_pixels) - first;
      to_f32({.x = advance(r_.x, p_.dtype, source_offset(first)),
              .x_pixel = p_.stride_w * r_.pixel_inputs,
              .channels = p_.c,
              .pixels = count,
              .strip = strip,
              .strip_pixel = b_.strip_pixel});
      strip += count * b_.strip_pixel;
      first += count;
    }
  }

  /// Prefetches a share of the next panel's weights; all tiles of the band together prefetch all.
  PrefetchLines next_weights(const PointwiseCall& call, const Part& part, std::int64_t panel, std::int64_t tile,
                             std::int64_t tiles) const {
    if (panel + 1 == part.panels) return {};
    const std::int64_t run_floats = part.vectors * r_.kernels.lanes * kPointwiseRun;
    const std::int64_t share = round_up(ceil_div(run_floats, tiles), kPointwiseRun);
    const std::int64_t runs = ceil_div(p_.c, kPointwiseRun);
    return {call.panels.weights + runs * run_floats + tile * runs * share, share / kPointwiseRun, kPointwiseRun, share,
            0};
  }

  /// Prefetches a share of the next tile's pixels; `panels` panels together prefetch all.
  PrefetchLines next_pixels(std::int64_t next, std::int64_t panel, std::int64_t panels) const {
    const std::int64_t share = ceil_div(b_.tile.pixels, panels);
    const std::int64_t first = next + panel * share;
    const std::int64_t end = std::min({first + share, next + b_.tile.pixels, end_});
    if (first >= end) return {};
    return {source(first), end - first, first + 1 < end ? source(first + 1) - source(first) : 0, kPointwiseRun, 0};
  }

  const PointwiseRun& r_;
  const Conv2dProblem& p_;
  const PointwiseBlocking& b_;
  float* strip_;
  std::int64_t first_, end_, first_lane_, end_lane_;  // of the output
};

}  // namespace

void compute_pointwise_unit(const PointwiseRun& run, std::int64_t index, float* strip) {
  Unit(run, index, strip).compute();
}

}  // namespace gable::cpu
