// The kernel of convolutions with few output channels against an f64 reference.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "tests/cpu/conv2d_check.h"

namespace gable::cpu::test {
namespace {

/// A plan of the pair products.
struct DotPlan : FewOutputsPlan {
  DotPlan(const Conv2dProblem& p, const Target& target, int threads)
      : FewOutputsPlan(p, few_outputs_dot_kernels(), target, threads) {}
};

bool takes_dot(const Conv2dProblem& p, const Target& target) {
  return target.name == "avx512" && missing_few_outputs_dot().empty() && few_outputs_dot_refusal(p, target).empty();
}

void check_few_outputs(Conv2dProblem p, std::mt19937& random, int threads = 1) {
  for (const DType type : kTypes) {
    p.dtype = type;
    const Sample sample = random_sample(p, random);
    for (const Target* target : supported_targets()) {
      REQUIRE(few_outputs_refusal(p, *target) == "");
      check_plan<FewOutputsPlan>(p, *target, threads, sample);
      if (takes_dot(p, *target)) check_plan<DotPlan>(p, *target, threads, sample);
    }
  }
}

}  // namespace

TEST_CASE("few outputs: each number of them, channels around the vector, pixels around the tile") {
  std::mt19937 random(61);
  const std::int64_t pixels[] = {1, 2, 3, 5, 8, 9, 13, 16, 31};
  int turn = 0;
  for (const std::int64_t c : {1, 3, 8, 15, 16, 17, 33, 64, 100}) {
    for (std::int64_t k = 1; k <= kMaxFewOutputs; ++k) {
      Conv2dProblem p{.n = 1 + turn % 2, .c = c, .h = 1, .w = pixels[turn % 9], .k = k, .bias = turn % 3 > 0};
      p.activation = turn % 5 < 2 ? Activation::none : Activation::relu;
      check_few_outputs(sized(p, 0, 0), random, 1 + turn % 3);
      ++turn;
    }
  }
}

TEST_CASE("few outputs: strides, outputs that leave out the image's end, and several units of work") {
  std::mt19937 random(62);
  for (const std::int64_t stride : {1, 2, 3}) {
    for (const std::int64_t w : {4, 11, 60}) {
      Conv2dProblem p{
          .n = 2, .c = 21, .h = 25, .w = w, .k = 1 + w % 8, .stride_h = 2, .stride_w = stride, .bias = true};
      check_few_outputs(sized(p, 0, 0), random, static_cast<int>(stride));
      p = sized(p, 0, 0);
      p.ho -= 1;
      p.wo = std::max<std::int64_t>(1, p.wo - 1);
      check_few_outputs(p, random);
    }
  }
  for (const int threads : {1, 3}) {
    check_few_outputs(sized({.n = 2, .c = 70, .h = 37, .w = 29, .k = 5, .bias = true}, 0, 0), random, threads);
  }
}

TEST_CASE("few outputs: windows with strides, dilation and padding, channels around the vector, units of work") {
  struct Window {
    std::int64_t r, s, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  };
  constexpr Window kWindows[] = {{3, 3, 1, 1, 1, 1, 1, 1}, {1, 5, 1, 2, 1, 1, 0, 4},  {7, 1, 2, 1, 1, 1, 3, 0},
                                 {3, 3, 1, 1, 2, 3, 2, 3}, {2, 4, 2, 3, 3, 1, 1, 2},  {1, 1, 2, 2, 1, 1, 1, 1},
                                 {5, 3, 1, 1, 1, 2, 6, 5}, {3, 3, 1, 1, 7, 13, 7, 13}};
  std::mt19937 random(63);
  std::int64_t turn = 0;
  for (const Window& window : kWindows) {
    for (const std::int64_t c : {1, 3, 15, 16, 17, 33, 129}) {
      Conv2dProblem p{.n = 1 + turn % 2, .c = c, .h = 6 + turn % 5, .w = 9 + turn % 11, .k = 1 + turn % kMaxFewOutputs};
      p.r = window.r, p.s = window.s, p.stride_h = window.stride_h, p.stride_w = window.stride_w;
      p.dilation_h = window.dilation_h, p.dilation_w = window.dilation_w;
      p.pad_top = window.pad_h, p.pad_left = window.pad_w;
      p.bias = turn % 3 > 0;
      p.activation = turn % 5 < 2 ? Activation::none : Activation::relu;
      check_few_outputs(sized(p, window.pad_h, window.pad_w), random, 1 + static_cast<int>(turn % 3));
      ++turn;
    }
  }
  for (const std::int64_t w : {64, 530}) {  // tiles between the edges, and rows of several units
    for (const int threads : {1, 3}) {
      Conv2dProblem p{.c = 18, .h = 11, .w = w, .k = 3, .r = 3, .s = 3, .bias = true};
      check_few_outputs(same_padded(p), random, threads);
      p.pad_left = 1;
      p.ho = p.h - 3;  // rows and columns at the end that no window reads
      p.wo = p.w - 4;
      check_few_outputs(p, random, threads);
    }
  }
}

TEST_CASE("few outputs: NaN reaches the windows that read its pixel and no others") {
  const std::int64_t channels = 21, width = 40, outputs = 2;
  const Conv2dProblem p = same_padded({.c = channels, .h = 3, .w = width, .k = outputs, .r = 3, .s = 3});
  for (const std::int64_t column : {0, 1, 13, 39}) {
    std::vector<float> x(3 * 21 * 40, 1.0f), weights(2 * 21 * 9, 1.0f), y(3 * 40 * 2);
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      x[static_cast<std::size_t>(column * channels + channel)] = std::numeric_limits<float>::quiet_NaN();
    }
    for (const Target* target : supported_targets()) {
      FewOutputsPlan plan(p, *target, 1);
      std::vector<float> packed(plan.packed_bytes() / sizeof(float));
      plan.pack(weights.data(), dense_strides(p), packed.data());
      plan.run(x.data(), packed.data(), nullptr, y.data());
      for (std::int64_t i = 0; i < std::ssize(y); ++i) {
        const std::int64_t row = i / outputs / width, at = i / outputs % width;
        CHECK(std::isnan(y[static_cast<std::size_t>(i)]) == (row <= 1 && std::abs(at - column) <= 1));
      }
    }
  }
}

