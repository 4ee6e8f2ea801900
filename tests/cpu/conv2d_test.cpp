// The CPU convolution against an f64 reference: every supported target × storage type × layout over shapes chosen for
// their edges, and over random ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <random>
#include <stdexcept>

#include "cpu/depthwise/depthwise.h"
#include "cpu/depthwise/depthwise_planes.h"
#include "cpu/direct/conv2d.h"
#include "cpu/few_channels/few_channels.h"
#include "cpu/pointwise/pointwise.h"
#include "tests/cpu/oracle.h"

namespace gable::cpu::test {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

template <class Plan>
void check_plan(const Conv2dProblem& p, const Target& target, int threads, const Elements& x, const Elements& weights,
                const std::vector<float>& bias, const std::vector<Expected>& expected) {
  INFO(describe(p) << " on " << target.name << " with " << threads << " threads");
  Plan plan(p, target, threads);
  INFO(plan.description().kernel << ": " << plan.description().tile << "; " << plan.description().blocking);
  std::vector<float> packed(plan.packed_bytes() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  plan.pack(weights.data(), dense_strides(p), packed.data());
  const Elements in = in_layout(x, p.nhwc, p.n, p.c, p.h, p.w);
  GuardedOutput y(p.dtype, p.n * p.k * p.out_h() * p.out_w());
  plan.run(in.data(), packed.data(), bias.data(), y.data());
  check_output(p, expected, y);
}

/// One problem on every supported target, type and layout, in every kernel that takes it.
void check_everywhere(Conv2dProblem p, std::mt19937& random, int threads = 1) {
  for (const DType type : kTypes) {
    p.dtype = type;
    const Elements x = random_elements(type, p.n * p.c * p.h * p.w, random);
    const Elements weights = random_elements(type, p.k * (p.c / p.groups) * p.r * p.s, random);
    std::vector<float> bias(static_cast<std::size_t>(p.k));
    std::generate(bias.begin(), bias.end(), [&] { return std::uniform_real_distribution<float>(-1, 1)(random); });
    const std::vector<Expected> expected = conv2d_reference(p, x, weights, bias);
    for (const bool nhwc : {true, false}) {
      p.nhwc = nhwc;
      for (const Target* target : supported_targets()) {
        check_plan<Conv2dPlan>(p, *target, threads, x, weights, bias, expected);
        if (depthwise_refusal(p, *target).empty()) {
          check_plan<DepthwisePlan>(p, *target, threads, x, weights, bias, expected);
        }
        if (depthwise_planes_refusal(p, *target).empty()) {
          check_plan<DepthwisePlanesPlan>(p, *target, threads, x, weights, bias, expected);
        }
        if (few_channels_refusal(p, *target).empty()) {
          check_plan<FewChannelsPlan>(p, *target, threads, x, weights, bias, expected);
        }
        if (pointwise_refusal(p, *target).empty()) {
          check_plan<PointwisePlan>(p, *target, threads, x, weights, bias, expected);
        }
      }
    }
  }
}

/// A 1x1 convolution in the kernel made for it, which must take it, on every supported target.
void check_pointwise(Conv2dProblem p, std::mt19937& random, int threads = 1) {
  const Elements x = random_elements(p.dtype, p.n * p.c * p.h * p.w, random);
  const Elements weights = random_elements(p.dtype, p.k * p.c, random);
  std::vector<float> bias(static_cast<std::size_t>(p.k));
  std::generate(bias.begin(), bias.end(), [&] { return std::uniform_real_distribution<float>(-1, 1)(random); });
  const std::vector<Expected> expected = conv2d_reference(p, x, weights, bias);
  for (const Target* target : supported_targets()) {
    CHECK(PointwisePlan(p, *target, threads).workspace_bytes() <= static_cast<std::size_t>(threads) * (2u << 20));
    check_plan<PointwisePlan>(p, *target, threads, x, weights, bias, expected);
  }
}

/// Of a 1x1 convolution of one channel.
template <class Plan>
void check_large_result() {
  const Conv2dProblem p{.h = 725, .w = 725, .k = 16, .ho = 725, .wo = 725, .bias = true};
  const std::int64_t count = p.k * p.ho * p.wo;
  std::mt19937 random(12);
  const Elements x = random_elements(DType::f32, p.h * p.w, random);
  const Elements weights = random_elements(DType::f32, p.k, random);
  const std::vector<float> bias(static_cast<std::size_t>(p.k), 0.5f);
  for (const Target* target : supported_targets()) {
    Plan plan(p, *target, 2);
    std::vector<float> packed(plan.packed_bytes() / sizeof(float));
    plan.pack(weights.data(), dense_strides(p), packed.data());
    for (const std::int64_t shift : {0, 1}) {
      INFO(target->name << ", y " << shift << " floats from a cache line");
      AlignedFloats y(static_cast<std::size_t>(count + 32));
      float* first = y.data() + 16 + shift;
      plan.run(x.data(), packed.data(), bias.data(), first);
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const float expected =
            std::fma(x.at(static_cast<std::size_t>(i / p.k)), weights.at(static_cast<std::size_t>(i % p.k)), 0.5f);
        if (!(std::abs(first[i] - expected) <= 1e-6f)) ++wrong;
      }
      CHECK(wrong == 0);
      CHECK(first[-1] == 0.0f);
      CHECK(first[count] == 0.0f);
    }
  }
}

}  // namespace

