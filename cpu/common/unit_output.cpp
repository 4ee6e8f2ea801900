// See unit_output.h.
#include "cpu/common/unit_output.h"

#include <algorithm>

namespace gable::cpu {

const float* bias_in_vectors(const float* bias, const UnitLanes& lanes, float* copy) {
  if (bias == nullptr || lanes.lanes == lanes.padded) return bias == nullptr ? nullptr : bias + lanes.first;
  std::copy_n(bias + lanes.first, lanes.lanes, copy);
  // Sums of lanes without a channel begin with these, see clear_leftovers().
  std::fill(copy + lanes.lanes, copy + lanes.padded, 0.0f);
  return copy;
}

void store_results(const StripOfResults& results, const UnitLanes& lanes, const float* bias, void* y) {
  const Conv2dProblem& p = results.problem;
  const Strides strides = y_strides(p);
  const auto& store = p.nhwc ? results.kernels.store_nhwc : results.kernels.store_nchw;
  store[static_cast<std::size_t>(p.dtype)](
      {.strip = {.first = results.place.first,
                 .row = results.place.row,
                 .px = results.place.px,
                 .padded_lanes = static_cast<int>(lanes.padded)},
       .epilogue = {.pool = results.pooled ? FusedPool{} : p.pool, .bias = bias, .activation = p.activation},
       .output = {.y = y,
                  .row = strides.row,
                  .px = strides.pixel,
                  .channel = strides.channel,
                  .rows = results.window.rows,
                  .pixels = results.window.pixels,
                  .lanes = static_cast<int>(lanes.lanes)},
       .block = results.block});
}

}  // namespace gable::cpu
