// The table behind coverage.h: one flag for each (path, target, unit), set and never cleared.
#include "cpu/common/coverage.h"

#include <array>
#include <atomic>
#include <cstddef>

#include "cpu/common/cache.h"

namespace gable::cpu {
namespace {

constexpr std::size_t kPaths = static_cast<std::size_t>(Path::count);
constexpr std::array<std::string_view, kPaths> kPathNames = {
    "conv2d_tile",
    "conv2d_row_pair",
    "conv2d_image_pair",
    "conv2d_two_rows",
    "conv2d_partial_sums",
    "conv2d_weights_ahead",
    "conv2d_groups_together",
    "conv2d_near_pixels",
    "conv2d_output_ahead",
    "conv2d_direct_input",
    "conv2d_edge_strips",
    "conv2d_trims",
    "conv2d_trims_several",
    "conv2d_non_temporal",
    "conv2d_stage_nhwc",
    "conv2d_stage_nchw",
    "conv2d_store_nhwc",
    "conv2d_store_nchw",
    "depthwise_in_place",
    "depthwise_widened",
    "depthwise_copied",
    "depthwise_reaching",
    "depthwise_columns",
    "depthwise_multiplied",
    "depthwise_non_temporal",
    "depthwise_row_tiles",
    "depthwise_pairs",
    "depthwise_planes_scaled",
    "depthwise_planes_in_place",
    "depthwise_planes_staged",
    "depthwise_planes_direct",
    "depthwise_planes_rows",
    "depthwise_planes_transposed",
    "depthwise_planes_folded",
    "depthwise_staged_tile",
    "depthwise_staged_row_pair",
    "depthwise_staged_in_place",
    "depthwise_staged_edge_strips",
    "depthwise_staged_non_temporal",
    "depthwise_staged_nhwc",
    "depthwise_staged_nchw",
    "depthwise_staged_store",
    "few_channel_lanes",
    "few_channel_lanes_pool",
    "few_pixel_lanes",
    "few_pixel_lanes_pool",
    "few_stage_split",
    "few_stage_rows",
    "few_in_place",
    "few_outputs",
    "pointwise_in_place",
    "pointwise_narrow",
    "pointwise_runs_of_panels",
    "pointwise_held_weights",
    "pointwise_staged",
    "pointwise_panels_outside",
    "pointwise_non_temporal",
    "planes_in_place",
    "planes_staged",
    "planes_rows",
    "planes_by_lanes",
    "planes_pool",
    "planes_non_temporal",
    "narrow_groups",
    "widened_pointwise",
    "bf16_stage",
    "bf16_fold",
    "bf16_gather",
    "bf16_gather_rows",
    "bf16_split",
    "bf16_in_place",
    "bf16_in_image",
    "bf16_in_rows",
    "bf16_by_images",
    "bf16_panels",
    "bf16_held_weights",
    "bf16_streamed_weights",
    "bf16_panels_inside",
    "bf16_flat",
    "bf16_rows",
    "bf16_narrow_halves",
    "bf16_row_halves",
    "bf16_column_halves",
    "bf16_masked_border",
    "bf16_border_in_parts",
    "bf16_pool",
    "bf16_planes",
    "bf16_planes_split",
    "bf16_non_temporal",
    "max_pool_nhwc",
    "max_pool_nchw",
    "max_pool_non_temporal",
    "add",
    "add_non_temporal",
    "add_in_tiles",
    "activate",
    "activate_non_temporal",
    "concat_rows",
    "concat_pieces",
    "upsample_elements",
    "upsample_pixels",
    "multiply_elements",
    "multiply_channels",
    "multiply_planes",
    "bilinear_pixels",
    "bilinear_planes",
    "softmax_rows",
    "softmax_columns",
    "transpose_2byte",
    "transpose_4byte",
    "transpose_non_temporal",
};

constexpr std::size_t kUnits = static_cast<std::size_t>(PathUnit::count);
constexpr std::array<std::string_view, kUnits> kUnitNames = {"vectors", "amx", "bf16_dot", "emulated"};

constexpr bool is_bf16(Path path) { return path >= Path::bf16_stage && path <= Path::bf16_non_temporal; }

/// Paths of units that take one half at a time.
constexpr bool needs_single_halves(Path path) {
  return path == Path::bf16_in_rows || (path >= Path::bf16_narrow_halves && path <= Path::bf16_border_in_parts);
}

/// AMX takes all paths of bf16 kernels but those of single halves. AVX512-BF16 makes one product a term, and reads
/// neither images region by region nor sixteen at a time.
constexpr bool takes(PathUnit unit, Path path) {
  if (path == Path::narrow_groups || path == Path::few_outputs || needs_single_halves(path)) {
    return unit == PathUnit::bf16_dot;
  }
  if (!is_bf16(path)) return false;
  return unit == PathUnit::amx ||
         (path != Path::bf16_split && path != Path::bf16_panels && path != Path::bf16_held_weights &&
          path != Path::bf16_streamed_weights && path != Path::bf16_gather && path != Path::bf16_gather_rows &&
          path != Path::bf16_planes_split && path != Path::bf16_in_image && path != Path::bf16_by_images);
}

/// Targets with vectors of one lane have no narrow groups, and no vectors that reach into the next pixels or hold
/// several. Depthwise row tiles need more registers than some targets have.
bool exists_on(Path path, const Target& target) {
  const bool vectors = path == Path::narrow_groups || path == Path::depthwise_row_tiles ||
                       path == Path::depthwise_reaching || path == Path::depthwise_planes_folded;
  return !vectors || target.name != "scalar";
}
/// Paths that need vectors of a whole cache line: depthwise's non-temporal stores, and paths for which other targets
/// have too few registers.
bool needs_lines(Path path) {
  return path == Path::depthwise_non_temporal || path == Path::depthwise_pairs ||
         path == Path::pointwise_held_weights || path == Path::conv2d_near_pixels;
}

/// Copies, which the C++ library makes: compiled for no target, and noted on the best one.
constexpr bool copies(Path path) {
  return path == Path::concat_rows || path == Path::concat_pieces || path == Path::upsample_elements ||
         path == Path::upsample_pixels;
}

std::array<std::array<std::array<std::atomic<bool>, kUnits>, kMaxTargets>, kPaths> path_ran;

std::atomic<bool>& flag_of(Path path, const Target& target, PathUnit unit) {
  return path_ran[static_cast<std::size_t>(path)][static_cast<std::size_t>(target.index)]
                 [static_cast<std::size_t>(unit)];
}

PathCoverage entry_of(Path path, const Target& target, PathUnit unit) {
  return {kPathNames[static_cast<std::size_t>(path)], target.name, unit, target.supported,
          flag_of(path, target, unit).load(std::memory_order_relaxed)};
}

}  // namespace

std::string_view name_of(PathUnit unit) { return kUnitNames[static_cast<std::size_t>(unit)]; }

void note_path(Path path, const Target& target, PathUnit unit) {
  std::atomic<bool>& flag = flag_of(path, target, unit);
  // Reading first keeps the cache line shared between threads once the flag is set.
  if (!flag.load(std::memory_order_relaxed)) flag.store(true, std::memory_order_relaxed);
}

std::vector<PathCoverage> path_coverage() {
  std::vector<PathCoverage> entries;
  for (std::size_t i = 0; i < kPaths; ++i) {
    const Path path = static_cast<Path>(i);
    for (const Target& target : compiled_targets()) {
      if (!exists_on(path, target)) continue;
      if (needs_lines(path) && target.name != "avx512") continue;
      if (copies(path) && &target != &best_target()) continue;
      const bool many_registers = target.name == "avx512" || target.name == "neon";
      if (path == Path::pointwise_runs_of_panels && many_registers) continue;  // a tile has both of a panel's vectors
      if (path == Path::depthwise_copied && !l1_has_few_ways()) continue;
      if (needs_single_halves(path)) continue;  // the tests emulate tiles, which have none
      entries.push_back(entry_of(path, target, is_bf16(path) ? PathUnit::emulated : PathUnit::vectors));
    }
    for (const PathUnit unit : {PathUnit::amx, PathUnit::bf16_dot}) {
      if (takes(unit, path)) entries.push_back(entry_of(path, best_target(), unit));
    }
  }
  return entries;
}

}  // namespace gable::cpu