TEST_CASE("few outputs: NaN and infinity reach the outputs of their pixel and no others, whatever fills up a vector") {
  const std::int64_t channels = 21, outputs = 3;
  Conv2dProblem p = sized({.c = channels, .h = 1, .w = 30, .k = outputs, .activation = Activation::relu}, 0, 0);
  const std::size_t of_nan = 17, of_infinity = 29;
  std::vector<float> x(21 * 30, 1.0f), weights(3 * 21, -1.0f), y(3 * 30);
  x[of_nan * 21 + 20] = std::numeric_limits<float>::quiet_NaN();
  x[of_infinity * 21] = -std::numeric_limits<float>::infinity();
  for (const Target* target : supported_targets()) {
    FewOutputsPlan plan(p, *target, 1);
    std::vector<float> packed(plan.packed_bytes() / sizeof(float));
    plan.pack(weights.data(), dense_strides(p), packed.data());
    plan.run(x.data(), packed.data(), nullptr, y.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      CHECK(std::isnan(y[i]) == (i / 3 == of_nan));
      CHECK(std::isinf(y[i]) == (i / 3 == of_infinity));
      if (i / 3 != of_nan && i / 3 != of_infinity) CHECK(y[i] == 0);
    }
  }
}

TEST_CASE("few outputs: what it refuses") {
  const Target& target = best_target();
  const Conv2dProblem taken = sized({.c = 21, .h = 6, .w = 6, .k = 8}, 0, 0);
  CHECK(few_outputs_refusal(taken, target) == "");
  Conv2dProblem p = taken;
  p.k = 9;
  CHECK(few_outputs_refusal(p, target).find("9 output channels") != std::string::npos);
  p = taken;
  p.nhwc = false;
  CHECK(few_outputs_refusal(p, target).find("nchw") != std::string::npos);
  p = taken;
  p.activation = Activation::tanh;
  CHECK(few_outputs_refusal(p, target).find("tanh") != std::string::npos);
  CHECK(few_outputs_refusal(same_padded({.c = 21, .h = 6, .w = 6, .k = 8, .r = 3, .s = 3}), target) == "");
  CHECK(few_outputs_refusal(sized({.c = 16, .h = 6, .w = 6, .k = 8, .groups = 8}, 0, 0), target) != "");
  CHECK(few_outputs_dot_refusal(taken, target) == "it multiplies bf16");
  p = taken;
  p.pool = {2, 2, 2, 2};
  CHECK(few_outputs_refusal(p, target).find("max-pool") != std::string::npos);
}

}  // namespace gable::cpu::test
