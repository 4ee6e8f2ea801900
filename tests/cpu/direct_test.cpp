// The plain convolution kernel, and with it every kernel that takes the same problems, against an f64 reference: shapes
// chosen for their edges, and random ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/common/cache.h"
#include "tests/cpu/conv2d_check.h"

namespace gable::cpu::test {

TEST_CASE("conv2d: kernel sizes, with and without padding") {
  std::mt19937 random(1);
  for (const std::int64_t kernel : {1, 2, 3, 4, 5, 7}) {
    check_everywhere_in("direct", sized({.n = 2, .c = 5, .h = 9, .w = 17, .k = 19, .r = kernel, .s = kernel}, 0, 0),
                        random);
    check_everywhere_in(
        "direct", same_padded({.n = 1, .c = 3, .h = 11, .w = 15, .k = 33, .r = kernel, .s = kernel, .bias = true}),
        random);
  }
  check_everywhere_in("direct", sized({.c = 4, .h = 5, .w = 20, .k = 8, .r = 1, .s = 7, .pad_left = 3}, 0, 3), random);
  check_everywhere_in("direct", sized({.c = 4, .h = 20, .w = 5, .k = 8, .r = 7, .s = 1, .pad_top = 3}, 3, 0), random);
}

TEST_CASE("conv2d: plans of 10^7 units and of units of 10^9 outputs are described at once") {
  const Conv2dProblem many = sized({.c = 12, .h = 103847, .w = 117632, .k = 3, .r = 2, .s = 3}, 0, 0);
  const Conv2dProblem long_row =
      sized({.n = 2, .c = 6, .h = 1, .w = 18, .k = 1, .s = 11, .pad_left = 1149}, 138, 1'996'866'057);
  for (Conv2dProblem p : {many, long_row}) {
    for (const Target* target : supported_targets()) {
      for (const bool nhwc : {true, false}) {
        p.nhwc = nhwc;
        const std::clock_t start = std::clock();
        const std::string fusion = Conv2dPlan(p, *target, 1).description().fusion;
        CHECK(std::clock() - start < CLOCKS_PER_SEC / 4);  // it took 0.6 and 7 s
        CAPTURE(fusion);
        CHECK(fusion.find("input ") == 0);
      }
    }
  }
}

TEST_CASE("conv2d: channel counts around the partition and the vector") {
  std::mt19937 random(2);
  for (const std::int64_t k : {1, 2, 15, 16, 17, 31, 64, 127, 128, 129, 257}) {
    check_everywhere_in("direct", same_padded({.c = 3, .h = 4, .w = 7, .k = k, .r = 3, .s = 3, .bias = true}), random);
  }
  for (const std::int64_t c : {1, 15, 16, 17, 33, 127, 128, 129}) {
    check_everywhere_in("direct", same_padded({.c = c, .h = 4, .w = 6, .k = 20, .r = 3, .s = 3}), random);
  }
  check_everywhere_in("direct", same_padded({.n = 1, .c = 129, .h = 3, .w = 5, .k = 129, .r = 3, .s = 3}), random);
}

TEST_CASE("conv2d: widths around the tile") {
  std::mt19937 random(3);
  for (std::int64_t w = 1; w <= 30; ++w) {
    for (const std::int64_t k : {4, 17, 35}) {  // one vector, two, and both, on most targets
      check_everywhere_in("direct", same_padded({.c = 3, .h = 2, .w = w, .k = k, .r = 3, .s = 3}), random);
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
      check_everywhere_in("direct", same_padded(p), random);
      p.stride_h = 1;
      check_everywhere_in("direct", sized(p, 0, 0), random);
    }
  }
}

TEST_CASE(
    "conv2d: a result beyond the last level's share is written with non-temporal stores, on aligned and unaligned "
    "addresses") {
  check_large_result<Conv2dPlan>();
}

template <class Plan>
bool streams(const Conv2dProblem& p, const Target& target) {
  return Plan(p, target, 1).description().fusion.find("non-temporal stores") != std::string::npos;
}

TEST_CASE("f32 results are written with non-temporal stores by the one rule of cache.h, whatever the kernel") {
  constexpr std::int64_t kRows = 64, kPixelBytes = 32 * sizeof(float);
  for (const std::int64_t more : {-1, 0, 1}) {
    const std::int64_t columns = last_level_bytes() / (kRows * kPixelBytes) + more;
    const bool beyond = beyond_last_level(kRows * columns * kPixelBytes);
    CHECK(beyond == (more > 0));
    const Conv2dProblem pointwise = sized({.c = 16, .h = kRows, .w = columns, .k = 32}, 0, 0);
    const Conv2dProblem depthwise =
        same_padded({.c = 32, .h = kRows, .w = columns, .k = 32, .r = 3, .s = 3, .groups = 32});
    for (const Target* target : supported_targets()) {
      INFO(target->name);
      CHECK(streams<Conv2dPlan>(pointwise, *target) == beyond);
      if (pointwise_refusal(pointwise, *target).empty()) CHECK(streams<PointwisePlan>(pointwise, *target) == beyond);
      if (depthwise_staged_refusal(depthwise, *target).empty())
        CHECK(streams<DepthwiseStagedPlan>(depthwise, *target) == beyond);
    }
  }
}

/// The smallest height with which outputs of 40 channels and 37 columns take more than L2.
std::int64_t rows_beyond_l2() { return l2_bytes() / (40 * 37 * 4) + 1; }

TEST_CASE("conv2d: tiles prefetch the output's lines where it is larger than L2") {
  std::mt19937 random(8);
  const std::int64_t rows = rows_beyond_l2();
  const Conv2dProblem large = same_padded({.c = 3, .h = rows, .w = 37, .k = 40, .r = 3, .s = 3, .bias = true});
  Conv2dProblem in_l2 = large;
  in_l2.h = in_l2.ho = rows - 1;
  const Conv2dProblem pooled = same_padded({.h = 2 * rows, .w = 74, .k = 40, .r = 3, .s = 3, .pool = {2, 2, 2, 2}});
  const Conv2dProblem pairs = same_padded({.n = rows, .c = 3, .h = 5, .w = 8, .k = 40, .r = 3, .s = 3});
  const auto prefetches = [](const Conv2dPlan& plan) {
    return plan.description().fusion.find("prefetched output") != std::string::npos;
  };
  for (const Target* target : supported_targets()) CHECK_FALSE(prefetches(Conv2dPlan(in_l2, *target, 1)));
  for (const Conv2dProblem& p : {large, pooled, pairs}) {
    const Sample sample = random_sample(p, random);
    for (const Target* target : supported_targets()) {
      CHECK(prefetches(Conv2dPlan(p, *target, 1)));
      check_plan<Conv2dPlan>(p, *target, 1, sample);
    }
  }
}

TEST_CASE("conv2d: dilation") {
  std::mt19937 random(5);
  for (const std::int64_t dilation : {2, 3, 6}) {
    check_everywhere_in(
        "direct",
        same_padded({.c = 5, .h = 16, .w = 19, .k = 9, .r = 3, .s = 3, .dilation_h = dilation, .dilation_w = dilation}),
        random);
    Conv2dProblem p{.c = 4, .h = 20, .w = 21, .k = 9, .r = 3, .s = 3, .stride_h = 2, .stride_w = 2};
    p.dilation_h = dilation;
    check_everywhere_in("direct", same_padded(p), random);
  }
}

TEST_CASE("conv2d: asymmetric padding, and inputs smaller than the kernel") {
  std::mt19937 random(6);
  check_everywhere_in(
      "direct", sized({.c = 3, .h = 6, .w = 8, .k = 5, .r = 3, .s = 4, .pad_top = 2, .pad_left = 1}, 0, 3), random);
  check_everywhere_in(
      "direct", sized({.c = 3, .h = 6, .w = 8, .k = 5, .r = 4, .s = 3, .pad_top = 0, .pad_left = 3}, 3, 0), random);
  check_everywhere_in(
      "direct", sized({.c = 3, .h = 2, .w = 1, .k = 5, .r = 5, .s = 5, .pad_top = 2, .pad_left = 2}, 2, 2), random);
  // Padding wider than the kernel: outputs that see no input at all.
  check_everywhere_in(
      "direct",
      sized({.c = 3, .h = 4, .w = 4, .k = 5, .r = 2, .s = 2, .pad_top = 4, .pad_left = 5, .bias = true}, 4, 5), random);
}

TEST_CASE("conv2d: groups of few channels whose pixels lie a multiple of 4 KiB apart are copied together") {
  std::mt19937 random(11);
  const auto check = [&random](Conv2dProblem p, std::int64_t stride) {
    p.stride_h = p.stride_w = stride;
    p.pad_top = p.pad_left = 1;
    p.bias = true;
    p = sized(p, 1, 1);
    p.nhwc = true;
    check_everywhere_in("direct", p, random);
  };
  check({.n = 2, .c = 512, .h = 8, .w = 9, .k = 512, .r = 3, .s = 3, .groups = 32}, 2);
  check({.c = 1024, .h = 5, .w = 6, .k = 192, .r = 3, .s = 3, .groups = 64, .activation = Activation::tanh}, 1);
  check({.c = 512, .h = 6, .w = 170, .k = 48, .r = 3, .s = 3, .groups = 16}, 2);  // more rows than L2 holds
  check({.c = 512, .h = 7, .w = 10, .k = 256, .r = 3, .s = 3, .groups = 8, .pool = {2, 2, 2, 2}}, 2);
}

TEST_CASE("conv2d: groups") {
  std::mt19937 random(7);
  for (const std::int64_t groups : {2, 4}) {
    check_everywhere_in(
        "direct",
        same_padded(
            {.n = 2, .c = 4 * groups, .h = 5, .w = 9, .k = 6 * groups, .r = 3, .s = 3, .groups = groups, .bias = true}),
        random);
  }
  // A channel multiplier: one input channel a group, several outputs.
  check_everywhere_in("direct", same_padded({.c = 6, .h = 5, .w = 5, .k = 18, .r = 3, .s = 3, .groups = 6}), random);
}

namespace {

/// A target's kernels as cores prefer them that stage input for near pixels.
const Conv2dKernels& near_kernels(const Target& target) {
  static const std::vector<Conv2dKernels> all = [] {
    std::vector<Conv2dKernels> found;
    for (const Target* supported : supported_targets()) {
      found.push_back(conv2d_kernels(*supported));
      found.back().prefers_near_pixels = found.back().near_tile[1] != nullptr;
    }
    return found;
  }();
  const auto& targets = supported_targets();
  return all.at(static_cast<std::size_t>(std::find(targets.begin(), targets.end(), &target) - targets.begin()));
}

struct NearPlan : Conv2dPlan {
  NearPlan(const Conv2dProblem& problem, const Target& target, int threads)
      : Conv2dPlan(problem, near_kernels(target), target, threads) {}
};

}  // namespace

TEST_CASE("conv2d: windows to one vector of outputs read a strip of near pixels, also two rows at a time") {
  std::mt19937 random(12);
  const auto check = [&](Conv2dProblem p, bool two_rows) {
    for (const DType type : kTypes) {
      p.dtype = type;
      const Sample sample = random_sample(p, random);
      for (const Target* target : supported_targets()) {
        const Conv2dKernels& kernels = near_kernels(*target);
        if (!kernels.prefers_near_pixels) continue;
        CAPTURE(p.w);
        const Conv2dBlocking b = choose_blocking(p, kernels, 1);
        CHECK(b.input.near_pixels);
        CHECK(b.tile.two_rows == two_rows);
        for (const int threads : {1, 3}) check_plan<NearPlan>(p, *target, threads, sample);
      }
    }
  };
  for (const std::int64_t w : {5, 7, 14, 15, 28, 31, 57}) {
    check(same_padded({.c = 48, .h = 7, .w = w, .k = 48, .r = 3, .s = 3, .groups = 3, .bias = true}), w <= 14);
  }
  check(same_padded({.n = 2, .c = 64, .h = 8, .w = 9, .k = 26, .r = 3, .s = 3, .groups = 2}), true);
  check(same_padded({.c = 96, .h = 9, .w = 20, .k = 33, .r = 5, .s = 3, .stride_h = 2, .dilation_w = 2, .groups = 3}),
        false);
  check(sized({.c = 32, .h = 2, .w = 30, .k = 32, .r = 3, .s = 7, .pad_top = 3, .pad_left = 6, .groups = 2}, 2, 1),
        false);
  // Fewer outputs in a row than the dilation: a strip of only the columns that taps read would be shorter.
  for (const std::int64_t dilation_w : {5, 18}) {
    Conv2dProblem p{.c = 32, .h = 8, .w = dilation_w - 1, .k = 32, .r = 3, .s = 3, .pad_top = 1, .groups = 2};
    p.pad_left = p.dilation_w = dilation_w;
    check(sized(p, 1, dilation_w), p.w <= 14);
  }
  Conv2dProblem hyperbolic{.c = 32, .h = 16, .w = 70, .k = 24, .r = 3, .s = 3, .groups = 2};
  hyperbolic.activation = Activation::tanh;
  check(same_padded(hyperbolic), false);
}

TEST_CASE("conv2d: bias, activations and pools") {
  std::mt19937 random(8);
  const FusedPool pools[] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 2, 2}, {2, 2, 1, 1},
                             {1, 3, 1, 2}, {3, 2, 1, 3}, {1, 1, 2, 2}, {5, 4, 5, 4}};
  for (const Activation activation : {Activation::none, Activation::relu, Activation::tanh}) {
    for (const FusedPool& pool : pools) {
      for (const bool bias : {false, true}) {
        check_everywhere_in("direct",
                            same_padded({.n = 2,
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
    check_everywhere_in("direct", sized({.c = 2, .h = 4, .w = w, .k = 4, .pool = {2, 2, 2, 2}}, 0, 0), random);
    check_everywhere_in("direct", sized({.c = 2, .h = 5, .w = w, .k = 35, .bias = true, .pool = {2, 2, 2, 2}}, 0, 0),
                        random);
  }
}

TEST_CASE("conv2d: input channels beyond one chunk of L2") {
  std::mt19937 random(9);
  check_everywhere_in("direct", same_padded({.c = 600, .h = 2, .w = 3, .k = 33, .r = 5, .s = 5, .bias = true}), random);
  check_everywhere_in(
      "direct", sized({.c = 3000, .h = 4, .w = 4, .k = 3, .r = 2, .s = 2, .bias = true, .pool = {2, 2, 2, 2}}, 1, 1),
      random);
  check_everywhere_in("direct", sized({.c = 60000, .h = 1, .w = 2, .k = 3, .bias = true}, 0, 0), random);
}

TEST_CASE("conv2d: weights beyond the caches, prefetched for the next panel, chunk and unit") {
  std::mt19937 random(72);
  const std::int64_t c = 512, taps = 9, bytes = last_level_bytes() * 5 / 16;
  const std::int64_t k = bytes / (c * taps * std::int64_t{sizeof(float)}) + 5;
  Conv2dProblem p = same_padded({.c = c, .h = 4, .w = 6, .k = k, .r = 3, .s = 3, .bias = true});
  const Sample sample = random_sample(p, random);
  for (const Target* target : supported_targets()) {
    CHECK(choose_blocking(p, conv2d_kernels(*target), 1).prefetches_weights);
    for (const int threads : {1, 2}) check_plan<Conv2dPlan>(p, *target, threads, sample);
  }
  const Conv2dKernels& kernels = conv2d_kernels(best_target());
  p.k -= 10;
  CHECK_FALSE(choose_blocking(p, kernels, 1).prefetches_weights);
  CHECK_FALSE(
      choose_blocking(same_padded({.c = c, .h = 3, .w = 6, .k = k, .r = 3, .s = 3}), kernels, 1).prefetches_weights);
  CHECK_FALSE(
      choose_blocking(same_padded({.c = c, .h = 4, .w = 5, .k = k, .r = 3, .s = 3}), kernels, 1).prefetches_weights);
}

TEST_CASE("conv2d: tiles prefetch the shares of the next weights in turn, twice") {
  const std::array<float, 32> weights{};
  WeightsAhead ahead{weights.data(), 8};
  for (std::int64_t tile = 0; tile < 2 * kAheadShare; ++tile) {
    CHECK(ahead.first == weights.data() + tile % kAheadShare * 8);
    ahead.next_tile();
  }
  CHECK(ahead.first == nullptr);
  ahead.next_tile();
  CHECK(ahead.first == nullptr);
}

TEST_CASE("conv2d: small images that share a unit, in pairs and one left over, whole or in chunks") {
  std::mt19937 random(12);
  for (const std::int64_t images : {2, 3, 7}) {
    for (const std::int64_t w : {2, 3, 7, 8}) {
      Conv2dProblem p{.n = images, .c = 18, .h = 5, .w = w, .k = 37, .r = 3, .s = 3, .bias = true};
      p.activation = Activation::relu;
      check_everywhere_in("direct", same_padded(p), random);
      check_everywhere_in("direct", same_padded(p), random, 2);
      p.r = p.s = 1;
      p.stride_h = p.stride_w = 2;
      check_everywhere_in("direct", sized(p, 0, 0), random);
    }
  }
  check_everywhere_in("direct", same_padded({.n = 3, .c = 1400, .h = 2, .w = 3, .k = 20, .r = 3, .s = 3, .bias = true}),
                      random);
}

TEST_CASE("conv2d: short rows of one image, two by two where their taps are the same, whole or in chunks") {
  std::mt19937 random(31);
  for (const std::int64_t h : {4, 9, 12}) {
    for (const std::int64_t w : {1, 3, 7}) {
      Conv2dProblem p{.c = 18, .h = h, .w = w, .k = 37, .r = 3, .s = 3, .bias = true};
      p.activation = Activation::relu;
      check_everywhere_in("direct", same_padded(p), random);
      p.r = 5;
      p.dilation_h = h > 9 ? 2 : 1;
      check_everywhere_in("direct", same_padded(p), random, 2);
      p.stride_h = 2;
      check_everywhere_in("direct", same_padded(p), random);
    }
  }
  check_everywhere_in("direct", same_padded({.c = 1400, .h = 5, .w = 3, .k = 20, .r = 3, .s = 3, .bias = true}),
                      random);
}

TEST_CASE("conv2d: units of two threads are even where rows do not halve") {
  for (const Target* target : supported_targets()) {
    const Conv2dProblem p = same_padded({.c = 224, .h = 17, .w = 17, .k = 256, .r = 7, .s = 1});
    const UnitGrid units = choose_blocking(p, conv2d_kernels(*target), 2).units;
    const auto work = [&](std::int64_t unit) {
      return static_cast<double>(unit_window(p, units, units.at(unit)).rows);
    };
    INFO(target->name << ": " << units.count() << " units of " << units.rows << " rows");
    CHECK(parallel_time(2, units.count(), work) < 0.53 * 2 * 17 * static_cast<double>(units.pixel_blocks));
  }
}

TEST_CASE("conv2d: threads that small images would leave without a unit get output channels of their own") {
  std::mt19937 random(77);
  for (const std::int64_t k : {40, 128, 200, 300}) {
    Conv2dProblem p{.c = 37, .h = 4, .w = 3, .k = k, .r = 3, .s = 3, .bias = true};
    p.activation = Activation::relu;
    for (const int threads : {3, 5, 8}) check_everywhere_in("direct", same_padded(p), random, threads);
    p.stride_h = p.stride_w = 2;
    check_everywhere_in("direct", same_padded(p), random, 8);
    p.c = 1400;  // several chunks
    check_everywhere_in("direct", same_padded(p), random, 8);
  }
  for (const Target* target : supported_targets()) {
    const Conv2dProblem p = same_padded({.c = 264, .h = 2, .w = 2, .k = 128, .r = 3, .s = 3});
    const Conv2dBlocking one = choose_blocking(p, conv2d_kernels(*target), 1);
    const Conv2dBlocking eight = choose_blocking(p, conv2d_kernels(*target), 8);
    CHECK(one.unit_lanes == 128);
    CHECK(eight.unit_lanes < 128);
    CHECK(eight.units.count() >= std::min<std::int64_t>(8, 128 / std::max<std::int64_t>(16, eight.tile.panel_lanes)));
  }
}

TEST_CASE("conv2d: several threads give the same as one") {
  std::mt19937 random(10);
  for (const int threads : {2, 3}) {
    check_everywhere_in("direct",
                        same_padded({.n = 3, .c = 9, .h = 13, .w = 29, .k = 130, .r = 3, .s = 3, .bias = true}), random,
                        threads);
    check_everywhere_in("direct",
                        same_padded({.n = 1, .c = 9, .h = 20, .w = 29, .k = 20, .r = 3, .s = 3, .pool = {3, 3, 2, 2}}),
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
    check_everywhere_in("direct", p, random, static_cast<int>(pick(1, 2)));
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
        const std::vector<float> packed = packed_weights(plan, p, &weight);
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

namespace {

std::string input_of(const Conv2dProblem& p) {
  const std::string fusion = Conv2dPlan(p, best_target(), 1).description().fusion;
  return fusion.substr(0, fusion.find(','));
}

}  // namespace

TEST_CASE("conv2d: pixels a multiple of 4 KiB apart are copied for few out tiles, and read in place for many") {
  std::mt19937 random(71);
  const Conv2dProblem strided{
      .c = 512, .h = 7, .w = 13, .k = 9, .r = 3, .s = 3, .stride_h = 2, .stride_w = 2, .pad_top = 1, .pad_left = 1};
  const Conv2dProblem wide{.c = 1024, .h = 3, .w = 5, .k = 520, .r = 1, .s = 3, .pad_left = 1};
  for (const Conv2dProblem& p : {sized(strided, 1, 1), sized(wide, 0, 1)}) {
    const Sample sample = random_sample(p, random);
    for (const Target* target : supported_targets()) check_plan<Conv2dPlan>(p, *target, 1, sample);
  }
  CHECK(input_of(sized(strided, 1, 1)) == "input staged");
  CHECK(input_of(sized(wide, 0, 1)) != "input staged");
  Conv2dProblem apart = strided;
  apart.c = 520;
  CHECK(input_of(sized(apart, 1, 1)) != "input staged");
}

TEST_CASE("conv2d: short rows of which many taps read padding are staged where tiles have few pixels") {
  const Target* target = find_target("avx2");
  if (target == nullptr || !target->supported) {
    MESSAGE("skipped: no avx2, whose tiles have few pixels");
    return;
  }
  const auto skips_padding = [&](std::int64_t columns) {
    const Conv2dProblem p = same_padded({.c = 16, .h = 7, .w = columns, .k = 32, .r = 5, .s = 5});
    return choose_blocking(p, conv2d_kernels(*target), 1).input.skips_padding;
  };
  CHECK(!skips_padding(7));
  CHECK(skips_padding(200));
}

TEST_CASE("conv2d: explains where the input is read") {
  const Conv2dProblem wide{.c = 16, .h = 20, .w = 200, .k = 32, .r = 3, .s = 3};
  CHECK(input_of(sized(wide, 0, 0)) == "input in place");
  CHECK(input_of(same_padded(wide)) == "input in place without its padding");
  Conv2dProblem p = same_padded(wide);
  p.nhwc = false;
  CHECK(input_of(p) == "input staged");
  p = same_padded(wide);
  p.dtype = DType::bf16;
  CHECK(input_of(p) == "input staged");
  CHECK(input_of(same_padded({.c = 16, .h = 20, .w = 200, .k = 32, .r = 5, .s = 5})) ==
        "input in place without its padding");
  // So much padding that one tap reads it at both ends: a strip at either end of a wide row. A row of two tiles has no
  // tile between.
  p = {.c = 16, .h = 20, .w = 200, .k = 32, .s = 3, .pad_left = 2};
  CHECK(input_of(sized(p, 0, 2)) == "input staged where tiles touch padding");
  p.w = 10;
  CHECK(input_of(sized(p, 0, 2)) == "input staged");
}

TEST_CASE("conv2d: explains the register tile that runs") {
  const Target& target = best_target();
  const std::int64_t w = conv2d_kernels(target).max_image_pair_pixels;
  const Conv2dProblem pairs = same_padded({.n = 2, .c = 16, .h = 3, .w = w, .k = 64, .r = 3, .s = 3});
  CHECK(Conv2dPlan(pairs, target, 1).description().tile.rfind("2x" + text(w) + " pixels", 0) == 0);
  const Conv2dProblem one_image = same_padded({.c = 16, .h = 9, .w = w, .k = 64, .r = 3, .s = 3});
  CHECK(Conv2dPlan(one_image, target, 1).description().tile.rfind("2x" + text(w) + " pixels", 0) == 0);
  const Conv2dProblem wider = same_padded({.c = 16, .h = 9, .w = w + 1, .k = 64, .r = 3, .s = 3});
  CHECK(Conv2dPlan(wider, target, 1).description().tile.rfind("1x" + text(w + 1) + " pixels", 0) == 0);
}

namespace {

/// Operands of a register tile of one row: `pixels` pixels, a 1x3 kernel, `channels` input lanes, one vector of lanes.
struct TileSample {
  std::int64_t pixels, channels, lanes;
  std::vector<float> x, weights, bias, sums, y;

  TileSample(std::int64_t tile_pixels, std::int64_t tile_channels, std::int64_t vector_lanes)
      : pixels(tile_pixels),
        channels(tile_channels),
        lanes(vector_lanes),
        x(static_cast<std::size_t>((pixels + 2) * channels)),
        weights(static_cast<std::size_t>(3 * channels * lanes + 2048)),  // tiles prefetch beyond
        bias(static_cast<std::size_t>(lanes), 0.25F),
        sums(static_cast<std::size_t>(pixels * lanes), 8.0F),
        y(static_cast<std::size_t>(pixels * lanes), -1.0F) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 5) - 2;
  }

  TileCall call() {
    return {.x = {x.data(), 0, channels, 0, channels, channels, 1},
            .weights = {weights.data(), 1, 3, 1, channels, channels},
            .taps = {{0, 1}, 0, 3},
            .prefetch = {.prefetch_taps = 1, .halo = 2, .output = true},
            .partial = {sums.data(), 0, lanes, false, false, nullptr},
            .y = {y.data(), 0, lanes, static_cast<int>(lanes), bias.data(), false, false}};
  }

  /// The products of taps [begin, end) of one output.
  float products(std::int64_t pixel, std::int64_t lane, std::int64_t begin, std::int64_t end) const {
    float sum = 0;
    for (std::int64_t kw = begin; kw < end; ++kw) {
      for (std::int64_t c = 0; c < channels; ++c) {
        sum += x[static_cast<std::size_t>((pixel + kw) * channels + c)] *
               weights[static_cast<std::size_t>((kw * channels + c) * lanes + lane)];
      }
    }
    return sum;
  }
};

}  // namespace

TEST_CASE("conv2d: taps that read padding at several pixels of a tile, and at both ends of a row") {
  std::mt19937 random(77);
  int turn = 0;
  for (const std::int64_t w : {3, 9, 17, 33}) {
    for (const auto& [s, dilation, pad, stride] : {std::array<std::int64_t, 4>{7, 1, 3, 1},
                                                   {5, 1, 2, 2},
                                                   {3, 6, 6, 1},
                                                   {3, 12, 12, 2},
                                                   {3, 1, 2, 1},
                                                   {1, 1, 4, 1}}) {
      Conv2dProblem p{.n = 1 + turn % 2,
                      .c = 5 + turn % 3 * 14,
                      .h = 4,
                      .w = w,
                      .k = turn % 2 == 0 ? 40 : 7,
                      .r = 1 + turn % 2,
                      .s = s,
                      .stride_w = stride,
                      .pad_left = pad,
                      .dilation_w = dilation,
                      .bias = true};
      p = sized(p, 0, pad);
      const Sample sample = random_sample(p, random);
      for (const Target* target : supported_targets()) check_plan<Conv2dPlan>(p, *target, 1 + turn % 2, sample);
      ++turn;
    }
  }
}

TEST_CASE("conv2d's register tile: padding taps skip the first and the last pixel, partial sums wait in memory") {
  for (const Target* target : supported_targets()) {
    const Conv2dKernels& kernels = conv2d_kernels(*target);
    for (std::int64_t pixels = 2; pixels <= kernels.max_narrow_pixels; ++pixels) {
      INFO(target->name << ", " << pixels << " pixels");
      const TileFunction tile = kernels.tile[1][pixels];
      TileSample whole(pixels, 3, kernels.lanes);
      tile(whole.call());
      TileSample edges(pixels, 3, kernels.lanes);
      TileCall call = edges.call();
      call.taps.left = 1;
      call.taps.right = 2;
      call.taps.first_column = -1;
      call.taps.columns = pixels;
      tile(call);
      TileSample later(pixels, 3, kernels.lanes);
      call = later.call();
      call.partial.load = call.partial.store = true;
      tile(call);
      TileSample no_rows(pixels, 3, kernels.lanes);
      call = no_rows.call();
      call.taps.rows = {1, 1};
      call.y.lanes = 1;
      tile(call);
      for (std::int64_t i = 0; i < pixels * kernels.lanes; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int64_t pixel = i / kernels.lanes, lane = i % kernels.lanes;
        const float all = whole.products(pixel, lane, 0, 3);
        CHECK(whole.y[at] == 0.25F + all);
        CHECK(edges.y[at] == 0.25F + edges.products(pixel, lane, pixel == 0 ? 1 : 0, pixel == pixels - 1 ? 2 : 3));
        CHECK(later.sums[at] == 8.0F + all);
        CHECK(later.y[at] == -1.0F);
        CHECK(no_rows.y[at] == (lane == 0 ? 0.25F : -1.0F));
      }
    }
  }
}

}  // namespace gable::cpu::test
