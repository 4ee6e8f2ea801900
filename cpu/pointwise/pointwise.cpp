// Which problems the 1×1 kernel takes, its blocking, packing, and the loops.
//   Blocking. A tile goes through all panels while its pixels are in L1: the input comes once, and whole pixels of the
// output are written one after another. The weights then come from L2 once a tile, and must fit half of it; larger ones
// come once a group, whose tiles, with pixels that fit half of L2, all pass under a panel before the next comes.
//   Strips. A tile's pixels a multiple of 4 KiB apart share one set of L1, which has fewer ways: they are copied into a
// strip. So are rows of a strided image shorter than a tile, to make wide tiles of them, and groups. A copied line
// costs about 10 cycles, and 14 lines are 224 cycles of products in every panel.
#include "cpu/pointwise/pointwise.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "cpu/common/cache.h"
#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/tiling.h"
#include "cpu/direct/conv2d_blocking.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kTilesPerGroup = 16;
constexpr std::int64_t kLeastTilesPerGroup = 4;
constexpr std::int64_t kFewPanels = 2;  // of four vectors

/// Whether output pixels are input pixels, one after another.
bool contiguous(const Conv2dProblem& p) { return p.stride_h == 1 && p.stride_w == 1 && p.ho == p.h && p.wo == p.w; }

bool l2_keeps_weights(const Conv2dProblem& p) { return p.c * p.k * kFloat <= l2_bytes() / 2; }

/// The most pixels whose channels fit half of L2.
std::int64_t cached_pixels(const Conv2dProblem& p) { return l2_bytes() / 2 / (p.c * kFloat); }

/// Four for few lanes, where a panel of weights about stays in L1.
std::int64_t choose_vectors(const Conv2dProblem& p, const PointwiseKernels& kernels, bool staged) {
  const std::int64_t lanes = kMaxPointwiseVectors * kernels.lanes;
  const bool exists = kernels.most_pixels[kMaxPointwiseVectors] > 0;
  const bool few = p.k >= lanes && p.k <= kFewPanels * lanes;
  return exists && !staged && few && p.c * lanes * kFloat <= l1_bytes() * 3 / 2 ? kMaxPointwiseVectors : kPanelVectors;
}

/// Units of pixels, as few tiles each as still use weights often, then of lanes.
void feed_threads(const Conv2dProblem& p, const PointwiseKernels& kernels, int threads, PointwiseBlocking& b) {
  const std::int64_t wanted = threads == 1 ? 1 : kUnitsPerThread * threads;
  const std::int64_t whole = b.staged || contiguous(p) ? b.tile_pixels : b.row_pixels;
  b.unit_pixels = std::min(b.pixels, round_up(ceil_div(b.pixels, wanted), whole));
  if (b.panels_outside) {
    const std::int64_t most = std::clamp(b.unit_pixels, kLeastTilesPerGroup * b.tile_pixels, b.group_pixels);
    b.unit_pixels = ceil_div(b.pixels, ceil_div(b.pixels, most));
  }
  b.pixel_blocks = ceil_div(b.pixels, b.unit_pixels);
  b.unit_lanes = std::min(p.k, round_up(ceil_div(p.k, ceil_div(wanted, b.pixel_blocks)), b.vectors * kernels.lanes));
  b.lane_blocks = ceil_div(p.k, b.unit_lanes);
}

PointwiseBlocking choose_blocking(const Conv2dProblem& p, const PointwiseKernels& kernels, int threads) {
  PointwiseBlocking b{};
  b.pixels = p.n * p.ho * p.wo;
  b.row_pixels = contiguous(p) ? b.pixels : p.wo;
  b.panels_outside = !l2_keeps_weights(p);
  const int most_pixels = kernels.most_pixels[kPanelVectors];
  const bool aliased = p.stride_w * p.c * kFloat % kL1WayBytes == 0 && most_pixels > l1_bytes() / kL1WayBytes;
  b.staged = b.panels_outside || aliased || b.row_pixels < std::min<std::int64_t>(b.pixels, most_pixels);
  b.streams = p.k % kernels.lanes == 0 && beyond_last_level(b.pixels * p.k * kFloat);
  b.vectors = choose_vectors(p, kernels, b.staged);
  b.tile_pixels = kernels.most_pixels[static_cast<std::size_t>(b.vectors)];
  b.strip_pixel = round_up(p.c, kPointwiseRun) + kPointwiseRun;
  const std::int64_t tiles = std::min(cached_pixels(p) / b.tile_pixels, kTilesPerGroup);
  b.group_pixels = (b.panels_outside ? tiles : 1) * b.tile_pixels;
  feed_threads(p, kernels, threads, b);
  return b;
}