TEST_CASE("conv2d: kernel sizes, with and without padding") {
  std::mt19937 random(1);
  for (const std::int64_t kernel : {1, 2, 3, 4, 5, 7}) {
    check_everywhere(sized({.n = 2, .c = 5, .h = 9, .w = 17, .k = 19, .r = kernel, .s = kernel}, 0, 0), random);
    check_everywhere(same_padded({.n = 1, .c = 3, .h = 11, .w = 15, .k = 33, .r = kernel, .s = kernel, .bias = true}),
                     random);
  }
  check_everywhere(sized({.c = 4, .h = 5, .w = 20, .k = 8, .r = 1, .s = 7, .pad_left = 3}, 0, 3), random);
  check_everywhere(sized({.c = 4, .h = 20, .w = 5, .k = 8, .r = 7, .s = 1, .pad_top = 3}, 3, 0), random);
}

TEST_CASE("conv2d: channel counts around the partition and the vector") {
  std::mt19937 random(2);
  for (const std::int64_t k : {1, 2, 15, 16, 17, 31, 64, 127, 128, 129, 257}) {
    check_everywhere(same_padded({.c = 3, .h = 4, .w = 7, .k = k, .r = 3, .s = 3, .bias = true}), random);
  }
  for (const std::int64_t c : {1, 15, 16, 17, 33, 127, 128, 129}) {
    check_everywhere(same_padded({.c = c, .h = 4, .w = 6, .k = 20, .r = 3, .s = 3}), random);
  }
  check_everywhere(same_padded({.n = 1, .c = 129, .h = 3, .w = 5, .k = 129, .r = 3, .s = 3}), random);
}

TEST_CASE("conv2d: widths around the tile") {
  std::mt19937 random(3);
  for (std::int64_t w = 1; w <= 30; ++w) {
    for (const std::int64_t k : {4, 17, 35}) {  // one vector, two, and both, on most targets
      check_everywhere(same_padded({.c = 3, .h = 2, .w = w, .k = k, .r = 3, .s = 3}), random);
    }
  }
}

TEST_CASE("conv2d: strides, also larger than the kernel") {
  std::mt19937 random(4);
  for (const std::int64_t stride : {2, 3, 5}) {
    for (const std::int64_t kernel : {1, 2, 3, 7}) {
      Conv2dProblem p{.n = 2, .c = 6, .h = 23, .w = 21, .k = 18, .r = kernel, .s = kernel};
      p.stride_h = stride;
      p.stride_w = stride;
      check_everywhere(same_padded(p), random);
      p.stride_h = 1;
      check_everywhere(sized(p, 0, 0), random);
    }
  }
}

