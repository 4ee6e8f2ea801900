// The kernel of narrow groups against an f64 reference.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "tests/cpu/conv2d_check.h"

namespace gable::cpu::test {

namespace {

/// A plan of the kernels that multiply pairs of bf16.
class PairsPlan : public NarrowGroupsPlan {
 public:
  PairsPlan(const Conv2dProblem& p, const Target& target, int threads)
      : NarrowGroupsPlan(p, narrow_groups_dot_kernels(target, p), target, threads) {}
};

/// By pairs, where this CPU multiplies them and the problem has them.
bool check_pairs(Conv2dProblem p, std::mt19937& random, int threads) {
  p.dtype = DType::bf16;
  const Target& target = best_target();
  if (target.name != "avx512" || !missing_narrow_groups_dot().empty()) return false;
  if (!narrow_groups_dot_refusal(p, target).empty()) return false;
  check_plan<PairsPlan>(p, target, threads, random_sample(p, random));
  return true;
}

/// In one of the types in turn, on every supported target that takes it, and by pairs; returns how many do.
int check_narrow_groups(Conv2dProblem p, std::mt19937& random, int threads = 1) {
  check_pairs(p, random, threads);
  static std::size_t turn = 0;
  p.dtype = kTypes[turn++ % kTypes.size()];
  const Sample sample = random_sample(p, random);
  int taken = 0;
  for (const Target* target : supported_targets()) {
    if (!narrow_groups_refusal(p, *target).empty()) continue;
    check_plan<NarrowGroupsPlan>(p, *target, threads, sample);
    ++taken;
  }
  return taken;
}

}  // namespace

TEST_CASE(
    "narrow groups: every width of a group, groups that fill their last vector in part, and widths around tiles") {
  std::mt19937 random(91);
  const std::int64_t widths[] = {1, 2, 6, 7, 8, 12, 13, 14, 15, 29};
  int turn = 0;
  int taken = 0;
  for (const std::int64_t group_k : {1, 2, 3, 4, 5, 6, 7, 8}) {
    for (const std::int64_t group_c : {1, 2, 3, 4, 5, 8, 13, 16, 31}) {
      const std::int64_t groups = 2 + turn % 9;
      Conv2dProblem p{.n = 1 + turn % 2,
                      .c = groups * group_c,
                      .h = 5,
                      .w = widths[turn % 10],
                      .k = groups * group_k,
                      .r = 3,
                      .s = 3,
                      .pad_top = 1,
                      .pad_left = turn % 2,
                      .groups = groups,
                      .bias = turn % 3 > 0};
      p.activation = turn % 5 < 2 ? Activation::none : Activation::relu;
      taken += check_narrow_groups(sized(p, 1, 2 - turn % 2), random, 1 + turn % 3);
      ++turn;
    }
  }
  CHECK(taken > 0);
}

TEST_CASE("narrow groups: strides, dilations, flat and tall kernels, and padding beyond the image") {
  std::mt19937 random(92);
  int turn = 0;
  for (const std::int64_t stride : {1, 2, 5}) {
    for (const std::int64_t dilation : {1, 3}) {
      for (const auto& [r, s] : {std::pair{1, 1}, {1, 7}, {5, 1}, {4, 2}}) {
        const Conv2dProblem p{.n = 2,
                              .c = 24,
                              .h = 23,
                              .w = 37,
                              .k = 24,
                              .r = r,
                              .s = s,
                              .stride_h = stride,
                              .stride_w = stride,
                              .pad_top = turn % 3 == 1 ? 5 : 0,
                              .pad_left = turn % 4,
                              .dilation_h = dilation,
                              .dilation_w = dilation,
                              .groups = 6,
                              .bias = true};
        const std::int64_t pad = turn++ % 3 == 0 ? 4 : 0;
        check_narrow_groups(sized(p, pad, turn % 3), random, 1 + turn % 4);
      }
    }
  }
}

TEST_CASE("narrow groups: rows so wide that a unit has a part of them") {
  std::mt19937 random(93);
  const Conv2dProblem p{.c = 32, .h = 6, .w = 211, .k = 32, .r = 3, .s = 3, .groups = 8, .bias = true};
  check_narrow_groups(sized(p, 1, 1), random, 1);
  check_narrow_groups(sized(p, 1, 1), random, 5);
}

/// In every type on every supported target, and by pairs; by quads where the target and the pairs have them.
void check_quads(Conv2dProblem p, std::mt19937& random, int threads = 1) {
  check_pairs(p, random, threads);
  for (const DType type : kTypes) {
    p.dtype = type;
    const Sample sample = random_sample(p, random);
    for (const Target* target : supported_targets()) {
      if (narrow_groups_refusal(p, *target).empty()) check_plan<NarrowGroupsPlan>(p, *target, threads, sample);
    }
  }
}

TEST_CASE("narrow groups by quads: every register tile, and groups that the last block lacks") {
  std::mt19937 random(96);
  for (const std::int64_t group_k : {4, 8, 16}) {
    for (std::int64_t width = 1; width <= kMaxQuadsPixels + 1; ++width) {
      const std::int64_t group_c = 8 + 4 * (width % 4), groups = 3 + width % 3;
      const Conv2dProblem p{.n = 2,
                            .c = groups * group_c,
                            .h = 3,
                            .w = width,
                            .k = groups * group_k,
                            .r = 3,
                            .s = 3,
                            .pad_top = 1,
                            .pad_left = 1,
                            .groups = groups,
                            .bias = width % 3 > 0,
                            .activation = width % 2 > 0 ? Activation::relu : Activation::none};
      check_quads(sized(p, 1, 1), random, 1 + static_cast<int>(width % 2));
    }
  }
}

TEST_CASE("narrow groups by quads: strides, dilations, flat and tall kernels, padding beyond the image, wide rows") {
  std::mt19937 random(97);
  for (const std::int64_t group_k : {4, 8, 16}) {
    const Conv2dProblem layer{.c = 40, .h = 15, .w = 33, .k = 5 * group_k, .groups = 5, .bias = true};
    for (const std::int64_t stride : {1, 2, 5}) {
      for (const std::int64_t dilation : {1, 3}) {
        for (const auto& [r, s] : {std::pair{1, 1}, {1, 7}, {5, 1}, {4, 2}}) {
          Conv2dProblem p = layer;
          p.r = r;
          p.s = s;
          p.stride_h = p.stride_w = stride;
          p.dilation_h = p.dilation_w = dilation;
          p.pad_top = p.pad_left = dilation > 1 ? 5 : 0;
          check_quads(sized(p, p.pad_top, p.pad_left), random);
        }
      }
    }
    Conv2dProblem wide = layer;
    wide.w = 211;
    wide.r = wide.s = 3;
    for (const int threads : {1, 5}) check_quads(sized(wide, 0, 0), random, threads);
  }
}

TEST_CASE("narrow groups keep groups apart on every target: a NaN stays in its group") {
  std::mt19937 random(95);
  for (const std::int64_t width : {3, 4, 8}) {  // 8 by quads of channels with AVX-512
    const Conv2dProblem p = sized({.c = 5 * width, .h = 5, .w = 17, .k = 5 * width, .r = 3, .s = 3, .groups = 5}, 1, 1);
    const Sample sample = random_sample(p, random);
    std::vector<float> x(static_cast<std::size_t>(p.x_elements()), 1.0f);
    for (std::int64_t pixel = 0; pixel < p.h * p.w; ++pixel) x[static_cast<std::size_t>(pixel * p.c + 2 * width)] = NAN;
    for (const Target* target : supported_targets()) {
      if (!narrow_groups_refusal(p, *target).empty()) continue;
      INFO(target->name);
      NarrowGroupsPlan plan(p, *target, 1);
      const std::vector<float> packed = packed_weights(plan, p, sample.weights.data());
      std::vector<float> y(static_cast<std::size_t>(p.y_elements()));
      plan.run(x.data(), packed.data(), sample.bias.data(), y.data());
      int wrong = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        wrong += std::isnan(y[i]) == (static_cast<std::int64_t>(i) % p.k / width == 2) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("narrow groups by pairs keep groups apart: a NaN stays in its group") {
  std::mt19937 random(94);
  const Target& target = best_target();
  if (target.name != "avx512" || !missing_narrow_groups_dot().empty()) {
    MESSAGE("skipped: no AVX512-BF16");
    return;
  }
  for (const std::int64_t width : {4, 8, 16}) {  // 8 and 16 by quads of pairs
    const std::int64_t channels = 6 * width;
    Conv2dProblem p = sized({.c = channels, .h = 5, .w = 9, .k = channels, .r = 3, .s = 3, .groups = 6}, 1, 1);
    p.dtype = DType::bf16;
    const PairsPlan plan(p, target, 1);
    Sample sample = random_sample(p, random);
    const std::vector<float> packed = packed_weights(plan, p, sample.weights.data());
    std::vector<std::uint16_t> x(static_cast<std::size_t>(p.x_elements()), std::uint16_t{0x3f80});
    for (std::int64_t pixel = 0; pixel < p.h * p.w; ++pixel) {
      x[static_cast<std::size_t>(pixel * channels + 2 * width + 1)] = 0x7fc0;  // a channel of group 2
    }
    std::vector<std::uint16_t> y(static_cast<std::size_t>(p.y_elements()));
    PairsPlan(p, target, 1).run(x.data(), packed.data(), sample.bias.data(), y.data());
    int wrong = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const bool is_nan = (y[i] & 0x7fff) > 0x7f80;
      wrong += is_nan == (static_cast<std::int64_t>(i) % channels / width == 2) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("narrow groups of 8 channels and more are multiplied by quads with AVX-512, others by spread vectors") {
  const auto quads = [](std::int64_t group_c, std::int64_t group_k, const Target& target) {
    const Conv2dProblem p = sized({.c = 3 * group_c, .h = 9, .w = 9, .k = 3 * group_k, .groups = 3}, 0, 0);
    return narrow_groups_kernels(target, p).quads;
  };
  for (const Target* target : supported_targets()) {
    INFO(target->name);
    CHECK(quads(8, 8, *target) == (target->name == "avx512"));
    CHECK(quads(12, 4, *target) == (target->name == "avx512"));
    CHECK(!quads(4, 4, *target));
    CHECK(!quads(9, 8, *target));
    CHECK(!quads(8, 6, *target));
  }
}

TEST_CASE("narrow groups by pairs take quads where a group has 8, 16, 24... channels and 4, 8 or 16 outputs") {
  const Target& target = best_target();
  if (target.name != "avx512" || !missing_narrow_groups_dot().empty()) {
    MESSAGE("skipped: no AVX512-BF16");
    return;
  }
  const auto quads = [&](std::int64_t group_c, std::int64_t group_k) {
    Conv2dProblem p = sized({.c = 3 * group_c, .h = 9, .w = 9, .k = 3 * group_k, .groups = 3}, 0, 0);
    p.dtype = DType::bf16;
    return narrow_groups_dot_kernels(target, p).quads;
  };
  CHECK(quads(8, 8));
  CHECK(quads(16, 4));
  CHECK(quads(8, 16));
  CHECK(quads(32, 16));
  CHECK(!quads(12, 8));
  CHECK(!quads(8, 4));
  CHECK(!quads(8, 6));
}

TEST_CASE("narrow groups by pairs refuse other types and odd channels") {
  const Conv2dProblem p = sized({.c = 24, .h = 5, .w = 9, .k = 24, .r = 3, .s = 3, .groups = 6}, 1, 1);
  Conv2dProblem bf16 = p;
  bf16.dtype = DType::bf16;
  CHECK(narrow_groups_dot_refusal(bf16, best_target()) == narrow_groups_refusal(bf16, best_target()));
  CHECK(narrow_groups_dot_refusal(p, best_target()) == "it multiplies bf16");
  bf16.c = 18;
  CHECK(narrow_groups_dot_refusal(bf16, best_target()) == "3 input channels of a group: it multiplies pairs of them");
}

}  // namespace gable::cpu::test