struct PointwiseRun {
  const Conv2dProblem& p;
  const PointwiseKernels& kernels;
  const PointwiseBlocking& b;
  const float* x;
  const float* packed;
  const float* bias;
  float* y;
  bool stream;
};

/// One unit of work.
class Unit {
 public:
  Unit(const PointwiseRun& run, std::int64_t index, float* strip)
      : r_(run),
        p_(run.p),
        b_(run.b),
        strip_(strip),
        first_(index / run.b.lane_blocks * run.b.unit_pixels),
        end_(std::min(run.b.pixels, first_ + run.b.unit_pixels)),
        first_lane_(index % run.b.lane_blocks * run.b.unit_lanes),
        end_lane_(std::min(run.p.k, first_lane_ + run.b.unit_lanes)) {}

  void compute() const {
    if (b_.staged) {
      for (std::int64_t pixel = first_; pixel < end_; pixel += b_.group_pixels) {
        compute_staged(pixel, std::min(b_.group_pixels, end_ - pixel));
      }
    } else {
      compute_in_place();
    }
    if (r_.stream) hwy::FlushStream();
  }

 private:
  static constexpr std::size_t kMostParts = 3;
  /// Consecutive panels of one number of vectors.
  struct Part {
    std::int64_t vectors;
    std::int64_t first_lane, panels;
    int last_lanes;  // valid ones of the last panel
  };
  /// Calls visit(part) for the widest panels, then for what remains: at most one panel that is not full.
  template <class Visit>
  void for_each_part(const Visit& visit) const {
    const std::int64_t vector = r_.kernels.lanes;
    std::int64_t lane = first_lane_;
    for (std::int64_t vectors = b_.vectors; vectors >= 1; vectors /= 2) {
      const std::int64_t lanes = vectors * vector;
      const std::int64_t full = (end_lane_ - lane) / lanes;
      const std::int64_t rest = end_lane_ - lane - full * lanes;
      const bool takes_rest = vectors <= kPanelVectors && rest > lanes - vector;
      const std::int64_t panels = full + (takes_rest ? 1 : 0);
      if (panels == 0) continue;
      visit(Part{vectors, lane, panels, static_cast<int>(takes_rest ? rest : lanes)});
      lane = std::min(end_lane_, lane + panels * lanes);
    }
  }

  /// Of `panels` panels of the part, from its panel `panel` on, and of the unit's first pixels.
  PointwiseCall make_call(const Part& part, std::int64_t panel, std::int64_t panels) const {
    const std::int64_t lanes = part.vectors * r_.kernels.lanes;
    const std::int64_t lane = part.first_lane + panel * lanes;
    PointwiseCall call;
    call.channels = p_.c;
    call.weights = r_.packed + lane * p_.c;
    call.panels = panels;
    call.bias = r_.bias + lane;
    call.y = r_.y + first_ * p_.k + lane;
    call.y_pixel = p_.k;
    call.lanes = static_cast<int>(panel + panels == part.panels ? part.last_lanes : lanes);
    call.least = p_.activation == Activation::relu ? 0.0f : -std::numeric_limits<float>::infinity();
    call.stream = r_.stream;
    call.ask = {};
    return call;
  }

  /// A part's call for any tile, made once: a tile of few channels is over soon.
  struct Prepared {
    const PointwiseFunction* tile;
    PointwiseCall call;
  };

  void compute_in_place() const {
    std::array<Prepared, kMostParts> prepared;
    std::size_t parts = 0;
    for_each_part([&](const Part& part) {
      prepared[parts++] = {r_.kernels.tile[part.vectors], make_call(part, 0, part.panels)};
      prepared[parts - 1].call.x_pixel = p_.stride_w * p_.c;
    });
    for (std::int64_t first = first_; first < end_;) {
      const std::int64_t row_end = std::min(end_, (first / b_.row_pixels + 1) * b_.row_pixels);
      const Tiles cut(row_end - first, b_.tile_pixels);
      for (std::int64_t tile = 0; tile < cut.count; ++tile) {
        const std::int64_t pixel = first + cut.begin(tile);
        const std::int64_t width = cut.width(tile);
        prepared[0].call.ask = tile_ahead(pixel + width, width, prepared[0].call);
        for (std::size_t part = 0; part < parts; ++part) {
          PointwiseCall& call = prepared[part].call;
          call.x = source(pixel);
          prepared[part].tile[width](call);
          call.y += width * p_.k;
        }
      }
      first = row_end;
    }
  }

