// See implicit.h.
#include "cuda/gemm/implicit.h"

#include <algorithm>
#include <limits>

namespace gable::cuda {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;

double occupancy_rate(int warps) { return warps >= 12 ? 1.0 : warps >= 8 ? 0.9 : 0.6; }

double cycles(const ImplicitGemm& g, const GemmCandidate& c, int splits, int stage_depth, double fma_per_cycle,
              int processors) {
  constexpr double kBytesPerCycle = 1200, kSecondLaunch = 4000;
  const std::int64_t blocks = ceil_div(g.rows, c.rows) * ceil_div(g.columns, c.columns) * g.groups * splits;
  const auto share = static_cast<double>(ceil_div(blocks, processors));
  const int resident = static_cast<int>(std::min<double>(share, c.resident));
  const auto depth = static_cast<double>(ceil_div(ceil_div(g.depth, stage_depth), splits) * stage_depth);
  const double work = share * c.rows * c.columns * depth;
  double all = work / fma_per_cycle / c.rate / occupancy_rate(resident * c.warps);
  if (splits > 1) {
    const double bytes = 4.0 * g.rows * g.groups * g.padded_k * (splits + 1);
    all += bytes / kBytesPerCycle + kSecondLaunch;
  }
  return all;
}

}  // namespace

ImplicitGemm implicit_gemm_of(const Conv2dProblem& p, int c_multiple, int k_multiple) {
  const auto i = [](std::int64_t value) { return static_cast<int>(value); };
  ImplicitGemm g(conv_dims(p));
  g.padded_c = i(round_up(p.group_c(), c_multiple));
  g.padded_k = i(round_up(p.group_k(), k_multiple));
  g.groups = i(p.groups);
  g.taps = g.r * g.s;
  g.pooled = !p.pool.none();
  g.rows = i(p.n * p.out_h() * p.out_w() * (g.pooled ? 4 : 1));
  g.columns = g.group_k;
  g.depth = g.taps * g.padded_c;
  g.line = p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && p.pad_top == 0 && p.pad_left == 0 &&
           p.ho == p.h && p.wo == p.w && !g.pooled;
  g.bias = p.bias;
  g.activation = p.activation;
  return g;
}

std::string implicit_refusal(const Conv2dProblem& p) {
  const std::int64_t weights = p.groups * round_up(p.group_k(), 8) * round_up(p.group_c(), 8) * p.r * p.s;
  // Offsets are computed for padding pixels too, which lie outside x.
  const std::int64_t reach =
      p.n * (p.h + p.pad_top + p.r * p.dilation_h) * (p.w + p.pad_left + p.s * p.dilation_w) * p.c;
  if (std::max({reach, p.conv_elements(), weights}) >= kMaxElements) {
    return "a tensor has 2^31 elements or more; its indices have 32 bits";
  }
  constexpr std::int64_t kMaxGroups = 65535 / 16;  // a grid's y holds groups and parts of the depth
  if (p.groups > kMaxGroups) {
    return std::to_string(p.groups) + " groups; it takes at most " + std::to_string(kMaxGroups);
  }
  return "";
}

GemmTile choose_tile(const ImplicitGemm& gemm, std::span<const GemmCandidate> candidates, int stage_depth,
                     double fma_per_cycle, const cudaDeviceProp& device) {
  constexpr int kMaxSplits = 16, kMinStages = 4;
  GemmTile best;
  double least = std::numeric_limits<double>::max();
  for (const GemmCandidate& c : candidates) {
    if (static_cast<std::size_t>(c.shared_bytes) > device.sharedMemPerBlockOptin) continue;
    for (int splits = 1; splits <= kMaxSplits; ++splits) {
      if (splits > 1 && gemm.depth < splits * kMinStages * stage_depth) break;
      const double estimate = cycles(gemm, c, splits, stage_depth, fma_per_cycle, device.multiProcessorCount);
      if (estimate >= least) continue;
      least = estimate;
      best = {.rows = c.rows, .columns = c.columns, .splits = splits, .cycles = estimate};
    }
  }
  return best;
}

std::size_t parts_bytes(const ImplicitGemm& gemm, int splits) {
  if (splits == 1) return 0;
  return sizeof(float) * static_cast<std::size_t>(splits) * static_cast<std::size_t>(gemm.rows) *
         static_cast<std::size_t>(gemm.groups) * static_cast<std::size_t>(gemm.padded_k);
}

GemmGrid grid_of(const ImplicitGemm& gemm, const GemmTile& tile) {
  return {.x = static_cast<unsigned>(ceil_div(gemm.columns, tile.columns) * ceil_div(gemm.rows, tile.rows)),
          .y = static_cast<unsigned>(gemm.groups * tile.splits)};
}

std::string tile_text(const GemmTile& tile) {
  std::string text =
      "tiles of " + std::to_string(tile.rows) + " pixels x " + std::to_string(tile.columns) + " channels";
  if (tile.splits > 1) text += ", the depth in " + std::to_string(tile.splits) + " parts";
  return text;
}

}  // namespace gable::cuda
