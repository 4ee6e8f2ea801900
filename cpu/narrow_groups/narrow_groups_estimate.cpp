// The time of NarrowGroupsPlan's loops: see estimate.h.
#include <algorithm>

#include "cpu/common/cache.h"
#include "cpu/common/estimate.h"
#include "cpu/narrow_groups/narrow_groups.h"

namespace gable::cpu {
namespace {

// Cycles besides the products.
constexpr double kProduct = 1.1;  // of one whose operand comes from L1
constexpr double kTile = 80;
constexpr double kRun = 8;
constexpr double kSpreadVector = 2.7;
constexpr double kSpreadFurtherVector = 4;  // for each vector of input channels but the first
constexpr double kFarLine = 15;             // of a block's input in an image that L2 does not keep

}  // namespace

double narrow_groups_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  if (!has_estimate(p)) return kNoEstimate;
  const NarrowGroupsKernels& kernels = narrow_groups_kernels(target);
  const NarrowGroupsBlocking b = narrow_groups_blocking(p, kernels, threads);
  const double kernel_rows = kernel_rows_inside(p);
  const auto steps = static_cast<double>(p.group_c());
  const auto tiles = static_cast<double>(b.units.pixel_blocks * ceil_div(b.units.pixels, kernels.max_pixels));
  const double runs = p.dilation_w == 1 ? 1 : static_cast<double>(p.s);
  const double products =
      kProduct * kernel_rows * static_cast<double>(p.wo * p.s) * steps * fma_cycles(target, kernels.lanes);
  const std::int64_t further = ceil_div(b.block_groups * p.group_c(), kernels.lanes) - 1;
  const double spread_vector = kSpreadVector + kSpreadFurtherVector * static_cast<double>(further);
  const std::int64_t unit_rows = std::min(p.h, (b.units.rows - 1) * p.stride_h + b.span);
  const double spread = static_cast<double>(b.units.row_blocks * b.units.pixel_blocks * unit_rows * b.strip_columns) *
                        steps * spread_vector;
  const bool far = p.h * p.w * p.c * static_cast<std::int64_t>(size_of(p.dtype)) > l2_bytes();
  const double lines = far ? static_cast<double>(p.h * p.w * (further + 1)) * kFarLine : 0;
  const double cycles =
      products + spread + lines + tiles * (kernel_rows * runs * kRun + static_cast<double>(p.ho) * kTile) +
      conversion_cycles(p, p.h * p.w, b.block_groups * p.group_c()) + conversion_cycles(p, p.ho * p.wo, kernels.lanes);
  return estimated_seconds(p, cycles * static_cast<double>(p.n * b.blocks), b.units.count(), threads);
}

}  // namespace gable::cpu
