// See few_channels_packing.h.
#include "cpu/few_channels/few_channels_packing.h"

#include <algorithm>

#include "cpu/common/half.h"

namespace gable::cpu {
namespace {

struct Step {
  std::int64_t kh, kw, channel;
};

/// In the order of packed weights.
std::vector<Step> all_steps(const Conv2dProblem& p, const FewStrip& strip) {
  std::vector<Step> steps;
  const bool channel_last = interleaves_channels(p, strip);
  for (std::int64_t kh = 0; kh < p.r; ++kh) {
    for (std::int64_t i = 0; i < p.c * p.s; ++i) {
      steps.push_back(channel_last ? Step{kh, i / p.c, i % p.c} : Step{kh, i % p.s, i / p.s});
    }
  }
  return steps;
}

/// Output channels of the panel that begins with channel `first`.
std::int64_t panel_width(const Conv2dProblem& p, const FewTileShape& tile, int lanes, std::int64_t first) {
  if (!tile.pixel_lanes) return std::min(tile.vectors * lanes, padded_channels(p, tile, lanes) - first);
  return next_block_channels(p.k - first);
}

}  // namespace

std::int64_t padded_channels(const Conv2dProblem& p, const FewTileShape& tile, int lanes) {
  return tile.pixel_lanes ? p.k : round_up(p.k, lanes);
}

void pack_few_channels(const Conv2dProblem& p, const FewChannelsBlocking& b, int lanes, const void* weights,
                       const WeightStrides& strides, float* packed) {
  const std::vector<Step> steps = all_steps(p, b.strip);
  std::int64_t width = 0;
  for (std::int64_t first = 0; first < padded_channels(p, b.tile, lanes); first += width) {
    width = panel_width(p, b.tile, lanes, first);
    for (const Step& step : steps) {
      const std::int64_t source = step.channel * strides.in + step.kh * strides.row + step.kw * strides.column;
      for (std::int64_t k = first; k < first + width; ++k) {
        *packed++ = k < p.k ? element_as_f32(weights, p.dtype, source + k * strides.out) : 0.0f;
      }
    }
  }
}

Packing few_channels_packing(const Conv2dProblem& p, const FewChannelsBlocking& b, int lanes) {
  const bool channel_last = interleaves_channels(p, b.strip) && p.c > 1 && p.s > 1;
  return packing_of(
      p, "few_channels",
      {panel_width(p, b.tile, lanes, 0), padded_channels(p, b.tile, lanes), static_cast<std::int64_t>(channel_last)});
}

std::vector<std::int32_t> run_offsets(const Conv2dProblem& p, const FewStrip& strip) {
  std::vector<std::int32_t> offsets;
  const std::vector<Step> steps = all_steps(p, strip);
  for (std::size_t i = 0; i < steps.size(); i += static_cast<std::size_t>(strip.run_steps)) {
    const Step& step = steps[i];
    const std::int64_t column = step.kw * p.dilation_w;
    const std::int64_t in_row =
        interleaves_channels(p, strip)
            ? column * p.c + step.channel
            : (step.channel * strip.phases + column % strip.phases) * strip.pitch + column / strip.phases;
    offsets.push_back(static_cast<std::int32_t>(step.kh * p.dilation_h * strip.row + in_row));
  }
  return offsets;
}

}  // namespace gable::cpu