TEST_CASE(
    "conv2d: a result beyond the last level's share is stored past the caches, on aligned and unaligned addresses") {
  check_large_result<Conv2dPlan>();
  check_large_result<PointwisePlan>();
}

TEST_CASE("few channels: a result beyond the last level's share, on aligned and unaligned addresses") {
  for (const std::int64_t k : {16, 32}) {  // on AVX-512 a vector and a pair
    Conv2dProblem p{.h = 725, .w = 726, .k = k, .r = 1, .s = 2, .ho = 725, .wo = 725, .bias = true};
    if (k == 32) p.h = p.ho = 363;
    const std::int64_t count = p.k * p.ho * p.wo;
    std::mt19937 random(13);
    const Elements x = random_elements(DType::f32, p.h * p.w, random);
    const Elements weights = random_elements(DType::f32, 2 * p.k, random);
    const std::vector<float> bias(static_cast<std::size_t>(p.k), 0.5f);
    for (const Target* target : supported_targets()) {
      FewChannelsPlan plan(p, *target, 2);
      std::vector<float> packed(plan.packed_bytes() / sizeof(float));
      plan.pack(weights.data(), dense_strides(p), packed.data());
      for (const std::int64_t shift : {0, 1}) {
        INFO(target->name << ", " << k << " channels, y " << shift << " floats from a cache line");
        AlignedFloats y(static_cast<std::size_t>(count + 32));
        float* first = y.data() + 16 + shift;
        plan.run(x.data(), packed.data(), bias.data(), first);
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t pixel = i / k / p.wo * p.w + i / k % p.wo;
          const auto tap = [&](std::int64_t kw) {
            return x.at(static_cast<std::size_t>(pixel + kw)) * weights.at(static_cast<std::size_t>(i % k * 2 + kw));
          };
          if (!(std::abs(first[i] - (tap(0) + tap(1) + 0.5f)) <= 1e-6f)) ++wrong;
        }
        CHECK(wrong == 0);
        CHECK(first[-1] == 0.0f);
        CHECK(first[count] == 0.0f);
      }
    }
  }
}

TEST_CASE("conv2d: dilation") {
  std::mt19937 random(5);
  for (const std::int64_t dilation : {2, 3, 6}) {
    check_everywhere(
        same_padded({.c = 5, .h = 16, .w = 19, .k = 9, .r = 3, .s = 3, .dilation_h = dilation, .dilation_w = dilation}),
        random);
    Conv2dProblem p{.c = 4, .h = 20, .w = 21, .k = 9, .r = 3, .s = 3, .stride_h = 2, .stride_w = 2};
    p.dilation_h = dilation;
    check_everywhere(same_padded(p), random);
  }
}

TEST_CASE("conv2d: asymmetric padding, and inputs smaller than the kernel") {
  std::mt19937 random(6);
  check_everywhere(sized({.c = 3, .h = 6, .w = 8, .k = 5, .r = 3, .s = 4, .pad_top = 2, .pad_left = 1}, 0, 3), random);
  check_everywhere(sized({.c = 3, .h = 6, .w = 8, .k = 5, .r = 4, .s = 3, .pad_top = 0, .pad_left = 3}, 3, 0), random);
  check_everywhere(sized({.c = 3, .h = 2, .w = 1, .k = 5, .r = 5, .s = 5, .pad_top = 2, .pad_left = 2}, 2, 2), random);
  // Padding wider than the kernel: outputs that see no input at all.
  check_everywhere(
      sized({.c = 3, .h = 4, .w = 4, .k = 5, .r = 2, .s = 2, .pad_top = 4, .pad_left = 5, .bias = true}, 4, 5), random);
}

