// The table behind coverage.h: one flag a path, set and never cleared.
#include "cuda/common/coverage.h"

#include <array>
#include <atomic>
#include <cstddef>

namespace gable::cuda {
namespace {

constexpr std::size_t kPaths = static_cast<std::size_t>(Path::count);
constexpr std::array kPathNames = std::to_array<std::string_view>({
    "naive",
    "constant",
    "shared",
    "double_buffer",
    "register_tile_128x256",
    "register_tile_128x128",
    "register_tile_128x64",
    "register_tile_64x128",
    "register_tile_64x128_halves",
    "register_tile_64x64",
    "register_tile_halves",
    "register_tile_quarters",
    "register_tile_stages",
    "register_tile_one_tap",
    "register_tile_chunks",
    "register_tile_elements",
    "register_tile_split",
    "implicit_gemm_128x128",
    "implicit_gemm_128x64",
    "implicit_gemm_128x32",
    "implicit_gemm_64x64",
    "implicit_gemm_64x32",
    "implicit_gemm_32x32",
    "implicit_gemm_pixels_of_singles",
    "implicit_gemm_pixels_of_pairs",
    "implicit_gemm_pixels_of_halves",
    "implicit_gemm_copies_16",
    "implicit_gemm_copies_8",
    "implicit_gemm_copies_4",
    "implicit_gemm_copies_2",
    "implicit_gemm_stores_16",
    "implicit_gemm_stores_narrow",
    "implicit_gemm_cluster",
    "implicit_gemm_split",
    "grouped_8_channels",
    "grouped_4_channels",
    "grouped_three_wide",
    "grouped_taps",
    "grouped_vectors",
    "grouped_elements",
    "grouped_mma_64_pixels",
    "grouped_mma_32_pixels",
    "grouped_mma_f16",
    "grouped_mma_bf16",
    "grouped_mma_tf32",
    "grouped_mma_tf32_halves",
    "groups_as_one",
    "few_channels_6x4_5",
    "few_channels_8x6_5",
    "few_channels_4x6_5",
    "few_channels_8x4_7_stride2",
    "few_channels_8x4_3",
    "few_channels_8x4_3_stride2",
    "few_channels_any",
    "few_channels_mma_64_channels",
    "few_channels_mma_32_channels",
    "few_channels_mma_16_channels",
    "few_channels_mma_pairs",
    "few_channels_mma_pixels",
    "few_channels_mma_stores_planes",
    "few_channels_mma_stores_8",
    "few_channels_mma_stores_4",
    "few_channels_mma_stores_2",
    "few_channels_mma_stores_1",
    "one_channel_5x5",
    "one_channel_3x3",
    "one_channel_margins",
    "one_channel_flat",
    "depthwise_3_stride1",
    "depthwise_3_stride2",
    "depthwise_5_stride1",
    "depthwise_5_stride1_wide",
    "depthwise_5_stride2",
    "depthwise_7_stride1",
    "depthwise_7_stride1_wide",
    "depthwise_7_stride2",
    "depthwise_planes_3_stride1",
    "depthwise_planes_3_stride2",
    "depthwise_planes_5_stride1",
    "depthwise_planes_5_stride2",
    "depthwise_planes_7_stride1",
    "depthwise_planes_7_stride2",
    "depthwise_planes_whole",
    "depthwise_planes_rows",
    "depthwise_any_slides",
    "depthwise_any_turned_slides",
    "depthwise_any_turned",
    "depthwise_any",
    "depthwise_any_whole",
    "depthwise_any_half",
    "depthwise_any_pairs",
    "depthwise_any_fours",
    "depthwise_any_elements",
    "few_pixels_1",
    "few_pixels_2",
    "few_pixels_4",
    "few_pixels_8",
    "few_pixels_vectors",
    "few_pixels_pieces",
    "pointwise_8_channels",
    "pointwise_16_channels",
    "pointwise_32_channels",
    "pointwise_64_channels",
    "pointwise_narrow_loads",
    "pointwise_narrow_stores",
    "pointwise_strided",
    "pointwise_planes_128x128",
    "pointwise_planes_128x128_wide",
    "pointwise_planes_128x64",
    "pointwise_planes_64x128",
    "pointwise_planes_64x64",
    "pointwise_planes_32x128",
    "pointwise_planes_32x64",
    "pointwise_planes_32x32",
    "pointwise_planes_8_pixels",
    "pointwise_planes_4_pixels",
    "pointwise_planes_2_pixels",
    "pointwise_planes_elements",
    "pointwise_planes_cluster",
    "pointwise_planes_tf32",
    "pointwise_planes_groups",
    "pointwise_planes_bundles",
    "wgmma_f16",
    "wgmma_bf16",
    "wgmma_tf32",
    "wgmma_parts",
    "wgmma_promoted",
    "wgmma_256_pixels",
    "wgmma_224_pixels",
    "wgmma_192_pixels",
    "wgmma_128_pixels",
    "wgmma_112_pixels",
    "wgmma_96_pixels",
    "wgmma_160_pixels",
    "wgmma_common_stages",
    "wgmma_64_pixels",
    "wgmma_halo",
    "wgmma_short_boxes",
    "wgmma_flat",
    "wgmma_gathered",
    "wgmma_own_tiles",
    "wgmma_one_tile",
    "wgmma_resident_weights",
    "wgmma_one_item",
    "wgmma_split",
    "wgmma_padded_input",
    "wgmma_padded_output",
    "wgmma_groups",
    "wgmma_group_windows",
    "wgmma_planes_64_channels",
    "wgmma_planes_128_channels",
    "wgmma_planes_64_pixels",
    "wgmma_planes_128_pixels",
    "wgmma_planes_tensor_copies",
    "wgmma_planes_copies_8",
    "wgmma_planes_copies_4",
    "wgmma_planes_copies_2",
    "reorders_nchw",
    "reorders_pool",
    "max_pool_2x2_nhwc",
    "max_pool_2x2_nchw",
    "max_pool_3x3_nchw_8",
    "max_pool_3x3_nchw_4",
    "max_pool_3x3_nchw_2",
    "max_pool_3x3_nchw_1",
    "max_pool_vectors",
    "max_pool_elements",
    "transpose_squares",
    "transpose_elements",
    "reorder_vectors",
    "reorder_elements",
    "reorder_padded_8_channels",
    "reorder_padded_16_channels",
    "reorder_padded_32_channels",
    "reorder_padded_vectors",
    "reorder_padded_elements",
    "add_vectors",
    "add_elements",
    "few_outputs_1_row",
    "few_outputs_3_rows",
    "few_outputs_5_rows",
    "few_outputs_7_rows",
    "few_outputs_32_pixels",
    "few_outputs_16_pixels",
    "few_outputs_vectors",
    "few_outputs_pieces",
    "few_outputs_parts",
});
static_assert(kPathNames.size() == kPaths);

std::array<std::atomic<bool>, kPaths> path_ran;

/// Kernels' names begin those of their paths.
bool has_path(std::string_view path, const cudaDeviceProp& device) {
  if (path.starts_with("wgmma")) return device.major == 9 && device.minor == 0;
  if (path == "implicit_gemm_cluster" || path == "pointwise_planes_cluster") return device.major >= 9;
  if (path == "groups_as_one") return device.major >= 8;  // of implicit_gemm and others
  if (path.starts_with("implicit_gemm") || path.starts_with("few_channels_mma")) return device.major >= 8;
  if (path.starts_with("grouped_mma") || path.starts_with("pointwise")) return device.major >= 8;
  if (path.starts_with("few_outputs")) return device.major >= 8;
  return true;
}

}  // namespace

void note_path(Path path) {
  std::atomic<bool>& flag = path_ran[static_cast<std::size_t>(path)];
  // Reading first keeps the cache line shared between threads once the flag is set.
  if (!flag.load(std::memory_order_relaxed)) flag.store(true, std::memory_order_relaxed);
}

std::vector<PathCoverage> path_coverage(const cudaDeviceProp& device) {
  std::vector<PathCoverage> entries;
  for (std::size_t path = 0; path < kPaths; ++path) {
    entries.push_back(
        {kPathNames[path], has_path(kPathNames[path], device), path_ran[path].load(std::memory_order_relaxed)});
  }
  return entries;
}

}  // namespace gable::cuda
