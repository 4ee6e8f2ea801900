// The 1x1 kernel against an f64 reference.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "cpu/common/cache.h"
#include "tests/cpu/conv2d_check.h"

namespace gable::cpu::test {

namespace {

/// A 1x1 convolution in the kernel made for it, which must take it, on every supported target.
void check_pointwise(Conv2dProblem p, std::mt19937& random, int threads = 1) {
  const Sample sample = random_sample(p, random);
  for (const Target* target : supported_targets()) {
    CHECK(PointwisePlan(p, *target, threads).workspace_bytes() <= static_cast<std::size_t>(threads) * (2u << 20));
    check_plan<PointwisePlan>(p, *target, threads, sample);
  }
}

}  // namespace

TEST_CASE("1x1 units of two threads are even, and a short product is one unit") {
  for (const Target* target : supported_targets()) {
    const PointwiseKernels& kernels = pointwise_kernels(*target);
    for (const Conv2dProblem& p :
         {sized({.c = 672, .h = 7, .w = 7, .k = 184}, 0, 0), sized({.c = 336, .h = 14, .w = 14, .k = 112}, 0, 0)}) {
      const PointwiseBlocking b = pointwise_blocking(p, kernels, 2);
      const auto work = [&](std::int64_t unit) {
        const std::int64_t pixels = unit / b.units.lane_blocks * b.units.pixels;
        const std::int64_t lanes = unit % b.units.lane_blocks * b.units.lanes;
        return static_cast<double>(std::min(b.units.pixels, b.pixels - pixels) * std::min(b.units.lanes, p.k - lanes));
      };
      const std::int64_t units = b.units.pixel_blocks * b.units.lane_blocks;
      INFO(describe(p) << " on " << target->name << ": " << units << " units");
      CHECK(parallel_time(2, units, work) < 0.56 * static_cast<double>(b.pixels * p.k));
    }
    const PointwiseBlocking one = pointwise_blocking(sized({.c = 24, .k = 32}, 0, 0), kernels, 2);
    CHECK(one.units.pixel_blocks * one.units.lane_blocks == 1);
  }
}

TEST_CASE("pointwise: channels around the run, lanes around panels, pixels around tiles") {
  std::mt19937 random(23);
  const std::int64_t pixels[] = {1, 5, 6, 7, 13, 14, 15, 29};
  int turn = 0;
  for (const std::int64_t c : {1, 3, 4, 15, 16, 17, 33, 64, 100}) {
    for (const std::int64_t k : {1, 5, 8, 16, 17, 20, 24, 31, 32, 33, 48, 64, 65, 96, 111, 128, 200}) {
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

TEST_CASE("pointwise: one panel of few vectors, in runs of tiles and with held weights") {
  std::mt19937 random(27);
  int turn = 0;
  for (const std::int64_t c : {1, 2, 7, 16, 23, 24, 25, 63, 100, 193}) {
    for (const std::int64_t k : {1, 3, 4, 7, 9, 13, 16, 17, 21, 24}) {
      const std::int64_t stride = 1 + turn % 2;
      Conv2dProblem p{.n = 1 + turn % 2, .c = c, .h = 6, .w = 15 + turn % 9, .k = k, .stride_h = 2, .stride_w = stride};
      p.bias = turn % 3 > 0;
      p.activation = turn % 5 < 2 ? Activation::none : Activation::relu;
      check_pointwise(sized(p, 0, 0), random, 1 + turn % 3);
      ++turn;
    }
  }
}

TEST_CASE("pointwise: several panels of few registers, block after block of pixels") {
  std::mt19937 random(79);
  for (const std::int64_t stride : {1, 2}) {
    for (const std::int64_t k : {25, 56, 104}) {
      // 128 KiB are 170 pixels of 192 channels: several blocks, the last one of part of a tile or of few rows.
      Conv2dProblem p{.n = 2, .c = 192, .h = 13, .w = 61, .k = k, .bias = k == 56};
      p.stride_h = p.stride_w = stride;
      p.activation = k == 56 ? Activation::relu : Activation::none;
      check_pointwise(sized(p, 0, 0), random, k == 25 ? 3 : 1);
    }
  }
  Conv2dProblem p{.c = 192, .h = 20, .w = 30, .k = 64};
  for (const Target* target : supported_targets()) {
    const PointwiseKernels& kernels = pointwise_kernels(*target);
    const bool few_registers = kernels.most_run_vectors >= kPanelVectors;
    INFO(target->name);
    CHECK((pointwise_blocking(sized(p, 0, 0), kernels, 1).run_pixels > 0) == few_registers);
    Conv2dProblem strided = p;
    strided.stride_h = strided.stride_w = 2;  // rows of 15 pixels
    CHECK(pointwise_blocking(sized(strided, 0, 0), kernels, 1).run_pixels == 0);
  }
}

TEST_CASE("pointwise: held weights in several passes over several blocks of pixels") {
  std::mt19937 random(28);
  std::uniform_real_distribution<float> value(-1, 1);
  for (const Target* target : supported_targets()) {
    const PointwiseKernels& kernels = pointwise_kernels(*target);
    if (kernels.held_weights == nullptr) continue;
    for (const std::int64_t channels : {1, 3, 24, 26, 49, 71, 200}) {
      constexpr std::int64_t kTiles = 19, kPixels = kTiles * kHeldPixels;
      const std::int64_t x_pixel = channels + 3;
      const auto lanes = static_cast<std::size_t>(kernels.lanes);
      std::vector<float> x(static_cast<std::size_t>(kPixels * x_pixel)), bias(lanes), y(kPixels * lanes, NAN);
      std::vector<float> weights(static_cast<std::size_t>(channels) * lanes);
      for (std::vector<float>* v : {&x, &bias, &weights})
        std::generate(v->begin(), v->end(), [&] { return value(random); });
      const PointwiseCall call{.in = {x.data(), x_pixel, channels},
                               .panels = {weights.data(), 1},
                               .out = {.bias = bias.data(),
                                       .y = y.data(),
                                       .type = DType::f32,
                                       .pixel = kernels.lanes,
                                       .lanes = kernels.lanes,
                                       .least = -std::numeric_limits<float>::infinity(),
                                       .non_temporal = false},
                               .prefetch = {},
                               .tiles = kTiles};
      kernels.held_weights(call);
      int wrong = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        double sum = bias[i % lanes], magnitude = std::abs(sum);
        for (std::int64_t c = 0; c < channels; ++c) {
          const double product =
              static_cast<double>(x[i / lanes * static_cast<std::size_t>(x_pixel) + static_cast<std::size_t>(c)]) *
              weights[static_cast<std::size_t>(c) * lanes + i % lanes];
          sum += product;
          magnitude += std::abs(product);
        }
        if (!(std::abs(y[i] - sum) <= 1e-6 * static_cast<double>(channels + 2) * magnitude)) ++wrong;
      }
      INFO(channels << " channels on " << target->name);
      CHECK(wrong == 0);
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

TEST_CASE("pointwise: pixels 4 KiB apart are copied where a tile has more of them than L1 has ways") {
  const PointwiseKernels& kernels = pointwise_kernels(best_target());
  const Conv2dProblem apart = sized({.c = 1040, .h = 28, .w = 28, .k = 64}, 0, 0);
  const Conv2dProblem aliased = sized({.c = 1024, .h = 28, .w = 28, .k = 64}, 0, 0);
  CHECK(!pointwise_blocking(apart, kernels, 1).copies_input);
  const bool more = kernels.most_pixels[kPanelVectors] > l1_bytes() / kL1WayBytes;
  CHECK(pointwise_blocking(aliased, kernels, 1).copies_input == more);
}

TEST_CASE("pointwise: a vector times a matrix reads each weight once, whatever L2 keeps") {
  const PointwiseKernels& kernels = pointwise_kernels(best_target());
  const Conv2dProblem vector = sized({.c = 2048, .k = 2048}, 0, 0);
  const PointwiseBlocking b = pointwise_blocking(vector, kernels, 1);
  CHECK(!b.panels_outside);
  CHECK(!b.copies_input);
  CHECK(b.tile.vectors == kMaxPointwiseVectors);
  const Conv2dProblem pixels = sized({.c = 2048, .h = 14, .w = 14, .k = 2048}, 0, 0);
  CHECK(pointwise_blocking(pixels, kernels, 1).panels_outside);
}

TEST_CASE("pointwise in 16 bits: pixels that come from memory are prefetched before they are widened") {
  const auto prefetches = [](std::int64_t pixels) {
    Conv2dProblem p = sized({.c = 256, .h = 1, .w = pixels, .k = 64}, 0, 0);
    p.dtype = DType::bf16;
    return pointwise_blocking(p, pointwise_kernels(best_target()), 1).prefetches_widened;
  };
  const std::int64_t kept = last_level_bytes() / 3 / (256 * 2);
  CHECK(!prefetches(kept));
  CHECK(prefetches(kept + 1));
}

TEST_CASE("pointwise in groups: channels, lanes, pixels and strides, as a vector, copied, and with weights beyond L2") {
  std::mt19937 random(29);
  const std::int64_t pixels[] = {1, 5, 14, 29, 61};
  int turn = 0;
  for (const std::int64_t c : {1, 3, 16, 20, 33, 70}) {
    for (const std::int64_t k : {9, 12, 16, 17, 24, 33, 40, 64, 100}) {
      const std::int64_t groups = 2 + turn % 5;
      Conv2dProblem p{.n = 1 + turn % 2, .c = groups * c, .h = 3, .w = pixels[turn % 5], .k = groups * k};
      p.groups = groups;
      p.bias = turn % 3 > 0;
      p.activation = turn % 4 < 2 ? Activation::none : Activation::relu;
      check_pointwise(sized(p, 0, 0), random, 1 + turn % 3);
      p.stride_h = 2;
      p.stride_w = 1 + turn % 3;
      check_pointwise(sized(p, 0, 0), random, 1 + turn % 2);
      ++turn;
    }
  }
  // Pixels 4 KiB apart, blocks of pixels that L2 keeps, and weights of a group beyond half of L2.
  for (const int threads : {1, 3}) {
    check_pointwise(sized({.c = 1024, .h = 5, .w = 13, .k = 96, .groups = 4, .bias = true}, 0, 0), random, threads);
    check_pointwise(sized({.c = 512, .h = 20, .w = 20, .k = 510, .groups = 2, .bias = true}, 0, 0), random, threads);
    check_pointwise(sized({.c = 2048, .h = 8, .w = 8, .k = 512, .groups = 2, .bias = true}, 0, 0), random, threads);
  }
}

TEST_CASE("pointwise in groups: a NaN stays in its group") {
  const Conv2dProblem p = sized({.c = 60, .h = 1, .w = 30, .k = 51, .groups = 3, .activation = Activation::relu}, 0, 0);
  std::vector<float> x(60 * 30, 1.0f), weights(51 * 20, -1.0f), y(51 * 30);
  x[17 * 60 + 27] = std::numeric_limits<float>::quiet_NaN();  // pixel 17, group 1
  for (const Target* target : supported_targets()) {
    PointwisePlan plan(p, *target, 1);
    std::vector<float> packed(plan.packed_bytes() / sizeof(float));
    plan.pack(weights.data(), dense_strides(p), packed.data());
    plan.run(x.data(), packed.data(), nullptr, y.data());
    int wrong = 0;
    for (std::size_t i = 0; i < y.size(); ++i) wrong += std::isnan(y[i]) == (i / 51 == 17 && i % 51 / 17 == 1) ? 0 : 1;
    CHECK(wrong == 0);
  }
}

TEST_CASE("pointwise in groups refuses 16 bits, and groups of at most half a vector") {
  Conv2dProblem p = sized({.c = 40, .h = 4, .w = 4, .k = 40, .groups = 10}, 0, 0);
  for (const Target* target : supported_targets()) {
    const int lanes = pointwise_kernels(*target).lanes;
    CHECK(pointwise_refusal(p, *target).empty() == (4 > lanes / 2));
    Conv2dProblem half = p;
    half.dtype = DType::f16;
    CHECK(pointwise_refusal(half, *target) == "10 groups of 16 bits: it takes one");
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

TEST_CASE("pointwise: a result beyond the last level's share, on aligned and unaligned addresses") {
  check_large_result<PointwisePlan>();
}

namespace {

/// A 1x1 convolution of 16-bit storage in f32 arithmetic, on every supported target.
void check_widened(Conv2dProblem p, std::mt19937& random, int threads = 1) {
  for (const DType type : {DType::f16, DType::bf16}) {
    p.dtype = type;
    const Sample sample = random_sample(p, random);
    for (const Target* target : supported_targets()) {
      REQUIRE(pointwise_refusal(p, *target) == "");
      check_plan<PointwisePlan>(p, *target, threads, sample);
    }
  }
}

}  // namespace

TEST_CASE("pointwise in 16 bits: odd channels, strides, threads, two pixels, and weights beyond half of L2") {
  std::mt19937 random(41);
  check_widened(sized({.w = 1, .k = 1}, 0, 0), random);
  check_widened(sized({.c = 70, .w = 2, .k = 300, .bias = true}, 0, 0), random);
  check_widened(sized({.n = 2, .c = 13, .h = 5, .w = 7, .k = 19, .bias = true}, 0, 0), random);
  check_widened(sized({.c = 24, .h = 64, .w = 91, .k = 36, .activation = Activation::relu}, 0, 0), random, 3);
  check_widened(sized({.n = 3, .c = 127, .h = 9, .w = 31, .k = 129, .stride_h = 2, .stride_w = 2}, 0, 0), random, 2);
  check_widened(sized({.n = 2, .c = 20, .h = 9, .w = 31, .k = 33, .stride_h = 3, .bias = true}, 0, 0), random);
  Conv2dProblem cropped = sized({.n = 2, .c = 20, .h = 40, .w = 64, .k = 70, .stride_h = 2}, 0, 0);
  cropped.wo -= 3;
  check_widened(cropped, random, 2);
  check_widened(sized({.n = 3, .c = 530, .h = 9, .w = 9, .k = 530, .bias = true}, 0, 0), random, 2);
  check_widened(sized({.c = 1024, .h = 4, .w = 9, .k = 40}, 0, 0), random);  // pixels of a tile share a set of L1
}

TEST_CASE("the strips of a 1x1 convolution's threads share no cache line, and lie 32 KiB apart") {
  Conv2dProblem p = sized({.c = 10, .w = 3, .k = 96}, 0, 0);
  p.dtype = DType::f16;  // 3 pixels of 10 channels are no whole number of lines
  const auto bytes = [&](int threads) { return PointwisePlan(p, best_target(), threads).workspace_bytes(); };
  const std::size_t strip = bytes(3) - bytes(2);
  CHECK(strip % 64 == 0);
  constexpr std::size_t kApart = 32 << 10;
  CHECK(strip > kApart);
  CHECK(strip < kApart + 4096);
}

}  // namespace gable::cpu::test
