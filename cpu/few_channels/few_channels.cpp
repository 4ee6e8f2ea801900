// Which problems FewChannelsPlan takes, and its description.
#include "cpu/few_channels/few_channels.h"

#include <hwy/cache_control.h>

#include <algorithm>

#include "cpu/common/cache.h"
#include "cpu/common/check.h"
#include "cpu/common/coverage.h"
#include "cpu/common/parallel.h"
#include "cpu/few_channels/few_channels_packing.h"
#include "cpu/few_channels/few_channels_unit.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kMaxChannels = 8;
constexpr std::int64_t kMaxSteps = 512;  // a panel of two AVX-512 vectors then has 64 KB
constexpr std::int64_t kMaxThreadFloats = 256 << 10;

std::string tile_text(const Conv2dProblem& p, const FewChannelsKernels& kernels, const FewTileShape& tile) {
  if (tile.pixel_lanes) {
    return text(tile.rows) + "x" + text(kernels.lanes) + " pixels in vectors x " +
           text(std::min<std::int64_t>(kFewPixelLanesBlock, p.k)) + " channels";
  }
  return text(tile.rows) + "x" + text(widest_tile(kernels, tile)) + " pixels x " + text(tile.vectors * kernels.lanes) +
         " lanes";
}

std::vector<std::int32_t> offsets_in_image(const Conv2dProblem& p, const FewChannelsBlocking& b) {
  if (!b.in_place.any()) return {};
  FewStrip image = b.strip;
  image.row = p.w * p.c;
  return run_offsets(p, image);
}

std::string strip_text(const FewChannelsBlocking& b) {
  if (b.in_place.any()) return "input in place, padded columns copied to a strip in its own order";
  const FewStrip& strip = b.strip;
  return strip.planes ? "input copied to a strip of planes" : "input copied to a strip in its own order";
}

/// Where bias, pool and activation are applied, and how outputs are stored.
std::string epilogue_text(const Conv2dProblem& p, const FewTileShape& tile) {
  const std::string pool = p.pool.none() ? "no pool" : "max-pool in registers";
  if (!tile.stores_output) return pool + ", bias in registers, activation as a unit's results are stored";
  const bool buffered = p.activation == Activation::tanh;
  return pool + ", bias in registers, " + (buffered ? "tanh in a buffer of one tile" : "activation in registers");
}

}  // namespace

std::string few_channels_refusal(const Conv2dProblem& p, const Target& target) {
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  if (p.groups != 1) return text(p.groups) + " groups: it takes one";
  if (p.c > kMaxChannels) return text(p.c) + " input channels: it is made for at most " + text(kMaxChannels);
  if (p.r * p.s == 1) return "kernel 1x1: a matrix product serves it";
  if (few_channels_steps(p) > kMaxSteps) {
    return text(few_channels_steps(p)) + " taps times channels: its panels of weights have at most " + text(kMaxSteps);
  }
  if (!p.pool.none() && !p.pool.is_2x2()) return "it fuses a max-pool of 2x2 with stride 2 only";
  const FewChannelsBlocking b = few_channels_blocking(p, few_channels_kernels(target), 1);
  const auto floats = static_cast<std::int64_t>(b.workspace.floats);
  if (floats > kMaxThreadFloats) {
    return "rows of " + text(p.w) + " pixels: a workspace of " + text(floats) + " floats, at most " +
           text(kMaxThreadFloats) + " stay in L2";
  }
  return "";
}

