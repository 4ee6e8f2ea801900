// Which problems NarrowGroupsPlan takes, its packing, and its description.
#include "cpu/narrow_groups/narrow_groups.h"

#include <algorithm>
#include <cstring>

#include "cpu/common/cache.h"
#include "cpu/common/check.h"
#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/tiling.h"
#include "cpu/narrow_groups/narrow_groups_unit.h"

namespace gable::cpu {

namespace {

/// Why the kernels do not take the problem, whatever its groups.
std::string refusal_of_form(const Conv2dProblem& p) {
  if (p.r > kMaxNarrowGroupsRows) return text(p.r) + " kernel rows: it takes " + text(kMaxNarrowGroupsRows);
  if (!p.nhwc) return "layout nchw: it reads a pixel's channels as neighbours";
  if (!p.pool.none()) return "it fuses no max-pool";
  if (p.activation == Activation::tanh) return "it fuses relu, not tanh";
  return "";
}

}  // namespace

std::string narrow_groups_refusal(const Conv2dProblem& p, const Target& target) {
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  const NarrowGroupsKernels& kernels = narrow_groups_kernels(target, p);
  if (p.groups == 1 || p.group_k() > kernels.lanes / 2) {
    return text(p.group_k()) + " output channels in each of " + text(p.groups) +
           " groups: its vectors hold several groups";
  }
  const std::int64_t channels = kernels.lanes / p.group_k() * p.group_c();
  if (channels > kMaxSpreadVectors * kernels.lanes) {
    return text(p.group_c()) + " input channels for " + text(p.group_k()) + " output channels of a group: too many";
  }
  return refusal_of_form(p);
}

std::string narrow_groups_dot_refusal(const Conv2dProblem& p, const Target& target) {
  if (p.dtype != DType::bf16) return "it multiplies bf16";
  if (p.group_c() % 2 != 0) return text(p.group_c()) + " input channels of a group: it multiplies pairs of them";
  if (target.supported && p.groups > 1 && has_pair_quads(p.group_c(), p.group_k())) return refusal_of_form(p);
  return narrow_groups_refusal(p, target);
}

/// Units are as high as the image, or lower if the threads need more units, and as wide as fits: their strip and a tile
/// take 3/4 of L1.
NarrowGroupsBlocking narrow_groups_blocking(const Conv2dProblem& p, const NarrowGroupsKernels& kernels, int threads) {
  constexpr std::int64_t kMinRows = 4;  // that share the spread rows above and below them
  NarrowGroupsBlocking b{};
  b.block_groups = narrow_groups_of_block(p, kernels);
  b.blocks = ceil_div(p.groups, b.block_groups);
  b.span = (p.r - 1) * p.dilation_h + 1;
  const std::int64_t pixel = narrow_groups_pixel_vectors(p, kernels) * kernels.lanes;
  const std::int64_t halo = (p.s - 1) * p.dilation_w + 1 - p.stride_w;
  const std::int64_t cached = l1_bytes() * 3 / 4 / static_cast<std::int64_t>(sizeof(float)) / (pixel * b.span);
  const std::int64_t pixels = std::max<std::int64_t>(kernels.max_pixels, (cached - halo) / p.stride_w);
  const std::int64_t pixel_blocks = ceil_div(p.wo, pixels);
  const std::int64_t row_blocks = ceil_div(units_wanted(threads), p.n * pixel_blocks * b.blocks);
  const std::int64_t rows = std::min(p.ho, std::max(kMinRows, ceil_div(p.ho, row_blocks)));
  b.units = unit_grid(p, 1, rows, pixels);
  b.units.groups = b.blocks;
  b.strip_columns = (b.units.pixels - 1) * p.stride_w + (p.s - 1) * p.dilation_w + 1;
  b.strip_row = b.strip_columns * pixel;
  return b;
}

NarrowGroupsPlan::NarrowGroupsPlan(const Conv2dProblem& problem, const NarrowGroupsKernels& kernels,
                                   const Target& target, int threads)
    : problem_(checked("narrow_groups", problem, target, threads)),
      target_(&target),
      kernels_(&kernels),
      threads_(threads),
      blocking_(narrow_groups_blocking(problem, *kernels_, threads)),
      workspace_(static_cast<std::size_t>(blocking_.blocks * block_bias() + threads * thread_floats()),
                 static_cast<std::size_t>(blocking_.blocks * block_bias())) {
  if (kernels_->quads) return;
  for (std::int64_t i = 0; i < steps(); ++i) {
    for (std::int64_t lane = 0; lane < kernels_->lanes; ++lane) {
      const std::int64_t group = std::min(lane / problem_.group_k(), blocking_.block_groups - 1);
      source_.push_back(static_cast<std::int32_t>(group * steps() + i));
    }
  }
}

std::size_t NarrowGroupsPlan::packed_bytes() const {
  return static_cast<std::size_t>(blocking_.blocks * block_weights()) * sizeof(float);
}

Packing NarrowGroupsPlan::packing() const {
  const bool quads = kernels_->quads;
  const char* const order = kernels_->pairs ? (quads ? "narrow_groups_bf16_dot_quads" : "narrow_groups_bf16_dot")
                            : quads         ? "narrow_groups_quads"
                                            : "narrow_groups";
  return packing_of(problem_, order, {kernels_->lanes});
}

void NarrowGroupsPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  const Conv2dProblem& p = problem_;
  auto* floats = static_cast<float*>(packed);
  if (kernels_->quads) return pack_quads(weights, strides, floats);
  auto* halves = static_cast<std::uint16_t*>(packed);
  const std::int64_t channels = kernels_->pairs ? 2 : 1;  // of an element
  for (std::int64_t first = 0; first < p.groups; first += blocking_.block_groups) {
    const std::int64_t valid = std::min(blocking_.block_groups, p.groups - first) * p.group_k();
    for (std::int64_t tap = 0; tap < p.r * p.s; ++tap) {
      for (std::int64_t in = 0; in < p.group_c(); in += channels) {
        const std::int64_t source =
            first * p.group_k() * strides.out + in * strides.in + tap / p.s * strides.row + tap % p.s * strides.column;
        for (std::int64_t lane = 0; lane < kernels_->lanes; ++lane) {
          const std::int64_t at = source + lane * strides.out;
          if (!kernels_->pairs) {
            *floats++ = lane < valid ? element_as_f32(weights, p.dtype, at) : 0.0f;
            continue;
          }
          const auto* bf16 = static_cast<const std::uint16_t*>(weights);
          *halves++ = lane < valid ? bf16[at] : std::uint16_t{0};
          *halves++ = lane < valid ? bf16[at + strides.in] : std::uint16_t{0};
        }
      }
    }
  }
}