TEST_CASE("few channels: kernels of one to five taps a row, of few and of many output channels, pooled or not") {
  std::mt19937 random(21);
  for (const std::int64_t k : {1, 2, 5, 6, 7, 8, 9, 16, 21, 40}) {
    for (const std::int64_t s : {1, 3, 5}) {
      Conv2dProblem p =
          sized({.n = 2, .c = 1 + k % 4, .h = 9, .w = 21 + k, .k = k, .r = 2, .s = s, .bias = k % 2 == 0}, 0, 0);
      p.activation = k % 3 == 0 ? Activation::relu : Activation::tanh;
      check_everywhere(p, random, 2);
      p.pool = {2, 2, 2, 2};
      check_everywhere(p, random);
    }
  }
}

TEST_CASE("few channels: strides, dilation and padding on every side") {
  std::mt19937 random(22);
  check_everywhere(sized({.c = 3,
                          .h = 23,
                          .w = 37,
                          .k = 20,
                          .r = 7,
                          .s = 7,
                          .stride_h = 2,
                          .stride_w = 2,
                          .pad_top = 3,
                          .pad_left = 3,
                          .bias = true},
                         3, 3),
                   random);
  check_everywhere(sized({.c = 7,
                          .h = 12,
                          .w = 19,
                          .k = 6,
                          .r = 3,
                          .s = 3,
                          .stride_h = 1,
                          .stride_w = 3,
                          .pad_top = 0,
                          .pad_left = 2,
                          .dilation_h = 2,
                          .dilation_w = 2},
                         4, 1),
                   random);
  check_everywhere(sized({.c = 8, .h = 5, .w = 3, .k = 3, .r = 5, .s = 5, .pad_top = 4, .pad_left = 4}, 4, 4), random);
  check_everywhere(sized({.c = 2, .h = 300, .w = 200, .k = 4, .r = 3, .s = 3, .pad_top = 1, .pad_left = 1}, 1, 1),
                   random, 2);
}

TEST_CASE("pointwise: channels around the run, lanes around panels, pixels around tiles") {
  std::mt19937 random(23);
  const std::int64_t pixels[] = {1, 5, 6, 7, 13, 14, 15, 29};
  int turn = 0;
  for (const std::int64_t c : {1, 3, 4, 15, 16, 17, 33, 64, 100}) {
    for (const std::int64_t k : {1, 5, 8, 16, 17, 31, 32, 33, 48, 64, 65, 96, 111, 128, 200}) {
      Conv2dProblem p{.n = 1 + turn % 2, .c = c, .h = 1, .w = pixels[turn % 8], .k = k, .bias = turn % 3 > 0};
      p.activation = turn % 5 < 2 ? Activation::none : Activation::relu;
      check_pointwise(sized(p, 0, 0), random, 1 + turn % 3);
      ++turn;
    }
  }
}

TEST_CASE("pointwise: strides, rows shorter and longer than a tile, and outputs that leave out the image's end") {
  std::mt19937 random(24);
  for (const std::int64_t w : {1, 4, 11, 27, 28, 60}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      Conv2dProblem p{.n = 2, .c = 20, .h = 5, .w = w, .k = 70, .stride_h = 2, .stride_w = stride, .bias = true};
      check_pointwise(sized(p, 0, 0), random, static_cast<int>(stride));
      p = sized(p, 0, 0);
      p.ho -= 1;
      p.wo = std::max<std::int64_t>(1, p.wo - 1);
      check_pointwise(p, random);
    }
  }
}

TEST_CASE("pointwise: pixels 4 KiB apart, and weights beyond half of L2") {
  std::mt19937 random(25);
  for (const int threads : {1, 3}) {
    check_pointwise(sized({.n = 2, .c = 1024, .h = 1, .w = 31, .k = 40, .bias = true}, 0, 0), random, threads);
    check_pointwise(sized({.c = 512, .h = 5, .w = 33, .k = 33, .stride_h = 2, .stride_w = 2}, 0, 0), random, threads);
    check_pointwise(sized({.n = 3, .c = 530, .h = 9, .w = 9, .k = 530, .bias = true}, 0, 0), random, threads);
    check_pointwise(sized({.c = 530, .h = 7, .w = 9, .k = 521, .stride_h = 2, .stride_w = 2}, 0, 0), random, threads);
  }
}

