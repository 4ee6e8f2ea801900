// What the kernels for special shapes refuse, and their reasons.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <stdexcept>

#include "tests/cpu/conv2d_check.h"

namespace gable::cpu::test {
namespace {

template <class Plan>
void check_precautions() {
  const Target& target = best_target();
  Target foreign = target;
  foreign.supported = false;
  CHECK_THROWS_AS(Plan({}, foreign, 1), std::invalid_argument);
  CHECK_THROWS_AS(Plan({.stride_w = 0}, target, 1), std::invalid_argument);
  CHECK_THROWS_AS(Plan({}, target, 0), std::invalid_argument);
}

}  // namespace

TEST_CASE("plans of every kernel throw on a target that the CPU lacks, on impossible numbers and without threads") {
  check_precautions<Conv2dPlan>();
  check_precautions<DepthwisePlan>();
  check_precautions<DepthwisePlanesPlan>();
  check_precautions<DepthwiseStagedPlan>();
  check_precautions<FewChannelsPlan>();
  check_precautions<FewOutputsPlan>();
  check_precautions<PlanesPlan>();
  check_precautions<NarrowGroupsPlan>();
  check_precautions<PointwisePlan>();
}

TEST_CASE("the kernels for special shapes say what they are not made for") {
  const Target& target = best_target();
  const Conv2dProblem wide = sized({.c = 9, .h = 9, .w = 9, .k = 6, .r = 3, .s = 3}, 0, 0);
  CHECK(few_channels_refusal(wide, target).find("9 input channels") != std::string::npos);
  Conv2dProblem depthwise = sized({.c = 64, .h = 9, .w = 9, .k = 64, .r = 5, .s = 5, .groups = 64}, 0, 0);
  CHECK(depthwise_refusal(depthwise, target).empty());
  CHECK(depthwise_planes_refusal(depthwise, target).find("nhwc") != std::string::npos);
  depthwise.pool = {2, 2, 2, 2};
  CHECK(depthwise_refusal(depthwise, target).find("max-pool") != std::string::npos);
  depthwise.nhwc = false;
  CHECK(depthwise_refusal(depthwise, target).find("nchw") != std::string::npos);
  CHECK(depthwise_planes_refusal(depthwise, target).find("max-pool") != std::string::npos);
  depthwise.groups = 32;
  CHECK(depthwise_refusal(depthwise, target).find("32 groups of 2") != std::string::npos);
  CHECK(depthwise_planes_refusal(depthwise, target).find("32 groups of 2") != std::string::npos);
  CHECK(pointwise_refusal(wide, target).find("3x3") != std::string::npos);
  const auto narrow = [&](const Conv2dProblem& p) { return narrow_groups_refusal(p, target); };
  CHECK(narrow(sized({.c = 64, .h = 2, .w = 2, .k = 64, .groups = 2}, 0, 0)).find("32 output") != std::string::npos);
  const auto refused = [&](const Conv2dProblem& p) { return pointwise_refusal(p, target); };
  CHECK(refused(sized({.c = 4, .h = 2, .w = 2, .k = 4, .groups = 2}, 0, 0)).find("2 groups") != std::string::npos);
  CHECK(refused({.nhwc = false}).find("nchw") != std::string::npos);
  CHECK(refused({.activation = Activation::tanh}).find("tanh") != std::string::npos);
  CHECK(refused({.h = 2, .w = 2, .ho = 2, .wo = 2, .pool = {2, 2, 2, 2}}).find("max-pool") != std::string::npos);
  CHECK(refused({.h = 2, .w = 2, .ho = 3, .wo = 2}).find("padding") != std::string::npos);
  CHECK(refused({.c = 60000, .w = 100, .wo = 100}).find("60000 input channels") != std::string::npos);
  CHECK(refused({.c = 1000, .w = 5, .k = 1000, .wo = 5}).find("5 pixels under weights") != std::string::npos);
  CHECK(refused(sized({.c = 1000, .w = 14, .k = 9000}, 0, 0)).find("the last level") != std::string::npos);
}

}  // namespace gable::cpu::test
