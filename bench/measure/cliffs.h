// No cliffs: properties of T that need no peer. A layer may not take longer than what a user could run in its place:
// another dtype, the dense layer, more channels, single images, the other layout with reorders.
#pragma once

#include <gable/ops.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/measure/devices.h"
#include "bench/record/cliffs.h"
#include "bench/workloads/random_layers.h"

namespace gable::bench {

/// T(layer) <= limit x times x the sum of T(others).
struct Property {
  std::string name;
  double limit = 1;
  double times = 1;
  Op layer;
  std::vector<Op> others;
};

/// The properties of a layer:
///   bf16, f16        T <= 1.1 T(f32)
///   groups           T <= T of the same tensors without groups
///   input channels, output channels, channels (of a depthwise layer)   T <= 1.15 T at the next multiple of 16
///   batch            T(N) <= 1.1 N T(1)
///   layout           T(NCHW) <= T(NHWC) + two reorders
/// A dense layer of more than `most_gflop` is left out: it would take long, and it breaks nothing.
std::vector<Property> properties_of(const Conv2d& layer, double most_gflop);

/// The seconds of ops that are timed in turn, in their order; 0 where the device has no kernel. `seconds` for each op.
struct TimedOp {
  double seconds = 0;
  std::string kernel;
};
using TimeOps = std::function<std::vector<TimedOp>(const std::vector<Op>& ops, double seconds)>;

/// Times ops on a device: medians of samples in turn.
TimeOps timer_on(const OpenDevice& device);

struct CliffJob {
  std::uint64_t seed = 1;
  int layers = 2000;
  double seconds = 600;        ///< for all; fewer layers are sampled where it does not suffice
  double seconds_each = 0.01;  ///< for each op of a layer
  LayerLimits limits{};
};

/// Checks random layers. A property counts as broken where it is in a second, longer measurement too; its numbers are
/// then those of the second one. `progress` gets the layers done.
CliffDocument find_cliffs(const CliffJob& job, const TimeOps& time_ops, const std::function<void(int)>& progress);

}  // namespace gable::bench
