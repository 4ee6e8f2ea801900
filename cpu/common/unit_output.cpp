// See unit_output.h.
#include "cpu/common/unit_output.h"

#include <algorithm>

namespace gable::cpu {

const float* bias_in_vectors(const float* bias, const UnitLanes& lanes, float* copy) {
  if (bias == nullptr || lanes.lanes == lanes.padded) return bias == nullptr ? nullptr : bias + lanes.first;
  std::copy_n(bias + lanes.first, lanes.lanes, copy);
  return copy;
}

void store_results(const StripOfResults& results, const UnitLanes& lanes, const float* bias, void* y) {
  const Conv2dProblem& p = results.problem;
  const Strides strides = y_strides(p);
  const FusedPool pool = results.pooled ? FusedPool{} : p.pool;
  const auto& store = p.nhwc ? results.kernels.store_nhwc : results.kernels.store_nchw;
  store[static_cast<std::size_t>(p.dtype)]({.strip = results.place.first,
                                            .strip_row = results.place.row,
                                            .strip_px = results.place.px,
                                            .lanes = static_cast<int>(lanes.lanes),
                                            .padded_lanes = static_cast<int>(lanes.padded),
                                            .rows = results.window.rows,
                                            .pixels = results.window.pixels,
                                            .pool_h = pool.h,
                                            .pool_w = pool.w,
                                            .pool_stride_h = pool.stride_h,
                                            .pool_stride_w = pool.stride_w,
                                            .bias = bias,
                                            .activation = p.activation,
                                            .y = y,
                                            .y_row = strides.row,
                                            .y_px = strides.pixel,
                                            .y_channel = strides.channel,
                                            .block = results.block});
}

}  // namespace gable::cpu
