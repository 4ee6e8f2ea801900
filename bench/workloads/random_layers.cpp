// See random_layers.h.
#include "bench/workloads/random_layers.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <algorithm>
#include <cmath>

namespace gable::bench {
namespace {

/// Padding below and to the right that no window reads is left out, as in a descriptor.
void trim_padding(Conv2d& conv) {
  const Shape y = output_shape(conv);
  const auto after = [&](std::size_t axis, std::int64_t stride, std::int64_t dilation, std::int64_t before) {
    const std::int64_t read = (y[axis] - 1) * stride + (conv.weights[axis] - 1) * dilation + 1;
    return std::max<std::int64_t>(0, read - conv.input[axis] - before);
  };
  conv.padding.bottom = after(2, conv.stride.h, conv.dilation.h, conv.padding.top);
  conv.padding.right = after(3, conv.stride.w, conv.dilation.w, conv.padding.left);
}

}  // namespace

std::int64_t RandomLayers::log_uniform(std::int64_t least, std::int64_t most) {
  const double part = static_cast<double>(random_() >> 11) * 0x1p-53;  // [0, 1)
  const double low = std::log(static_cast<double>(least)), high = std::log(static_cast<double>(most) + 1);
  return std::min(most, static_cast<std::int64_t>(std::exp(low + part * (high - low))));
}

std::int64_t RandomLayers::channels() {
  if (chance(20)) return log_uniform(1, 512);
  if (chance(25)) return 32 * log_uniform(1, 64);
  return 8 * log_uniform(1, 256);
}

Extent RandomLayers::dense_window() {
  if (chance(45)) return {1, 1};
  if (chance(65)) return {3, 3};
  static const std::vector<Extent> others{{5, 5}, {7, 7}, {1, 7}, {7, 1}, {1, 3}, {3, 1}, {2, 2}, {4, 4}};
  return others[random_() % others.size()];
}

void RandomLayers::set_channels_and_window(Conv2d& conv, std::int64_t batch, Extent image) {
  // Channels of each group.
  const auto shape = [&](std::int64_t groups, std::int64_t in, std::int64_t out, Extent window) {
    conv.groups = groups;
    conv.input = {batch, groups * in, image.h, image.w};
    conv.weights = {groups * out, in, window.h, window.w};
  };
  const auto square = [&](const std::vector<std::int64_t>& sizes) {
    const std::int64_t size = one_of(sizes);
    return Extent{size, size};
  };
  if (chance(60)) return shape(1, channels(), channels(), dense_window());
  if (chance(62)) return shape(channels(), 1, chance(90) ? 1 : 2, square({3, 3, 3, 5, 5, 7, 9, 1}));
  const std::int64_t width = one_of({2, 3, 4, 8, 16, 24, 32, 48, 64});
  return shape(log_uniform(2, 64), width, chance(80) ? width : 2 * width, square({1, 3, 3, 3, 5}));
}

void RandomLayers::set_steps(Conv2d& conv) {
  const Extent window{conv.weights[2], conv.weights[3]};
  const bool patches = window.h == window.w && window.h % 2 == 0;
  if (patches) {
    conv.stride = window;
    return;
  }
  if (chance(30)) conv.stride = {2, 2};
  const bool single = window.h == 1 && window.w == 1;
  if (!single && conv.stride.h == 1 && chance(8)) {
    const std::int64_t gap = one_of({2, 2, 3, 4});
    conv.dilation = {gap, gap};
  }
  if (chance(90)) conv.padding = {window.h / 2 * conv.dilation.h, window.w / 2 * conv.dilation.w};
}

Conv2d RandomLayers::candidate() {
  static const std::vector<std::int64_t> sides{4,  5,  7,  7,  8,  8,   10,  12,  14,  14,  16,  16, 17,
                                               19, 20, 24, 28, 28, 32,  32,  35,  38,  40,  48,  56, 56,
                                               64, 64, 75, 80, 96, 112, 112, 128, 149, 160, 192, 224};
  Conv2d conv;
  const std::int64_t side = one_of(sides);
  set_channels_and_window(conv, log_uniform(1, limits_.batch), {side, chance(85) ? side : one_of(sides)});
  set_steps(conv);
  conv.layout = chance(70) ? Layout::nhwc : Layout::nchw;
  conv.dtype = std::vector{DType::f32, DType::bf16, DType::f16}[random_() % 3];
  conv.epilogue.bias = true;
  conv.epilogue.activation = Activation::relu;
  return conv;
}

bool RandomLayers::is_within_limits(const Conv2d& conv) const {
  try {
    validate(conv);  // without padding a window may be larger than its image
  } catch (const Error&) {
    return false;
  }
  const auto elements =
      static_cast<double>(conv.input.elements() + conv.weights.elements() + output_shape(conv).elements());
  return work(conv).flop <= limits_.gflop * 1e9 && 4 * elements <= limits_.megabytes * 1e6;
}

Conv2d RandomLayers::next() {
  constexpr int kTries = 100'000;
  for (int i = 0; i < kTries; ++i) {
    Conv2d conv = candidate();
    if (!is_within_limits(conv)) continue;
    trim_padding(conv);
    return conv;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("of {} random layers none has at most {:g} GFLOP and {:g} MB: allow more", kTries,
                          limits_.gflop, limits_.megabytes));
}

}  // namespace gable::bench