  /// The next tile's pixels, a share in each panel.
  Ask tile_ahead(std::int64_t next, std::int64_t width, const PointwiseCall& call) const {
    if (next >= end_) return {};
    const std::int64_t share = ceil_div(width, call.panels);
    return {source(next), share, call.x_pixel, kPointwiseRun, share * call.x_pixel};
  }

  const float* source(std::int64_t pixel) const {
    if (b_.row_pixels == b_.pixels) return r_.x + pixel * p_.stride_w * p_.c;
    const std::int64_t row = pixel / p_.wo;
    const std::int64_t image = row / p_.ho;
    return r_.x + ((image * p_.h + row % p_.ho * p_.stride_h) * p_.w + pixel % p_.wo * p_.stride_w) * p_.c;
  }

  void compute_staged(std::int64_t first, std::int64_t pixels) const {
    const Tiles cut(pixels, b_.tile_pixels);
    for_each_part([&](const Part& part) {
      for (std::int64_t panel = 0; panel < part.panels; ++panel) {
        const PointwiseCall shared = make_call(part, panel, 1);
        const bool stages = panel == 0 && part.first_lane == first_lane_;
        for (std::int64_t tile = 0; tile < cut.count; ++tile) {
          const std::int64_t pixel = first + cut.begin(tile);
          const std::int64_t width = cut.width(tile);
          float* strip = strip_ + cut.begin(tile) * b_.strip_pixel;
          if (stages) stage(pixel, width, strip);
          PointwiseCall call = shared;
          call.x = strip;
          call.x_pixel = b_.strip_pixel;
          call.y += (pixel - first_) * p_.k;
          call.ask = !b_.panels_outside ? pixels_ahead(pixel + width, panel, part.panels)
                     : stages           ? pixels_ahead(pixel + width, 0, 1)
                                        : weights_ahead(call, part, panel, tile, cut.count);
          r_.kernels.tile[part.vectors][width](call);
        }
      }
    });
  }

  void stage(std::int64_t first, std::int64_t width, float* strip) const {
    for (std::int64_t i = 0; i < width; ++i) {
      std::copy_n(source(first + i), p_.c, strip + i * b_.strip_pixel);
    }
  }

  /// A tile's share of the next panel's weights.
  Ask weights_ahead(const PointwiseCall& call, const Part& part, std::int64_t panel, std::int64_t tile,
                    std::int64_t tiles) const {
    if (panel + 1 == part.panels) return {};
    const std::int64_t run_floats = part.vectors * r_.kernels.lanes * kPointwiseRun;
    const std::int64_t share = round_up(ceil_div(run_floats, tiles), kPointwiseRun);
    const std::int64_t runs = ceil_div(p_.c, kPointwiseRun);
    return {call.weights + runs * run_floats + tile * runs * share, share / kPointwiseRun, kPointwiseRun, share, 0};
  }

