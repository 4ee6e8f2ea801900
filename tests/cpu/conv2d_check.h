// What the tests of the convolution kernels share: one problem in every kernel that takes it, on every supported
// target, storage type and layout, against an f64 reference.
#pragma once

#include <doctest/doctest.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cpu/common/aligned.h"
#include "cpu/depthwise/depthwise.h"
#include "cpu/depthwise/depthwise_planes.h"
#include "cpu/depthwise/depthwise_staged.h"
#include "cpu/direct/conv2d.h"
#include "cpu/few_channels/few_channels.h"
#include "cpu/few_outputs/few_outputs.h"
#include "cpu/narrow_groups/narrow_groups.h"
#include "cpu/planes/planes.h"
#include "cpu/pointwise/pointwise.h"
#include "tests/cpu/oracle.h"

namespace gable::cpu::test {

inline constexpr std::array kTypes = {DType::f32, DType::f16, DType::bf16};

/// Random operands of a problem, in logical nchw order, and what must come out.
struct Sample {
  Elements x, weights;
  std::vector<float> bias;
  std::vector<Expected> expected;
};

inline Sample random_sample(const Conv2dProblem& p, std::mt19937& random) {
  Sample sample{random_elements(p.dtype, p.x_elements(), random),
                random_elements(p.dtype, p.k * p.group_c() * p.r * p.s, random),
                std::vector<float>(static_cast<std::size_t>(p.k)),
                {}};
  std::generate(sample.bias.begin(), sample.bias.end(),
                [&] { return std::uniform_real_distribution<float>(-1, 1)(random); });
  sample.expected = conv2d_reference(p, sample.x, sample.weights, sample.bias);
  return sample;
}

template <class Plan>
std::vector<float> packed_weights(const Plan& plan, const Conv2dProblem& p, const void* weights) {
  std::vector<float> packed(plan.packed_bytes() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  plan.pack(weights, dense_strides(p), packed.data());
  return packed;
}

/// Whether an instruction of this thread had a denormal operand since forget(). Always false where no such flag is
/// known.
struct DenormalOperands {
#if defined(__x86_64__)
  static constexpr unsigned kFlag = 2;  // of MXCSR
  static void forget() { _mm_setcsr(_mm_getcsr() & ~kFlag); }
  static bool seen() { return (_mm_getcsr() & kFlag) != 0; }
#else
  static void forget() {}
  static bool seen() { return false; }
#endif
};

template <class Plan>
void check_plan(const Conv2dProblem& p, const Target& target, int threads, const Sample& sample) {
  INFO(describe(p) << " on " << target.name << " with " << threads << " threads");
  Plan plan(p, target, threads);
  INFO(plan.description().kernel << ": " << plan.description().tile << "; " << plan.description().blocking);
  const std::vector<float> packed = packed_weights(plan, p, sample.weights.data());
  const Elements in = in_layout(sample.x, p.nhwc, p.n, p.c, p.h, p.w);
  GuardedOutput y(p.dtype, p.y_elements());
  DenormalOperands::forget();
  plan.run(in.data(), packed.data(), sample.bias.data(), y.data());
  // leftovers.cpp puts denormals into workspaces. f16 has denormals of its own.
  if (p.dtype != DType::f16) CHECK_FALSE(DenormalOperands::seen());
  check_output(p, sample.expected, y);
}

/// How often each kernel ran.
using Runs = std::map<std::string, std::size_t>;

template <class Plan>
void check_if_taken(const Conv2dProblem& p, const Target& target, int threads, const Sample& sample,
                    const std::string& refusal, std::size_t& runs) {
  if (!refusal.empty()) return;
  check_plan<Plan>(p, target, threads, sample);
  ++runs;
}

inline void check_kernels(const Conv2dProblem& p, const Target& target, int threads, const Sample& sample, Runs& runs) {
  check_if_taken<DepthwiseStagedPlan>(p, target, threads, sample, depthwise_staged_refusal(p, target),
                                      runs["depthwise_staged"]);
  check_if_taken<DepthwisePlan>(p, target, threads, sample, depthwise_refusal(p, target), runs["depthwise"]);
  check_if_taken<DepthwisePlanesPlan>(p, target, threads, sample, depthwise_planes_refusal(p, target),
                                      runs["depthwise_planes"]);
  check_if_taken<FewChannelsPlan>(p, target, threads, sample, few_channels_refusal(p, target), runs["few_channels"]);
  check_if_taken<PlanesPlan>(p, target, threads, sample, planes_refusal(p, 0, planes::vector_unit(target)),
                             runs["planes"]);
  check_if_taken<NarrowGroupsPlan>(p, target, threads, sample, narrow_groups_refusal(p, target), runs["narrow_groups"]);
  check_if_taken<PointwisePlan>(p, target, threads, sample, pointwise_refusal(p, target), runs["pointwise"]);
  check_if_taken<FewOutputsPlan>(p, target, threads, sample, few_outputs_refusal(p, target), runs["few_outputs"]);
  // It takes all; of depthwise problems the small ones are enough.
  const bool slow = is_depthwise(p) && p.y_elements() > 10'000;
  check_if_taken<Conv2dPlan>(p, target, threads, sample, slow ? "slow" : "", runs["direct"]);
}

/// One problem on every supported target, type and layout, in every kernel that takes it.
inline Runs check_everywhere(Conv2dProblem p, std::mt19937& random, int threads = 1) {
  Runs runs;
  for (const DType type : kTypes) {
    p.dtype = type;
    const Sample sample = random_sample(p, random);
    for (const bool nhwc : {true, false}) {
      p.nhwc = nhwc;
      for (const Target* target : supported_targets()) check_kernels(p, *target, threads, sample, runs);
    }
  }
  return runs;
}

/// The runs of a kernel that takes every type, on every target, in one layout.
inline std::size_t runs_in_one_layout() { return kTypes.size() * supported_targets().size(); }

/// The same, where the kernel of that name must take the problem at least once.
inline void check_everywhere_in(const char* kernel, const Conv2dProblem& p, std::mt19937& random, int threads = 1) {
  Runs runs = check_everywhere(p, random, threads);
  CHECK_MESSAGE(runs[kernel] > 0, kernel << " refuses " << describe(p));
}

/// A 1x1 convolution of one image and channel, whose result does not fit the last level's share, on aligned and
/// unaligned addresses.
template <class Plan>
void check_large_result(const Conv2dProblem& p = {.h = 725, .w = 725, .k = 16, .ho = 725, .wo = 725, .bias = true}) {
  const std::int64_t pixels = p.ho * p.wo, count = p.k * pixels;
  std::mt19937 random(12);
  const Elements x = random_elements(DType::f32, pixels, random);
  const Elements weights = random_elements(DType::f32, p.k, random);
  const std::vector<float> bias(static_cast<std::size_t>(p.k), 0.5f);
  for (const Target* target : supported_targets()) {
    Plan plan(p, *target, 2);
    const std::vector<float> packed = packed_weights(plan, p, weights.data());
    for (const std::int64_t shift : {0, 1}) {
      INFO(target->name << ", y " << shift << " floats from a cache line");
      AlignedFloats y(static_cast<std::size_t>(count + 32), static_cast<std::size_t>(count + 32));
      float* first = y.data() + 16 + shift;
      plan.run(x.data(), packed.data(), bias.data(), first);
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t pixel = p.nhwc ? i / p.k : i % pixels, channel = p.nhwc ? i % p.k : i / pixels;
        const float expected =
            std::fma(x.at(static_cast<std::size_t>(pixel)), weights.at(static_cast<std::size_t>(channel)), 0.5f);
        if (!(std::abs(first[i] - expected) <= 1e-6f)) ++wrong;
      }
      CHECK(wrong == 0);
      CHECK(first[-1] == 0.0f);
      CHECK(first[count] == 0.0f);
    }
  }
}

}  // namespace gable::cpu::test