TEST_CASE("pointwise: NaN reaches the outputs of its pixel through relu, and no others") {
  Conv2dProblem p = sized({.c = 20, .h = 1, .w = 30, .k = 40, .activation = Activation::relu}, 0, 0);
  const std::size_t poisoned = 17;
  std::vector<float> x(20 * 30, 1.0f), weights(40 * 20, -1.0f), y(40 * 30);
  x[poisoned * 20 + 7] = std::numeric_limits<float>::quiet_NaN();
  for (const Target* target : supported_targets()) {
    PointwisePlan plan(p, *target, 1);
    std::vector<float> packed(plan.packed_bytes() / sizeof(float));
    plan.pack(weights.data(), dense_strides(p), packed.data());
    plan.run(x.data(), packed.data(), nullptr, y.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      CHECK(std::isnan(y[i]) == (i / 40 == poisoned));
      if (i / 40 != poisoned) CHECK(y[i] == 0);
    }
  }
}

TEST_CASE("depthwise 3x3: strides, edges, single rows, channel tails, and outputs that leave the caches") {
  std::mt19937 random(23);
  for (const std::int64_t stride : {1, 2}) {
    for (const std::int64_t pad : {0, 1}) {
      for (const std::int64_t size : {3, 4, 7, 9, 10, 13, 14}) {  // also rows of 7 outputs, with padding on either side
        // Below and above two vectors of every target, with a tail.
        const std::int64_t channels = size == 7 ? 17 : 33 + size;
        Conv2dProblem p{.n = 2, .c = channels, .h = size, .w = size, .k = channels, .r = 3, .s = 3};
        p.stride_h = p.stride_w = stride;
        p.pad_top = p.pad_left = pad;
        p.groups = p.c;
        p.bias = pad == 1;
        p.activation = size % 2 == 0 ? Activation::relu : Activation::none;
        check_everywhere(sized(p, pad, pad), random, size > 9 ? 3 : 1);
      }
    }
  }
  check_everywhere(sized({.c = 40, .h = 8, .w = 8, .k = 40, .r = 3, .s = 3, .groups = 40}, 0, 1), random);
  Conv2dProblem p{.c = 144, .h = 64, .w = 64, .k = 144, .r = 3, .s = 3, .groups = 144, .bias = true};
  check_everywhere(same_padded(p), random, 2);
  p = {.n = 2, .c = 3, .h = 90, .w = 131, .k = 3, .r = 3, .s = 3, .groups = 3};  // several blocks of rows a plane
  for (const std::int64_t stride : {1, 2}) {
    p.stride_h = p.stride_w = stride;
    check_everywhere(sized(p, 2, 2), random, 2);
  }
}

