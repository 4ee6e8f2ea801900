// See implicit.h.
#include "cuda/gemm/implicit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gable::cuda {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;

/// Bytes that the tensors take in device memory, each moved once.
double tensor_bytes(const ImplicitGemm& g) {
  const double pixels = static_cast<double>(g.n) * g.h * g.w, outputs = static_cast<double>(g.n) * g.out_h * g.out_w;
  return sizeof(float) * (pixels * g.c + outputs * g.k);
}

/// Blocks in waves, beside device memory: where all fit at once they lie evenly, later ones start where two or three
/// end together. A stage takes as long as the products of all blocks of a multiprocessor, or as a lone one needs, and
/// longer where both are alike. Then the pass over the parts.
double seconds_of(const ImplicitGemm& g, const GemmCandidate& c, int splits, const GemmCosts& costs, int processors) {
  const std::int64_t blocks = ceil_div(g.rows, c.rows) * ceil_div(g.columns, c.columns) * g.groups * splits;
  const double exact = static_cast<double>(blocks) / (processors * c.resident), waves = std::ceil(exact);
  const auto at_once = static_cast<double>(std::min<std::int64_t>(ceil_div(blocks, processors), c.resident));
  const auto stages = static_cast<double>(ceil_div(ceil_div(g.depth, c.depth), splits));
  const Gather gather = gather_of(g, c.depth);
  const double place = gather == Gather::elements ? costs.elements : gather == Gather::chunks ? costs.chunks : 0.0;
  const double outputs = static_cast<double>(c.rows) * c.columns, copies = place * c.rows * c.depth;
  const double products = outputs * c.depth / costs.fma_per_cycle / c.rate + copies;
  const double output = costs.output + (g.columns % 4 == 0 ? 0 : c.single_output);
  const double together = costs.together;
  const double stage =
      std::pow(std::pow(c.stage + copies, together) + std::pow(at_once * products, together), 1 / together);
  const double wave = stages * stage + costs.block + at_once * outputs * output;
  const double cycles = wave * (waves <= 1 ? 1 : exact + costs.last_wave * (waves - exact));
  const double computing = cycles / costs.clock, moving = tensor_bytes(g) / costs.bytes_per_second;
  double seconds = costs.start + std::cbrt(std::pow(computing, 3) + std::pow(moving, 3));
  if (splits > 1) {
    seconds += 4.0 * g.rows * g.groups * g.padded_k * (splits + 1) / costs.part_bytes_per_second + costs.second_start;
  }
  return seconds;
}

}  // namespace

Gather gather_of(const ImplicitGemm& g, int stage_depth) {
  constexpr int kChunk = 4;
  if (g.c % kChunk != 0 || g.group_c % kChunk != 0) return Gather::elements;
  if (g.taps == 1) return Gather::one_tap;
  return g.group_c % stage_depth == 0 ? Gather::stages : Gather::chunks;
}

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

GemmTile choose_tile(const ImplicitGemm& gemm, std::span<const GemmCandidate> candidates, const GemmCosts& costs,
                     const cudaDeviceProp& device, const GemmTileOverrides& overrides) {
  constexpr int kMinDepth = 64;  // of a part
  GemmTile best;
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < static_cast<int>(candidates.size()); ++i) {
    const GemmCandidate& c = candidates[static_cast<std::size_t>(i)];
    if (overrides.candidate >= 0 && overrides.candidate != i) continue;
    if (static_cast<std::size_t>(c.shared_bytes) > device.sharedMemPerBlockOptin) continue;
    for (const int splits : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32}) {
      if (splits > 1 && gemm.depth < splits * kMinDepth) break;
      if (overrides.splits != 0 && overrides.splits != splits) continue;
      const double seconds = seconds_of(gemm, c, splits, costs, device.multiProcessorCount);
      if (seconds >= least) continue;
      least = seconds;
      best = {.rows = c.rows, .columns = c.columns, .splits = splits, .candidate = i, .seconds = seconds};
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

int even_shared_bytes(int resident, int shared_bytes, std::int64_t blocks, int launches, const cudaDeviceProp& device) {
  constexpr std::size_t kGranularity = 128;
  const auto share = static_cast<int>(ceil_div(blocks, device.multiProcessorCount));
  const int most = launches * share <= resident ? launches * share : share;
  if (most >= resident) return shared_bytes;
  // One block more would take more than there is.
  const std::size_t least =
      device.sharedMemPerMultiprocessor / static_cast<std::size_t>(most + 1) - device.reservedSharedMemPerBlock + 1;
  const std::size_t even = (least + kGranularity - 1) / kGranularity * kGranularity;
  return std::max(shared_bytes, static_cast<int>(std::min(even, device.sharedMemPerBlockOptin)));
}

std::string tile_text(const GemmTile& tile) {
  std::string text =
      "tiles of " + std::to_string(tile.rows) + " pixels x " + std::to_string(tile.columns) + " channels";
  if (tile.splits > 1) text += ", the depth in " + std::to_string(tile.splits) + " parts";
  return text;
}

}  // namespace gable::cuda
