// The time of Conv2dPlan's loops: see estimate.h.
#include <algorithm>

#include "cpu/common/cache.h"
#include "cpu/common/core.h"
#include "cpu/common/estimate.h"
#include "cpu/direct/conv2d.h"

namespace gable::cpu {
namespace {

// Cycles besides the products.
constexpr double kUnit = 260;  // of work
constexpr double kTile = 98;
constexpr double kStoredVector = 1.3;
constexpr double kRun = 6.6;
constexpr double kRaggedRun = 40;            // more, of a single tap whose last run is shorter
constexpr double kStagedRun = 5.5;           // more, of 16 bits
constexpr double kPaddingTap = 5;            // that skips a tile's pixels
constexpr double kHalfVectorProduct = 1.25;  // times the products of a whole vector of as many lanes
constexpr double kVectorWeights = 1.2;       // times the weights of a matrix by a vector, on Xeons with AMX
constexpr double kAliasedProduct = 1.08;     // times that of a single tap whose pixels share a set of L1, beside AMX
constexpr double kFarGroupPixel = 2;         // of a group's output, in tensors that L2 does not keep
constexpr ConversionCost kStaged{3.5, 1.3}, kStored{13, 8.5};
constexpr ConversionCost kStagedWhole{3.5, 6};  // on cores that do not halve vectors
// Windows in NCHW, fitted on twelve threads of a Xeon with AMX.
constexpr double kNchwProduct = 1.81;  // times fma_cycles()
constexpr double kNchwTile = 247;
constexpr double kNchwStagedVector = 21;  // of 16 pixels
constexpr double kNchwOutputs = 40;       // 16 of them
constexpr double kNchwUnit = 2011;
constexpr double kNchwStart = 1.1e-6;  // seconds, besides a parallel region's

/// Runs of consecutive input lanes in one kernel row.
double runs_of_row(const Conv2dBlocking& b) {
  const Conv2dProblem& p = b.problem;
  if (p.dilation_w == 1 && p.groups == 1 && b.channels.in_lanes == p.c) return 1;
  return static_cast<double>(p.s * ceil_div(p.group_c(), b.channels.in_lanes));
}

/// Cycles of a run besides its products.
double run_cycles(const Conv2dBlocking& b) {
  const Conv2dProblem& p = b.problem;
  const bool ragged = p.r * p.s == 1 && p.group_c() > b.channels.in_lanes && p.group_c() % b.channels.in_lanes != 0;
  return kRun + (p.dtype == DType::f32 ? 0 : kStagedRun) + (ragged ? kRaggedRun : 0);
}

/// Taps that read padding at either end of a row, in tiles that skip the pixels there.
double padding_taps_of_row(const Conv2dBlocking& b) {
  if (!b.input.skips_padding) return 0;
  const WindowAxis columns = column_axis(b.problem);
  const std::int64_t left = columns.inside(0).begin;
  const std::int64_t right = columns.taps - columns.inside(columns.outputs - 1).end;
  return static_cast<double>((left + right) * ceil_div(b.problem.group_c(), b.channels.in_lanes));
}

bool l2_keeps_tensors(const Conv2dProblem& p) {
  return (p.x_elements() + p.y_elements()) * static_cast<std::int64_t>(size_of(p.dtype)) <= l2_bytes();
}

/// Panels of a group with the same number of lanes.
struct Panels {
  double count, vectors;  // vectors of one panel
  double product;         // cycles of a product with one of these vectors
};

/// Calls `add` with the panels of a group, once for each number of lanes.
template <typename Add>
void for_panels(const Conv2dProblem& p, const Conv2dKernels& kernels, const Target& target, const Add& add) {
  std::int64_t lanes = 0, panels = 0;
  for (std::int64_t lane = 0; lane < p.group_k(); lane += panels * lanes) {
    lanes = tile_panel_lanes(kernels, p.group_k() - lane);
    panels = std::max<std::int64_t>(1, (p.group_k() - lane) / lanes);  // of as many lanes
    add(Panels{static_cast<double>(panels), static_cast<double>(std::max<std::int64_t>(1, lanes / kernels.lanes)),
               fma_cycles(target, std::min<std::int64_t>(lanes, kernels.lanes)) *
                   (lanes < kernels.lanes ? kHalfVectorProduct : 1)});
  }
}

/// Whether a tile of a single tap reads pixels a multiple of 4 KiB apart in the image.
bool reads_aliased_pixels(const Conv2dBlocking& b) {
  const Conv2dProblem& p = b.problem;
  return b.input.never_staged && p.r * p.s == 1 && p.wo > 1 && shares_a_set(p.stride_w, p.c, sizeof(float));
}

double rows_of_tile(const Conv2dBlocking& b) { return b.tile.two_rows || b.tile.image_pair ? 2 : 1; }

double tiles_of_row(const Conv2dBlocking& b) {
  return static_cast<double>(b.units.pixel_blocks * ceil_div(b.units.pixels, b.tile.pixels)) / rows_of_tile(b);
}

/// Windows in NCHW on several threads: each unit stages the parts of the planes that it reads.
double nchw_windows_seconds(const Conv2dProblem& problem, const Target& target, int threads) {
  const Conv2dKernels& kernels = conv2d_kernels(target);
  const Conv2dBlocking b = choose_blocking(problem, kernels, threads);
  const Conv2dProblem& p = b.problem;
  const double tiles = tiles_of_row(b), weights = weights_cycles(p), kernel_rows = kernel_rows_inside(p);
  const auto rows = static_cast<double>(p.ho), pixels = static_cast<double>(p.wo);
  const auto steps = static_cast<double>(p.s * p.group_c());
  double cycles = 0;
  for_panels(p, kernels, target, [&](const Panels& panels) {
    const double products = kernel_rows * steps * panels.vectors * std::max(pixels * panels.product, tiles * weights);
    cycles += panels.count * (products * kNchwProduct + rows * tiles * kNchwTile);
  });
  const std::int64_t units = b.units.count();
  const std::int64_t unit_rows = std::min(p.h, (b.units.rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1);
  const std::int64_t unit_columns = std::min(p.w, (b.units.pixels - 1) * p.stride_w + (p.s - 1) * p.dilation_w + 1);
  const std::int64_t staged = b.units.images * unit_rows * p.group_c() * ceil_div(unit_columns, std::int64_t{16});
  cycles = cycles * static_cast<double>(p.n * p.groups) + static_cast<double>(p.y_elements()) / 16 * kNchwOutputs +
           static_cast<double>(units) * (static_cast<double>(staged) * kNchwStagedVector + kNchwUnit);
  return estimated_seconds(problem, cycles, units, threads) + kNchwStart;
}

}  // namespace

double conv2d_seconds(const Conv2dProblem& problem, const Target& target, int threads) {
  const Conv2dKernels& kernels = conv2d_kernels(target);
  const bool window = problem.r * problem.s > 1 && problem.pool.none();
  if (!problem.nhwc && threads > 1 && window && core_kind(kernels.lanes) == CoreKind::amx)
    return nchw_windows_seconds(problem, target, threads);
  if (!has_estimate(problem)) return kNoEstimate;
  const Conv2dBlocking b = choose_blocking(problem, kernels, threads);
  const Conv2dProblem& p = b.problem;
  const double kernel_rows = kernel_rows_inside(p);
  const auto rows = static_cast<double>(p.ho), pixels = static_cast<double>(p.wo);
  const double tiles = tiles_of_row(b);
  const double runs = tiles * runs_of_row(b) * run_cycles(b) + padding_taps_of_row(b) / rows_of_tile(b) * kPaddingTap;
  const auto steps = static_cast<double>(p.s * p.group_c());
  double cycles = p.groups > 1 && b.unit_groups == 1 && !l2_keeps_tensors(p) ? rows * pixels * kFarGroupPixel : 0;
  const bool vector = p.n * p.h * p.w == 1 && core_kind(kernels.lanes) == CoreKind::amx;
  const double weights = weights_cycles(p) * (vector ? kVectorWeights : 1);
  const double aliased = reads_aliased_pixels(b) && core_kind(kernels.lanes) == CoreKind::amx ? kAliasedProduct : 1;
  for_panels(p, kernels, target, [&](const Panels& panels) {
    const double products = panels.vectors * std::max(pixels * panels.product * aliased, tiles * weights);
    cycles += panels.count * (kernel_rows * (steps * products + runs) +
                              rows * (tiles * kTile + pixels * panels.vectors * kStoredVector));
  });
  // 16 bits are staged once for 128 output channels of a group, and stored by way of a strip.
  const ConversionCost staged = core_kind(kernels.lanes) == CoreKind::whole_512 ? kStagedWhole : kStaged;
  cycles += conversion_cycles(p, ceil_div(p.group_k(), kPartitionLanes) * p.h * p.w, p.group_c(), staged) +
            conversion_cycles(p, p.ho * p.wo, p.group_k(), kStored);
  const std::int64_t units = b.units.count();
  return estimated_seconds(problem, cycles * static_cast<double>(p.n * p.groups) + static_cast<double>(units) * kUnit,
                           units, threads);
}

}  // namespace gable::cpu