TEST_CASE("depthwise 3x3 of bf16: every kind of NaN reaches exactly the outputs that it belongs to") {
  constexpr std::int64_t kChannels = 64, kSize = 5;
  Conv2dProblem p{.c = kChannels, .h = kSize, .w = kSize, .k = kChannels, .r = 3, .s = 3, .groups = kChannels};
  p.dtype = DType::bf16;
  p.bias = true;
  p = sized(p, 0, 0);
  for (const Target* target : supported_targets()) {
    for (const auto pattern : std::to_array<std::uint16_t>({0x7fff, 0xffff, 0x7f81, 0xffc0})) {
      std::vector<std::uint16_t> x(kSize * kSize * kChannels, 0x3f80);
      std::vector<float> bias(kChannels, 0.5F);
      x[3] = pattern;                               // the corner pixel of channel 3 reaches output pixel 0 alone
      bias[8] = std::bit_cast<float>(0x7fffffffU);  // and the bias of channel 8 all of its outputs
      const std::vector<std::uint16_t> weights(kChannels * 9, 0x3f80);
      DepthwisePlan plan(p, *target, 1);
      std::vector<float> packed(plan.packed_bytes() / sizeof(float));
      plan.pack(weights.data(), dense_strides(p), packed.data());
      GuardedOutput y(DType::bf16, 9 * kChannels);
      plan.run(x.data(), packed.data(), bias.data(), y.data());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < 9 * kChannels; ++i) {
        const bool nan = i == 3 || i % kChannels == 8;
        wrong += nan ? !std::isnan(y.at(i)) : y.at(i) != 9.5F;
      }
      INFO(pattern << " on " << target->name);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("the kernels for special shapes say what they are not made for") {
  const Target& target = best_target();
  const Conv2dProblem wide = sized({.c = 9, .h = 9, .w = 9, .k = 6, .r = 3, .s = 3}, 0, 0);
  CHECK(few_channels_refusal(wide, target).find("9 input channels") != std::string::npos);
  CHECK_THROWS_AS(FewChannelsPlan(wide, target, 1), std::invalid_argument);
  const Conv2dProblem large = sized({.c = 64, .h = 9, .w = 9, .k = 64, .r = 5, .s = 5, .groups = 64}, 0, 0);
  CHECK(depthwise_refusal(large, target).find("5x5") != std::string::npos);
  CHECK_THROWS_AS(DepthwisePlan(large, target, 1), std::invalid_argument);
  CHECK(pointwise_refusal(wide, target).find("3x3") != std::string::npos);
  CHECK_THROWS_AS(PointwisePlan(wide, target, 1), std::invalid_argument);
  const auto refused = [&](const Conv2dProblem& p) { return pointwise_refusal(p, target); };
  CHECK(refused(sized({.c = 4, .h = 2, .w = 2, .k = 4, .groups = 2}, 0, 0)).find("2 groups") != std::string::npos);
  CHECK(refused({.dtype = DType::bf16}).find("bf16") != std::string::npos);
  CHECK(refused({.nhwc = false}).find("nchw") != std::string::npos);
  CHECK(refused({.activation = Activation::tanh}).find("tanh") != std::string::npos);
  CHECK(refused({.h = 2, .w = 2, .ho = 2, .wo = 2, .pool = {2, 2, 2, 2}}).find("max-pool") != std::string::npos);
  CHECK(refused({.h = 2, .w = 2, .ho = 3, .wo = 2}).find("padding") != std::string::npos);
  CHECK(refused({.c = 60000}).find("60000 input channels") != std::string::npos);
  CHECK(refused({.c = 1000, .k = 1000}).find("1 pixels under weights") != std::string::npos);
  CHECK(refused(sized({.c = 1000, .w = 14, .k = 9000}, 0, 0)).find("the last level") != std::string::npos);
}

TEST_CASE("conv2d: groups and depthwise") {
  std::mt19937 random(7);
  for (const std::int64_t groups : {2, 4}) {
    check_everywhere(
        same_padded(
            {.n = 2, .c = 4 * groups, .h = 5, .w = 9, .k = 6 * groups, .r = 3, .s = 3, .groups = groups, .bias = true}),
        random);
  }
  for (const std::int64_t channels : {2, 16, 31, 128, 130, 256}) {
    Conv2dProblem p{.n = 2, .c = channels, .h = 7, .w = 17, .k = channels, .r = 3, .s = 3};
    p.groups = channels;
    p.bias = true;
    check_everywhere(same_padded(p), random);
    check_everywhere(sized(p, 0, 0), random);
    p.stride_h = p.stride_w = 2;
    p.activation = Activation::relu;
    check_everywhere(same_padded(p), random);
    p.pool = {2, 2, 2, 2};
    check_everywhere(same_padded(p), random);
  }
  // A channel multiplier: one input channel a group, several outputs.
  check_everywhere(same_padded({.c = 6, .h = 5, .w = 5, .k = 18, .r = 3, .s = 3, .groups = 6}), random);
  check_everywhere(sized({.c = 40, .h = 6, .w = 6, .k = 40, .r = 1, .s = 1, .groups = 40}, 0, 0), random);
}

TEST_CASE("conv2d: bias, activations and pools") {
  std::mt19937 random(8);
  const FusedPool pools[] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 2, 2}, {2, 2, 1, 1},
                             {1, 3, 1, 2}, {3, 2, 1, 3}, {1, 1, 2, 2}, {5, 4, 5, 4}};
  for (const Activation activation : {Activation::none, Activation::relu, Activation::tanh}) {
    for (const FusedPool& pool : pools) {
      for (const bool bias : {false, true}) {
        check_everywhere(same_padded({.n = 2,
                                      .c = 3,
                                      .h = 11,
                                      .w = 27,
                                      .k = 17,
                                      .r = 3,
                                      .s = 3,
                                      .bias = bias,
                                      .activation = activation,
                                      .pool = pool}),
                         random);
      }
    }
  }
  for (std::int64_t w = 2; w <= 27; ++w) {
    check_everywhere(sized({.c = 2, .h = 4, .w = w, .k = 4, .pool = {2, 2, 2, 2}}, 0, 0), random);
    check_everywhere(sized({.c = 2, .h = 5, .w = w, .k = 35, .bias = true, .pool = {2, 2, 2, 2}}, 0, 0), random);
  }
}