FewChannelsPlan::FewChannelsPlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(checked("few_channels", problem, target, threads)),
      target_(&target),
      kernels_(&few_channels_kernels(target)),
      threads_(threads),
      blocking_(few_channels_blocking(problem, *kernels_, threads)),
      offsets_(run_offsets(problem, blocking_.strip)),
      image_offsets_(offsets_in_image(problem, blocking_)),
      workspace_(static_cast<std::size_t>(round_up(problem.k, 16)) +
                     static_cast<std::size_t>(threads) * blocking_.workspace.floats,
                 static_cast<std::size_t>(round_up(problem.k, 16))) {
  if (!blocking_.tile.pixel_lanes) return;
  const std::size_t bias_floats = static_cast<std::size_t>(round_up(problem.k, 16));
  clear_leftovers(workspace_.data() + bias_floats, workspace_.size() - bias_floats);
  const auto channels = static_cast<std::int32_t>(problem_.k);
  for (std::int32_t i = 0; i < channels * kernels_->lanes; ++i) {
    pixel_of_.push_back(i / channels);
    channel_of_.push_back(i % channels);
  }
}

std::size_t FewChannelsPlan::packed_bytes() const {
  const std::int64_t channels = padded_channels(problem_, blocking_.tile, kernels_->lanes);
  return static_cast<std::size_t>(channels * few_channels_steps(problem_)) * sizeof(float);
}

Packing FewChannelsPlan::packing() const { return few_channels_packing(problem_, blocking_, kernels_->lanes); }

void FewChannelsPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  pack_few_channels(problem_, blocking_, kernels_->lanes, weights, strides, static_cast<float*>(packed));
}

/// Only if a panel's lanes of a pixel are whole cache lines: other lines would be written to memory in parts.
bool FewChannelsPlan::non_temporal() const {
  const Conv2dProblem& p = problem_;
  const std::int64_t panel = blocking_.tile.vectors * kernels_->lanes;
  const bool lines = panel % 16 == 0 && p.k % panel == 0;
  return blocking_.tile.stores_output && p.dtype == DType::f32 && lines &&
         beyond_last_level(p.n * p.k * p.out_h() * p.out_w() * 4);
}

void FewChannelsPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const Conv2dProblem& p = problem_;
  const FewChannelsBlocking& b = blocking_;
  note_path(b.tile.pixel_lanes ? (p.pool.none() ? Path::few_pixel_lanes : Path::few_pixel_lanes_pool)
                               : (p.pool.none() ? Path::few_channel_lanes : Path::few_channel_lanes_pool),
            *target_);
  note_path(p.nhwc && b.strip.planes ? Path::few_stage_split : Path::few_stage_rows, *target_);
  if (b.in_place.any()) note_path(Path::few_in_place, *target_);
  float* padded_bias = workspace_.data();
  if (p.bias) std::copy_n(bias, p.k, padded_bias);
  float* parts = padded_bias + round_up(p.k, 16);
  const FewChannelsRun run{.problem = p,
                           .target = *target_,
                           .kernels = *kernels_,
                           .blocking = b,
                           .offsets = offsets_.data(),
                           .image_offsets = image_offsets_.data(),
                           .pixel_of = pixel_of_.data(),
                           .channel_of = channel_of_.data(),
                           .x = x,
                           .packed = static_cast<const float*>(packed),
                           .bias = padded_bias,
                           .non_temporal = non_temporal() && reinterpret_cast<std::uintptr_t>(y) % 64 == 0,
                           .y = y};
  parallel_units(threads_, p.n * b.units.row_blocks, [&](std::int64_t unit, int thread) {
    compute_few_channels_unit(run, unit, parts + static_cast<std::size_t>(thread) * b.workspace.floats);
    if (run.non_temporal) hwy::FlushStream();
  });
}

Conv2dDescription FewChannelsPlan::description() const {
  const FewUnits& units = blocking_.units;
  Conv2dDescription d;
  d.kernel = "few_channels";
  d.target = target_->name;
  d.tile = tile_text(problem_, *kernels_, blocking_.tile);
  d.blocking = text(few_channels_steps(problem_)) + " taps and channels in one go, unit " +
               text(std::min(units.rows, problem_.out_h())) + "x" + text(problem_.out_w()) + " outputs, " +
               text(problem_.n * units.row_blocks) + " units";
  d.fusion = strip_text(blocking_) + ", " + epilogue_text(problem_, blocking_.tile) +
             (non_temporal() ? ", non-temporal stores" : "");
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
