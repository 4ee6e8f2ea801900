// Estimated times of the kernels.
#include <doctest/doctest.h>

#include <cmath>
#include <ctime>
#include <random>

#include "cpu/common/estimate.h"
#include "cpu/common/tiling.h"
#include "tests/cpu/conv2d_check.h"

namespace gable::cpu::test {
namespace {

const Conv2dProblem kFewChannels = sized({.c = 3, .h = 30, .w = 30, .k = 24, .r = 3, .s = 3}, 0, 0);
const Conv2dProblem kPointwise = sized({.n = 2, .c = 40, .h = 14, .w = 14, .k = 72}, 0, 0);
const Conv2dProblem kNarrow = sized({.c = 32, .h = 28, .w = 28, .k = 32, .r = 3, .s = 3, .groups = 16}, 0, 0);

using Seconds = double (*)(const Conv2dProblem&, const Target&, int);

void check_estimate(Seconds seconds, const Conv2dProblem& p, const Target& target) {
  const double one = seconds(p, target, 1);
  CHECK(one > 0);
  CHECK(std::isfinite(one));
  CHECK(seconds(p, target, 4) <= one);
  Conv2dProblem more = p;
  more.n *= 3;
  CHECK(seconds(more, target, 1) > 2 * one);
}

Conv2dProblem bf16_of(Conv2dProblem p) {
  p.dtype = DType::bf16;
  return p;
}

}  // namespace

TEST_CASE("the kernel's rows that read the image are counted without a look at each output") {
  std::mt19937 random(3);
  const auto draw = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  int wrong = 0;
  for (int i = 0; i < 20000; ++i) {
    Conv2dProblem p;
    p.h = 1 + draw(12);
    p.r = 1 + draw(5);
    p.stride_h = 1 + draw(4);
    p.dilation_h = 1 + draw(4);
    p.pad_top = draw(14);
    p.ho = 1 + draw(20);
    const WindowAxis axis = row_axis(p);
    double rows = 0;
    for (std::int64_t output = 0; output < p.ho; ++output) {
      const TapRange taps = axis.inside(output);
      rows += static_cast<double>(taps.end - taps.begin);
    }
    wrong += kernel_rows_inside(p) == rows ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("estimates grow with the images and not with the threads, on every target") {
  for (const Target* target : supported_targets()) {
    INFO(target->name);
    for (const Conv2dProblem& p : {kFewChannels, kPointwise, kNarrow}) check_estimate(conv2d_seconds, p, *target);
    check_estimate(few_channels_seconds, kFewChannels, *target);
    check_estimate(pointwise_seconds, kPointwise, *target);
    if (narrow_groups_refusal(kNarrow, *target).empty()) check_estimate(narrow_groups_seconds, kNarrow, *target);
  }
}

TEST_CASE("estimates: only threads that have a unit of work bring bandwidth") {
  const Conv2dProblem p = sized({.c = 4096, .h = 1, .w = 1, .k = 4096}, 0, 0);  // 64 MiB of weights, and few cycles
  const double one = estimated_seconds(p, 1, 1, 1);
  CHECK(estimated_seconds(p, 1, 1, 2) == one);
  CHECK(estimated_seconds(p, 1, 2, 2) < 0.6 * one);
}

TEST_CASE("estimates: in 16 bits a conversion costs something, and several outputs a channel have an estimate") {
  Conv2dProblem p = kNarrow;
  const double f32 = conv2d_seconds(p, best_target(), 1);
  p.dtype = DType::f16;
  CHECK(conv2d_seconds(p, best_target(), 1) > f32);
  check_estimate(conv2d_seconds, p, best_target());
  check_estimate(few_channels_seconds, bf16_of(kFewChannels), best_target());
  check_estimate(pointwise_seconds, bf16_of(kPointwise), best_target());
  const Conv2dProblem several = sized({.c = 32, .h = 20, .w = 20, .k = 64, .r = 3, .s = 3, .groups = 32}, 1, 1);
  check_estimate(depthwise_seconds, several, best_target());
  check_estimate(depthwise_seconds, bf16_of(several), best_target());
}

TEST_CASE("estimates: few output channels, of 1x1 in NHWC and of few input channels in NCHW") {
  for (const Target* target : supported_targets()) {
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      Conv2dProblem p = sized({.n = 2, .c = 40, .h = 14, .w = 14, .k = 5}, 0, 0);
      p.dtype = type;
      check_estimate(few_outputs_seconds, p, *target);
      Conv2dProblem planes = sized({.c = 3, .h = 60, .w = 32, .k = 2, .r = 3, .s = 3}, 1, 1);
      planes.dtype = type;
      planes.nhwc = false;
      const double seconds = few_channels_seconds(planes, *target, 1);
      if (seconds != kNoEstimate) check_estimate(few_channels_seconds, planes, *target);  // fitted on some CPUs only
    }
  }
}

TEST_CASE("estimates: depthwise with one output a channel, in both layouts") {
  for (const Target* target : supported_targets()) {
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      for (const std::int64_t size : {28, 40}) {  // in NCHW lanes are channels, or pixels
        Conv2dProblem p{.c = 72, .h = size, .w = size, .k = 72, .r = 3, .s = 3, .groups = 72};
        p.dtype = type;
        p = sized(p, 1, 1);
        check_estimate(depthwise_seconds, p, *target);
        p.nhwc = false;
        check_estimate(depthwise_planes_seconds, p, *target);
      }
    }
  }
}

TEST_CASE("estimates of 10^9 output channels are made at once, and go on as those of fewer do") {
  const auto of_channels = [](std::int64_t k) { return sized({.c = 17, .w = 2, .k = k}, 0, 0); };
  const std::clock_t start = std::clock();
  for (const Target* target : supported_targets()) {
    for (const Seconds seconds : {conv2d_seconds, pointwise_seconds}) {
      const double ratio =
          seconds(of_channels(1'000'000'000), *target, 1) / seconds(of_channels(1'000'000), *target, 1);
      CHECK(ratio == doctest::Approx(1000).epsilon(0.01));
    }
  }
  CHECK(std::clock() - start < CLOCKS_PER_SEC / 4);  // each took a second
}

TEST_CASE("estimates: none for NCHW by kernels of NHWC, nor for a pool") {
  Conv2dProblem p = kFewChannels;
  p.nhwc = false;
  CHECK(few_channels_seconds(p, best_target(), 1) == kNoEstimate);
  p = kFewChannels;
  p.pool = {2, 2, 2, 2};
  CHECK(conv2d_seconds(p, best_target(), 1) == kNoEstimate);
  p = sized({.c = 32, .h = 9, .w = 9, .k = 32, .groups = 32}, 0, 0);
  p.nhwc = false;
  CHECK(depthwise_seconds(p, best_target(), 1) == kNoEstimate);
}

}  // namespace gable::cpu::test
