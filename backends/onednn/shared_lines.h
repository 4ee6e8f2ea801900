// Cache lines of a result that two of oneDNN's threads write.
//
// Without AMX, oneDNN's jit kernel takes bf16 in groups of at most 16 input channels. From 16 output channels a group
// on, it cuts work by groups first: as many threads as groups take one group each and go down the image side by side.
// In NHWC, where a group's channels of a pixel are not whole cache lines, two threads then write one line of each pixel
// at the same time, and it goes from core to core. Measured on two threads of a Zen 5 with two groups; other CPUs
// without AMX are predicted alike. Not measured on more threads, for which nothing is added.
#pragma once

#include <gable/ops.h>

#include <cstdint>

namespace gable::onednn {

/// Whether oneDNN's threads wait for these lines. Windows of several taps compute longer than a line takes.
inline bool threads_share_lines(const Conv2d& c, int threads, bool amx) {
  constexpr std::int64_t kLine = 64, kLanes = 16;
  if (amx || threads != 2 || c.groups != threads) return false;
  if (c.dtype != DType::bf16 || c.layout != Layout::nhwc || c.weights[2] * c.weights[3] > 1) return false;
  const std::int64_t in = c.weights[1], out = c.weights[0] / c.groups;
  const bool whole_lines = out * static_cast<std::int64_t>(size_of(c.dtype)) % kLine == 0;
  return in > 1 && in <= kLanes && out >= kLanes && !whole_lines;
}

/// Seconds that this adds to a layer. Measured: up to 20 ns a pixel, and less in runs whose threads are not in step.
inline double shared_line_seconds(const Conv2d& c, int threads, bool amx) {
  constexpr double kPixel = 10e-9;
  if (!threads_share_lines(c, threads, amx)) return 0;
  const Shape y = conv_output_shape(c);
  return kPixel * static_cast<double>(y[0] * y[2] * y[3]);
}

}  // namespace gable::onednn
