// The kernel of 1x1 convolutions with few output channels against an f64 reference.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/cpu/conv2d_check.h"

namespace gable::cpu::test {
namespace {

void check_few_outputs(Conv2dProblem p, std::mt19937& random, int threads = 1) {
  for (const DType type : kTypes) {
    p.dtype = type;
    const Sample sample = random_sample(p, random);
    for (const Target* target : supported_targets()) {
      REQUIRE(few_outputs_refusal(p, *target) == "");
      check_plan<FewOutputsPlan>(p, *target, threads, sample);
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
  CHECK(few_outputs_refusal(sized({.c = 21, .h = 6, .w = 6, .k = 8, .r = 3, .s = 3}, 0, 0), target) != "");
  CHECK(few_outputs_refusal(sized({.c = 16, .h = 6, .w = 6, .k = 8, .groups = 8}, 0, 0), target) != "");
  CHECK(few_outputs_refusal(sized({.c = 21, .h = 6, .w = 6, .k = 8, .pad_top = 1}, 1, 0), target) != "");
}

}  // namespace gable::cpu::test
