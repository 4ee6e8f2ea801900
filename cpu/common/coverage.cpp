// The table behind coverage.h: one flag a (path, target), set and never cleared.
#include "cpu/common/coverage.h"

#include <array>
#include <atomic>
#include <cstddef>

namespace gable::cpu {
namespace {

constexpr std::size_t kPaths = static_cast<std::size_t>(Path::count);
constexpr std::array<std::string_view, kPaths> kPathNames = {
    "conv2d_tile",
    "conv2d_row_pair",
    "conv2d_image_pair",
    "conv2d_depthwise",
    "conv2d_depthwise_row_pair",
    "conv2d_partial_sums",
    "conv2d_direct_input",
    "conv2d_edge_strips",
    "conv2d_trims",
    "conv2d_stream",
    "conv2d_stage_nhwc",
    "conv2d_stage_nchw",
    "conv2d_stage_nchw_lanes",
    "conv2d_store_nhwc",
    "conv2d_store_nchw",
    "depthwise_stride1",
    "depthwise_stride2",
    "depthwise_pairs",
    "depthwise_planes_stride1",
    "depthwise_planes_stride2",
    "few_lanes",
    "few_lanes_pool",
    "few_wide",
    "few_wide_pool",
    "few_stage_split",
    "few_stage_rows",
    "pointwise_in_place",
    "pointwise_staged",
    "pointwise_panels_outside",
    "pointwise_stream",
    "bf16_stage",
    "bf16_fold",
    "bf16_split",
    "bf16_in_place",
    "bf16_in_image",
    "bf16_by_images",
    "bf16_panels_inside",
    "bf16_flat",
    "bf16_rows",
    "bf16_pool",
    "max_pool_nhwc",
    "max_pool_nchw",
    "max_pool_stream",
    "add",
    "add_stream",
    "add_in_tiles",
    "transpose_2byte",
    "transpose_4byte",
    "transpose_stream",
};

std::array<std::array<std::atomic<bool>, kMaxTargets>, kPaths> path_ran;

}  // namespace

void note_path(Path path, const Target& target) {
  std::atomic<bool>& flag = path_ran[static_cast<std::size_t>(path)][static_cast<std::size_t>(target.index)];
  // Reading first keeps the cache line shared between threads once the flag is set.
  if (!flag.load(std::memory_order_relaxed)) flag.store(true, std::memory_order_relaxed);
}

std::vector<PathCoverage> path_coverage() {
  std::vector<PathCoverage> entries;
  for (std::size_t path = 0; path < kPaths; ++path) {
    for (const Target& target : compiled_targets()) {
      const bool ran = path_ran[path][static_cast<std::size_t>(target.index)].load(std::memory_order_relaxed);
      entries.push_back({kPathNames[path], target.name, target.supported, ran});
    }
  }
  return entries;
}

}  // namespace gable::cpu