/// To [block][kh][group][kw][quad of inputs][quad of outputs][output][input]; zeros for the groups that the last block
/// lacks. An input is a channel, or a pair of them.
void NarrowGroupsPlan::pack_quads(const void* weights, const WeightStrides& strides, float* packed) const {
  const Conv2dProblem& p = problem_;
  const std::int64_t channels = kernels_->pairs ? 2 : 1;  // of an input
  const auto pack_lane = [&](std::int64_t group, std::int64_t at) {
    if (group >= p.groups) {
      *packed++ = 0.0f;
    } else if (!kernels_->pairs) {
      *packed++ = element_as_f32(weights, p.dtype, at);
    } else {
      const auto* bf16 = static_cast<const std::uint16_t*>(weights);
      const std::uint16_t pair[2] = {bf16[at], bf16[at + strides.in]};
      std::memcpy(packed++, pair, sizeof pair);
    }
  };
  for (std::int64_t first = 0; first < p.groups; first += blocking_.block_groups) {
    for (std::int64_t kh = 0; kh < p.r; ++kh) {
      for (std::int64_t group = first; group < first + blocking_.block_groups; ++group) {
        for (std::int64_t kw = 0; kw < p.s; ++kw) {
          for (std::int64_t in = 0; in < steps(); in += kQuad) {
            for (std::int64_t out = 0; out < p.group_k(); out += kQuad) {
              const std::int64_t source = (group * p.group_k() + out) * strides.out + in * channels * strides.in +
                                          kh * strides.row + kw * strides.column;
              for (std::int64_t lane = 0; lane < kQuadLanes; ++lane) {
                pack_lane(group, source + lane / kQuad * strides.out + lane % kQuad * channels * strides.in);
              }
            }
          }
        }
      }
    }
  }
}

void NarrowGroupsPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  note_path(Path::narrow_groups, *target_, kernels_->pairs ? PathUnit::bf16_dot : PathUnit::vectors);
  const std::int64_t block_lanes = blocking_.block_groups * problem_.group_k();
  float* padded_bias = workspace_.data();
  for (std::int64_t block = 0; problem_.bias && block < blocking_.blocks; ++block) {
    const std::int64_t first = block * block_lanes, count = std::min(block_lanes, problem_.k - first);
    float* const of_block = padded_bias + block * block_bias();
    if (kernels_->quads) {  // the first of the four lanes that are added to an output
      for (std::int64_t i = 0; i < count; ++i) of_block[i * kQuad] = bias[first + i];
    } else {
      std::copy_n(bias + first, count, of_block);
    }
  }
  float* strips = padded_bias + blocking_.blocks * block_bias();
  const NarrowGroupsRun run{.problem = problem_,
                            .kernels = *kernels_,
                            .blocking = blocking_,
                            .source = kernels_->quads ? nullptr : source_.data(),
                            .x = x,
                            .packed = static_cast<const float*>(packed),
                            .bias = padded_bias,
                            .block_bias = block_bias(),
                            .y = y};
  parallel_units(threads_, blocking_.units.count(), [&](std::int64_t unit, int thread) {
    compute_narrow_groups_unit(run, unit, strips + thread * thread_floats());
  });
}

Conv2dDescription NarrowGroupsPlan::description() const {
  const NarrowGroupsBlocking& b = blocking_;
  Conv2dDescription d;
  d.kernel = kernels_->pairs ? "narrow_groups_bf16_dot" : "narrow_groups";
  d.target = target_->name;
  d.tile = "1x" + text(Tiles(b.units.pixels, kernels_->max_pixels).width(0)) + " pixels x " +
           text(b.block_groups * problem_.group_k()) + " lanes of " + text(b.block_groups) + " groups";
  d.blocking = "strip of " + text(b.span) + " rows x " + text(b.strip_columns) + " columns, unit " +
               text(b.units.rows) + " rows x " + text(b.units.pixels) + " pixels, " + text(b.units.count()) + " units";
  d.fusion = std::string(kernels_->quads ? "input copied" : "input spread over the lanes of its group") +
             ", no pool, bias and activation in registers";
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
