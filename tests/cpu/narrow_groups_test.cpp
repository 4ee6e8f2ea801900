// The kernel of narrow groups against an f64 reference.
#include <doctest/doctest.h>

#include <random>

#include "tests/cpu/conv2d_check.h"

namespace gable::cpu::test {

namespace {

/// In one of the types in turn, on every supported target that takes it; returns how many do.
int check_narrow_groups(Conv2dProblem p, std::mt19937& random, int threads = 1) {
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

}  // namespace gable::cpu::test