TEST_CASE("conv2d: input channels beyond one chunk of L2") {
  std::mt19937 random(9);
  check_everywhere(same_padded({.c = 600, .h = 2, .w = 3, .k = 33, .r = 5, .s = 5, .bias = true}), random);
  check_everywhere(sized({.c = 3000, .h = 4, .w = 4, .k = 3, .r = 2, .s = 2, .bias = true, .pool = {2, 2, 2, 2}}, 1, 1),
                   random);
  check_everywhere(sized({.c = 60000, .h = 1, .w = 2, .k = 3, .bias = true}, 0, 0), random);
}

TEST_CASE("conv2d: small images that share a unit, in pairs and one left over, whole or in chunks") {
  std::mt19937 random(12);
  for (const std::int64_t images : {2, 3, 7}) {
    for (const std::int64_t w : {2, 3, 7, 8}) {
      Conv2dProblem p{.n = images, .c = 18, .h = 5, .w = w, .k = 37, .r = 3, .s = 3, .bias = true};
      p.activation = Activation::relu;
      check_everywhere(same_padded(p), random);
      check_everywhere(same_padded(p), random, 2);
      p.r = p.s = 1;
      p.stride_h = p.stride_w = 2;
      check_everywhere(sized(p, 0, 0), random);
    }
  }
  check_everywhere(same_padded({.n = 3, .c = 1400, .h = 2, .w = 3, .k = 20, .r = 3, .s = 3, .bias = true}), random);
}

TEST_CASE("conv2d: several threads give the same as one") {
  std::mt19937 random(10);
  for (const int threads : {2, 3}) {
    check_everywhere(same_padded({.n = 3, .c = 9, .h = 13, .w = 29, .k = 130, .r = 3, .s = 3, .bias = true}), random,
                     threads);
    check_everywhere(same_padded({.n = 1, .c = 9, .h = 20, .w = 29, .k = 20, .r = 3, .s = 3, .pool = {3, 3, 2, 2}}),
                     random, threads);
  }
}

