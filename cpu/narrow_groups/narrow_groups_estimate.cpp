// The time of NarrowGroupsPlan's loops: see estimate.h.
#include <algorithm>

#include "cpu/bf16/unit.h"
#include "cpu/common/cache.h"
#include "cpu/common/core.h"
#include "cpu/common/estimate.h"
#include "cpu/narrow_groups/narrow_groups.h"

namespace gable::cpu {
namespace {

// Cycles besides the products.
constexpr double kProduct = 1.2;                // of one whose operand comes from L1
constexpr double kFarProduct = 2.1 / kProduct;  // times as many of one whose operand comes from L2
constexpr double kUnit = 70;
constexpr double kTile = 76, kTileOfPairs = 45;
constexpr double kStoredVector = 3, kStoredVectorOfPairs = 1.5;
constexpr double kFarVector = 3;  // that is stored for an image that L2 does not keep
constexpr double kSpreadRow = 40;
constexpr double kSpreadPixel = 4;
constexpr double kSpreadVector = 1.2;
constexpr double kSpreadFurtherVector = 5.3;  // for each vector of input channels but the first
constexpr ConversionCost kStored{0, 4};
// Times the sum of the above, in f32 arithmetic on cores that do not halve vectors, where groups fill whole vectors and
// L1 keeps the strip.
constexpr double kWholeVectors = 0.78;
// Quads, fitted on Zen 5 and on a Xeon with AMX. Tiles and taps are counted for each group.
constexpr double kQuadsProduct = 0.72;  // times fma_cycles()
constexpr double kQuadsTap = 8;         // of a tile
constexpr double kQuadsTile = 43;
constexpr double kQuadsOutputs = 2;   // 8 outputs
constexpr double kFarOutputs = 3;     // more for an image that L2 does not keep
constexpr double kQuadsCopied = 5.2;  // a vector of a pixel, into the strip

// Quads of pairs, fitted on a Zen 5 (deviation 0.07, also on layers that were not fitted), over bf16_dot's products. A
// tile's steps are counted for each group.
constexpr double kPairQuadsProduct = 0.87;  // of two vectors
constexpr double kPairQuadsRun = 1.5, kPairQuadsStep = 2.3, kPairQuadsTile = 19;
constexpr double kPairQuadsOutputs = 2.5, kFarPairOutputs = 1.1;  // 8 outputs, and more if L2 does not keep the image
constexpr double kPairQuadsCopied = 5.4, kPairQuadsUnit = 240;
constexpr double kZen5Position = 20;  // UnitCosts::position of bf16_dot there

double rows_of_unit(const Conv2dProblem& p, const NarrowGroupsBlocking& b) {
  return static_cast<double>(std::min({p.h, (b.units.rows - 1) * p.stride_h + b.span, b.units.rows * p.r}));
}

bool l2_keeps_image(const Conv2dProblem& p) {
  return p.h * p.w * p.c * static_cast<std::int64_t>(size_of(p.dtype)) <= l2_bytes();
}

double seconds_of_quads(const Conv2dProblem& p, const Target& target, const NarrowGroupsKernels& kernels, int threads) {
  const NarrowGroupsBlocking b = narrow_groups_blocking(p, kernels, threads);
  const auto pixels = static_cast<double>(p.wo), groups = static_cast<double>(b.block_groups);
  const auto tiles = static_cast<double>(b.units.pixel_blocks * ceil_div(b.units.pixels, kernels.max_pixels));
  const double taps = kernel_rows_inside(p) * static_cast<double>(p.s);
  const double products = taps * pixels * static_cast<double>(narrow_groups_steps(p, kernels));
  const double outputs = pixels * groups * static_cast<double>(p.group_k()) / 8;
  const double copied = static_cast<double>(b.units.row_blocks * b.units.pixel_blocks) * rows_of_unit(p, b) *
                        static_cast<double>(b.strip_columns * narrow_groups_pixel_vectors(p, kernels));
  const double cycles =
      products * kQuadsProduct * fma_cycles(target, kernels.lanes) + taps * tiles * groups * kQuadsTap +
      copied * kQuadsCopied +
      static_cast<double>(p.ho) *
          (tiles * groups * kQuadsTile + outputs * (kQuadsOutputs + (l2_keeps_image(p) ? 0 : kFarOutputs))) +
      conversion_cycles(p, p.ho * p.wo, kernels.lanes, kStored);
  const std::int64_t units = b.units.count();
  return estimated_seconds(p, cycles * static_cast<double>(p.n * b.blocks) + static_cast<double>(units) * kUnit, units,
                           threads);
}

double seconds_of_pair_quads(const Conv2dProblem& p, const NarrowGroupsKernels& kernels, int threads) {
  const NarrowGroupsBlocking b = narrow_groups_blocking(p, kernels, threads);
  const auto pixels = static_cast<double>(p.wo), groups = static_cast<double>(p.groups);
  const auto tiles = static_cast<double>(b.units.pixel_blocks * ceil_div(b.units.pixels, kernels.max_pixels));
  const auto quads = static_cast<double>(narrow_groups_steps(p, kernels) / kQuad);
  const double taps = kernel_rows_inside(p) * static_cast<double>(p.s);
  const double vectors = static_cast<double>(p.group_k()) / kQuad;
  const double product = kPairQuadsProduct * bf16_dot_unit().costs.position / kZen5Position;
  const double products = taps * groups * quads * pixels * vectors / 2 * product;
  const double steps = taps * tiles * groups * (kPairQuadsRun + quads * kPairQuadsStep);
  const double stored = pixels * vectors / 2 * (kPairQuadsOutputs + (l2_keeps_image(p) ? 0 : kFarPairOutputs));
  const double finished = static_cast<double>(p.ho) * groups * (tiles * kPairQuadsTile + stored);
  const double copied = static_cast<double>(b.blocks * b.units.row_blocks * b.units.pixel_blocks) * rows_of_unit(p, b) *
                        static_cast<double>(b.strip_columns * narrow_groups_pixel_vectors(p, kernels));
  const std::int64_t units = b.units.count();
  const double cycles = products + steps + finished + copied * kPairQuadsCopied;
  return estimated_seconds(p, cycles * static_cast<double>(p.n) + static_cast<double>(units) * kPairQuadsUnit, units,
                           threads);
}

/// `product`: cycles of one, whose operand comes from L1.
double seconds_of(const Conv2dProblem& p, const NarrowGroupsKernels& kernels, double product, int threads) {
  const NarrowGroupsBlocking b = narrow_groups_blocking(p, kernels, threads);
  const auto steps = static_cast<double>(narrow_groups_steps(p, kernels));
  const auto rows = static_cast<double>(p.ho), pixels = static_cast<double>(p.wo);
  const auto tiles = static_cast<double>(b.units.pixel_blocks * ceil_div(b.units.pixels, kernels.max_pixels));
  const bool l1_keeps_strip = b.span * b.strip_row * static_cast<std::int64_t>(sizeof(float)) <= l1_bytes();
  const double products =
      product * (l1_keeps_strip ? 1 : kFarProduct) * kernel_rows_inside(p) * static_cast<double>(p.wo * p.s) * steps;
  const std::int64_t further = ceil_div(b.block_groups * narrow_groups_steps(p, kernels), kernels.lanes) - 1;
  const double spread_pixel =
      kSpreadPixel + steps * (kSpreadVector + kSpreadFurtherVector * static_cast<double>(further));
  const double spread = static_cast<double>(b.units.row_blocks * b.units.pixel_blocks) * rows_of_unit(p, b) *
                        (kSpreadRow + static_cast<double>(b.strip_columns) * spread_pixel);
  const double tile = kernels.pairs ? kTileOfPairs : kTile;
  const double vector = kernels.pairs ? kStoredVectorOfPairs : kStoredVector;
  const double stored = tiles * tile + pixels * (vector + (l2_keeps_image(p) ? 0 : kFarVector));
  const double converted = kernels.pairs ? 0 : conversion_cycles(p, p.ho * p.wo, kernels.lanes, kStored);
  const bool fills = b.block_groups * narrow_groups_steps(p, kernels) == kernels.lanes;
  const bool whole = !kernels.pairs && fills && l1_keeps_strip && core_kind(kernels.lanes) == CoreKind::whole_512;
  const double cycles = (products + spread + rows * stored) * (whole ? kWholeVectors : 1) + converted;
  const std::int64_t units = b.units.count();
  return estimated_seconds(p, cycles * static_cast<double>(p.n * b.blocks) + static_cast<double>(units) * kUnit, units,
                           threads);
}

}  // namespace

double narrow_groups_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  if (!has_estimate(p)) return kNoEstimate;
  const NarrowGroupsKernels& kernels = narrow_groups_kernels(target, p);
  if (kernels.quads) return seconds_of_quads(p, target, kernels, threads);
  return seconds_of(p, kernels, kProduct * fma_cycles(target, kernels.lanes), threads);
}

double narrow_groups_dot_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  if (!has_estimate(p)) return kNoEstimate;
  const NarrowGroupsKernels& kernels = narrow_groups_dot_kernels(target, p);
  if (kernels.quads) return seconds_of_pair_quads(p, kernels, threads);
  // A position's 32 channels and lanes are 32 products of a vector.
  return seconds_of(p, kernels, bf16_dot_unit().costs.position / 32, threads);
}

}  // namespace gable::cpu