  /// A share of the next group's pixels, all of which `panels` panels ask for.
  Ask pixels_ahead(std::int64_t next, std::int64_t panel, std::int64_t panels) const {
    const std::int64_t share = ceil_div(b_.tile_pixels, panels);
    const std::int64_t first = next + panel * share;
    const std::int64_t end = std::min({first + share, next + b_.tile_pixels, end_});
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

std::string pointwise_refusal(const Conv2dProblem& p, const Target& target) {
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  if (p.r * p.s != 1) return "kernel " + text(p.r) + "x" + text(p.s) + ": it is made for 1x1";
  if (p.groups != 1) return text(p.groups) + " groups: it takes one";
  if (p.dtype != DType::f32) return std::string(name_of(p.dtype)) + ": it reads f32";
  if (!p.nhwc) return "layout nchw: it reads a pixel's channels as neighbours";
  if (!p.pool.none()) return "it fuses no max-pool";
  if (p.activation == Activation::tanh) return "it fuses relu, not tanh";
  if (p.pad_top != 0 || p.pad_left != 0 || (p.ho - 1) * p.stride_h >= p.h || (p.wo - 1) * p.stride_w >= p.w) {
    return "it takes no padding";
  }
  const PointwiseKernels& kernels = pointwise_kernels(target);
  if (cached_pixels(p) < kLeastTilesPerGroup * kernels.most_pixels[kPanelVectors]) {
    return text(p.c) + " input channels: too many for L2 in one piece";
  }
  const std::int64_t pixels = p.n * p.ho * p.wo;
  if (pixels < kernels.most_pixels[kPanelVectors] && !l2_keeps_weights(p)) {
    return text(pixels) + " pixels under weights beyond half of L2: each is used once, and better read further ahead";
  }
  if (reads_weights_once(p)) {
    return "weights beyond the last level: units that share them had better follow one another";
  }
  return "";
}

PointwisePlan::PointwisePlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(checked("pointwise", problem, pointwise_refusal, target, threads)),
      target_(&target),
      kernels_(&pointwise_kernels(target)),
      threads_(threads),
      blocking_(choose_blocking(problem, *kernels_, threads)),
      workspace_(static_cast<std::size_t>(padded_lanes()) + static_cast<std::size_t>(threads) * strip_floats()) {}

std::int64_t PointwisePlan::padded_lanes() const { return round_up(problem_.k, kernels_->lanes); }

std::size_t PointwisePlan::strip_floats() const {
  if (!blocking_.staged) return 0;
  const std::int64_t pixels = std::min(blocking_.group_pixels, blocking_.unit_pixels);
  return static_cast<std::size_t>(pixels * blocking_.strip_pixel);
}

std::size_t PointwisePlan::packed_bytes() const {
  return static_cast<std::size_t>(padded_lanes() * problem_.c) * sizeof(float);
}

void PointwisePlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  const std::int64_t panel_lanes = kPanelVectors * kernels_->lanes;
  auto* out = static_cast<float*>(packed);
  for (std::int64_t panel = 0; panel < padded_lanes(); panel += panel_lanes) {
    const std::int64_t lanes = std::min(panel_lanes, padded_lanes() - panel);
    for (std::int64_t channel = 0; channel < problem_.c; ++channel) {
      for (std::int64_t lane = panel; lane < panel + lanes; ++lane) {
        const std::int64_t source = lane * strides.out + channel * strides.in;
        *out++ = lane < problem_.k ? element_as_f32(weights, problem_.dtype, source) : 0.0f;
      }
    }
  }
}

void PointwisePlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const PointwiseBlocking& b = blocking_;
  float* padded_bias = workspace_.data();
  if (problem_.bias) std::copy_n(bias, problem_.k, padded_bias);
  float* strips = padded_bias + padded_lanes();
  const std::size_t vector_bytes = static_cast<std::size_t>(kernels_->lanes) * sizeof(float);
  const bool stream = b.streams && reinterpret_cast<std::uintptr_t>(y) % vector_bytes == 0;
  const PointwiseRun run{problem_,
                         *kernels_,
                         b,
                         static_cast<const float*>(x),
                         static_cast<const float*>(packed),
                         padded_bias,
                         static_cast<float*>(y),
                         stream};
  note_path(!b.staged          ? Path::pointwise_in_place
            : b.panels_outside ? Path::pointwise_panels_outside
                               : Path::pointwise_staged,
            *target_);
  if (stream) note_path(Path::pointwise_stream, *target_);
  parallel_units(threads_, b.pixel_blocks * b.lane_blocks, [&](std::int64_t unit, int thread) {
    Unit(run, unit, strips + static_cast<std::size_t>(thread) * strip_floats()).compute();
  });
}

Conv2dDescription PointwisePlan::description() const {
  const PointwiseBlocking& b = blocking_;
  Conv2dDescription d;
  d.kernel = "pointwise";
  d.target = target_->name;
  d.tile = text(b.tile_pixels) + " pixels x " + text(b.vectors * kernels_->lanes) + " lanes";
  d.blocking = std::string(b.panels_outside ? "panels of weights outside " + text(b.group_pixels) + " pixels"
                                            : "each tile through all panels") +
               ", unit " + text(b.unit_pixels) + " pixels x " + text(b.unit_lanes) + " lanes, " +
               text(b.pixel_blocks * b.lane_blocks) + " units";
  d.fusion = std::string(b.staged ? "input in strips" : "input in place") +
             ", no pool, bias and activation in registers" + (b.streams ? ", stores past the caches" : "");
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