TEST_CASE("conv2d: random shapes") {
  std::mt19937 random(11);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  int checked = 0;
  while (checked < 300) {
    Conv2dProblem p;
    p.groups = pick(0, 3) == 0 ? pick(1, 5) : 1;
    p.n = pick(1, 3);
    p.c = p.groups * pick(1, pick(0, 5) == 0 ? 40 : 7);
    p.k = p.groups * pick(1, pick(0, 5) == 0 ? 70 : 20);
    p.h = pick(1, 12);
    p.w = pick(1, 34);
    p.r = pick(1, 5);
    p.s = pick(1, 5);
    p.stride_h = pick(1, 3);
    p.stride_w = pick(1, 3);
    p.dilation_h = pick(1, 2);
    p.dilation_w = pick(1, 3);
    p.pad_top = pick(0, 3);
    p.pad_left = pick(0, 3);
    p.bias = pick(0, 1) == 1;
    p.activation = static_cast<Activation>(pick(0, 2));
    const std::int64_t bottom = pick(0, 3);
    const std::int64_t right = pick(0, 3);
    if (p.h + p.pad_top + bottom < (p.r - 1) * p.dilation_h + 1) continue;
    if (p.w + p.pad_left + right < (p.s - 1) * p.dilation_w + 1) continue;
    p = sized(p, bottom, right);
    if (pick(0, 1) == 1) p.pool = {pick(1, 3), pick(1, 3), pick(1, 3), pick(1, 3)};
    if (pick(0, 3) == 0) p.pool = {2, 2, 2, 2};
    if (p.ho < p.pool.h || p.wo < p.pool.w) continue;
    check_everywhere(p, random, static_cast<int>(pick(1, 2)));
    ++checked;
  }
}

TEST_CASE("conv2d: NaN reaches the output through relu and pool") {
  for (const FusedPool& pool : {FusedPool{}, FusedPool{2, 2, 2, 2}, FusedPool{2, 2, 1, 1}}) {
    for (const Target* target : supported_targets()) {
      for (std::size_t position = 0; position < 4; ++position) {
        INFO(target->name << " pool " << pool.h << " stride " << pool.stride_h << " position " << position);
        Conv2dProblem p{.h = 2, .w = 2, .ho = 2, .wo = 2, .activation = Activation::relu, .pool = pool};
        Conv2dPlan plan(p, *target, 1);
        const float weight = 1.0f;
        std::vector<float> packed(plan.packed_floats());
        plan.pack(&weight, dense_strides(plan.problem()), packed.data());
        float x[4] = {1.0f, 2.0f, -3.0f, 4.0f};
        x[position] = std::numeric_limits<float>::quiet_NaN();
        float y[4] = {};
        plan.run(x, packed.data(), nullptr, y);
        CHECK(std::isnan(y[pool.none() ? position : 0]));
      }
    }
  }
}

TEST_CASE("conv2d: an inconsistent problem is refused with the offending value") {
  const Target& target = best_target();
  CHECK_THROWS_WITH_AS(Conv2dPlan({.c = 6, .k = 4, .groups = 4}, target, 1),
                       "conv2d: c is 6, must be a multiple of groups (4)", std::invalid_argument);
  CHECK_THROWS_WITH_AS(Conv2dPlan({.stride_w = 0}, target, 1), "conv2d: stride_w is 0, must be at least 1",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(Conv2dPlan({}, target, 0), "conv2d: threads is 0, must be at least 1", std::invalid_argument);
  CHECK_THROWS_AS(Conv2dPlan({.pool = {2, 2, 2, 2}}, target, 1), std::invalid_argument);
  Target foreign = target;
  foreign.supported = false;
  CHECK_THROWS_AS(Conv2dPlan({}, foreign, 1), std::invalid_argument);
}

TEST_CASE("conv2d: a thread's workspace stays within 2 MiB") {
  for (const Target* target : supported_targets()) {
    for (const DType type : kTypes) {
      for (const bool nhwc : {true, false}) {
        for (const FusedPool& pool : {FusedPool{}, FusedPool{2, 2, 2, 2}, FusedPool{3, 3, 2, 2}}) {
          for (const std::int64_t channels : {64, 256, 2048}) {
            Conv2dProblem p{.n = 16, .c = channels, .h = 224, .w = 224, .k = channels, .r = 3, .s = 3};
            p.dtype = type;
            p.nhwc = nhwc;
            p.pool = pool;
            p.activation = Activation::tanh;
            CHECK(Conv2dPlan(same_padded(p), *target, 2).workspace_bytes() <= 2u * (2u << 20));
          }
        }
      }
    }
  }
}

}  // namespace gable::cpu::test
