// Convolutions that nobody named: random layers from the ranges that networks for images use. The same seed gives the
// same layers on every machine.
#pragma once

#include <gable/ops.h>

#include <cstdint>
#include <random>
#include <vector>

namespace gable::bench {

/// Bounds of a layer. A batch is at least 1, so a small bound leaves few layers.
struct LayerLimits {
  double gflop = 0.3;
  double megabytes = 32;  ///< of x, weights and y, as f32
  std::int64_t batch = 8;
};

/// Dense (60 %), depthwise (25 %) and grouped layers (15 %) with bias and relu. Windows are 1x1 to 9x9, also 1x7, 7x1
/// and patches; images 4 to 224; channels 1 to 2,048, mostly multiples of 8; strides 1 and 2; some are dilated. Padding
/// keeps the size, or is 0. Seven of ten are in NHWC, the others in NCHW. The dtype is f32, bf16 or f16.
class RandomLayers {
 public:
  RandomLayers(std::uint64_t seed, const LayerLimits& limits) : random_(seed), limits_(limits) {}
  /// Throws Error(invalid_argument) where the limits leave next to no layer.
  Conv2d next();

 private:
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  std::int64_t one_of(const std::vector<std::int64_t>& values) { return values[random_() % values.size()]; }
  /// A random number in which each octave is equally likely.
  std::int64_t log_uniform(std::int64_t least, std::int64_t most);
  std::int64_t channels();
  Extent dense_window();
  Conv2d candidate();
  void set_channels_and_window(Conv2d& conv, std::int64_t batch, Extent image);
  void set_steps(Conv2d& conv);
  bool is_within_limits(const Conv2d& conv) const;

  std::mt19937_64 random_;  // its numbers are the standard's, its distributions are not
  LayerLimits limits_;
};

}  // namespace gable::bench
