// Which kernel paths have run in this process, and on which target. A plan notes its paths in each run (a relaxed load
// once they are noted), so that a test suite fails where a path that was compiled, and that this CPU supports, never
// ran.
#pragma once

#include <string_view>
#include <vector>

#include "cpu/common/target.h"

namespace gable::cpu {

enum class Path {
  conv2d_tile,
  conv2d_row_pair,
  conv2d_image_pair,
  conv2d_two_rows,
  conv2d_partial_sums,
  conv2d_weights_ahead,
  conv2d_groups_together,
  conv2d_near_pixels,
  conv2d_output_ahead,
  conv2d_direct_input,
  conv2d_edge_strips,
  conv2d_trims,
  conv2d_trims_several,
  conv2d_non_temporal,
  conv2d_stage_nhwc,
  conv2d_stage_nchw,
  conv2d_store_nhwc,
  conv2d_store_nchw,
  depthwise_in_place,
  depthwise_widened,
  depthwise_copied,
  depthwise_reaching,
  depthwise_columns,
  depthwise_multiplied,
  depthwise_non_temporal,
  depthwise_row_tiles,
  depthwise_pairs,
  depthwise_planes_scaled,
  depthwise_planes_in_place,
  depthwise_planes_staged,
  depthwise_planes_direct,
  depthwise_planes_rows,
  depthwise_planes_transposed,
  depthwise_planes_folded,
  depthwise_staged_tile,
  depthwise_staged_row_pair,
  depthwise_staged_in_place,
  depthwise_staged_edge_strips,
  depthwise_staged_non_temporal,
  depthwise_staged_nhwc,
  depthwise_staged_nchw,
  depthwise_staged_store,
  few_channel_lanes,
  few_channel_lanes_pool,
  few_pixel_lanes,
  few_pixel_lanes_pool,
  few_stage_split,
  few_stage_rows,
  few_in_place,
  few_outputs,
  pointwise_in_place,
  pointwise_narrow,
  pointwise_runs_of_panels,
  pointwise_held_weights,
  pointwise_staged,
  pointwise_panels_outside,
  pointwise_non_temporal,
  planes_in_place,
  planes_staged,
  planes_rows,
  planes_by_lanes,
  planes_pool,
  planes_non_temporal,
  narrow_groups,
  widened_pointwise,
  bf16_stage,
  bf16_fold,
  bf16_gather,
  bf16_gather_rows,
  bf16_split,
  bf16_in_place,
  bf16_in_image,
  bf16_in_rows,
  bf16_by_images,
  bf16_panels,
  bf16_held_weights,
  bf16_streamed_weights,
  bf16_panels_inside,
  bf16_flat,
  bf16_rows,
  bf16_narrow_halves,
  bf16_row_halves,
  bf16_column_halves,
  bf16_masked_border,
  bf16_border_in_parts,
  bf16_pool,
  bf16_planes,
  bf16_planes_split,
  bf16_non_temporal,
  max_pool_nhwc,
  max_pool_nchw,
  max_pool_non_temporal,
  add,
  add_non_temporal,
  add_in_tiles,
  activate,
  activate_non_temporal,
  concat_rows,
  concat_pieces,
  upsample_elements,
  upsample_pixels,
  multiply_elements,
  multiply_channels,
  multiply_planes,
  bilinear_pixels,
  bilinear_planes,
  softmax_rows,
  softmax_columns,
  transpose_2byte,
  transpose_4byte,
  transpose_non_temporal,
  count
};

/// The arithmetic unit of a path. Paths of the bf16 kernels are counted separately for each bf16 unit: a run of the
/// tests' emulation does not count for the unit that it emulates.
enum class PathUnit { vectors, amx, bf16_dot, emulated, count };
std::string_view name_of(PathUnit unit);

void note_path(Path path, const Target& target, PathUnit unit = PathUnit::vectors);

struct PathCoverage {
  std::string_view path;
  std::string_view target;
  PathUnit unit;
  bool supported;  // the target, by this CPU; Bf16Unit::missing says whether the CPU has the unit
  bool ran;
};

/// One entry for each path and compiled target; bf16 paths have it for the emulation. Then one entry, on the best
/// target, for each bf16 path and each unit that takes it.
std::vector<PathCoverage> path_coverage();

}  // namespace gable::cpu
