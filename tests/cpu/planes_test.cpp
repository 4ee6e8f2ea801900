// The planes kernel against an f64 reference: f32 vectors on every target, the bf16 units of this machine and AMX's
// emulation, in every type and number of products.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "cpu/common/cache.h"
#include "cpu/planes/planes.h"
#include "tests/cpu/bf16_emulated.h"
#include "tests/cpu/conv2d_check.h"
#include "tests/tools/fast.h"

namespace gable::cpu::test {
namespace {

void check_unit(const Conv2dProblem& p, int products, const planes::TileUnit& unit, const Target& target, int threads,
                const Sample& sample) {
  INFO(describe(p) << " in " << products << " products on " << unit.name << ", " << target.name << ", " << threads
                   << " threads");
  CHECK(planes_refusal(p, products, unit).empty());
  PlanesPlan plan(p, products, unit, target, threads);
  INFO(plan.description().blocking << "; " << plan.description().fusion);
  const std::vector<float> packed = packed_weights(plan, p, sample.weights.data());
  GuardedOutput y(p.dtype, p.y_elements());
  DenormalOperands::forget();
  plan.run(sample.x.data(), packed.data(), sample.bias.data(), y.data());
  if (products == 0 && p.dtype != DType::f16) CHECK_FALSE(DenormalOperands::seen());
  check_output(p, products == 0 ? sample.expected : for_products(sample.expected, p, products), y);
}

void check_planes(Conv2dProblem p, std::mt19937& random, int threads = 1) {
  p.nhwc = false;
  for (const DType type : kTypes) {
    p.dtype = type;
    const Sample sample = random_sample(p, random);
    for (const Target* target : supported_targets()) {
      check_unit(p, 0, planes::vector_unit(*target), *target, threads, sample);
    }
    for (const auto& [of_type, products] : kPartProducts) {
      if (of_type != type) continue;
      for (const Target* target : supported_targets()) {
        check_unit(p, products, emulated_planes(), *target, threads, sample);
      }
      if (planes::amx_unit().missing.empty()) {
        check_unit(p, products, planes::amx_unit(), best_target(), threads, sample);
      }
      if (products == 1 && planes::dot_unit().missing.empty()) {
        check_unit(p, products, planes::dot_unit(), best_target(), threads, sample);
      }
    }
  }
}

}  // namespace

TEST_CASE("planes: kernels, strides, dilations, paddings, groups and epilogues") {
  std::mt19937 random(31);
  check_planes(same_padded({.n = 2, .c = 32, .h = 9, .w = 17, .k = 32, .r = 3, .s = 3}), random);
  check_planes(same_padded({.c = 70, .h = 7, .w = 7, .k = 45, .r = 3, .s = 3, .bias = true}), random);
  check_planes(sized({.c = 33, .h = 6, .w = 40, .k = 5, .r = 2, .s = 3}, 0, 0), random);
  check_planes(sized({.c = 64, .h = 6, .w = 33, .k = 33, .r = 3, .s = 3, .pad_top = 2, .pad_left = 1}, 0, 3), random);
  check_planes(sized({.c = 40,
                      .h = 12,
                      .w = 13,
                      .k = 20,
                      .r = 3,
                      .s = 3,
                      .stride_h = 2,
                      .stride_w = 3,
                      .pad_top = 1,
                      .pad_left = 1,
                      .activation = Activation::relu},
                     1, 1),
               random);
  check_planes(same_padded({.n = 3,
                            .c = 12,
                            .h = 14,
                            .w = 15,
                            .k = 18,
                            .r = 3,
                            .s = 3,
                            .dilation_h = 2,
                            .dilation_w = 3,
                            .groups = 3,
                            .bias = true,
                            .activation = Activation::tanh}),
               random, 2);
  check_planes(sized({.c = 3,
                      .h = 19,
                      .w = 37,
                      .k = 17,
                      .r = 7,
                      .s = 7,
                      .stride_h = 2,
                      .stride_w = 2,
                      .pad_top = 3,
                      .pad_left = 3,
                      .bias = true},
                     3, 2),
               random);
  check_planes(same_padded({.n = 2, .c = 24, .h = 5, .w = 31, .k = 24, .r = 1, .s = 7, .groups = 8}), random, 3);
  check_planes(sized({.c = 9, .h = 40, .w = 3, .k = 7, .r = 5, .s = 1, .pad_top = 4}, 1, 0), random);
}

TEST_CASE("planes: 1x1, with images in a row, in place, strided, and fewer pixels than a vector") {
  std::mt19937 random(32);
  const std::int64_t widths[] = {1, 7, 16, 31, 49, 67, 130};
  int turn = 0;
  for (const std::int64_t c : {1, 2, 15, 31, 33, 127, 129}) {
    for (const std::int64_t k : {1, 3, 13, 14, 15, 29, 128}) {
      Conv2dProblem p{.n = 1 + turn % 3, .c = c, .h = 1, .w = widths[turn % 7], .k = k, .bias = turn % 3 > 0};
      p.activation = turn % 5 < 2 ? Activation::none : Activation::relu;
      check_planes(sized(p, 0, 0), random, 1 + turn % 3);
      ++turn;
    }
  }
  check_planes(sized({.n = 8, .c = 20, .h = 7, .w = 7, .k = 40, .bias = true}, 0, 0), random);
  check_planes(sized({.n = 2, .c = 36, .h = 13, .w = 14, .k = 21, .stride_h = 2, .stride_w = 2}, 0, 0), random);
  check_planes(sized({.c = 5, .h = 11, .w = 16, .k = 6, .stride_h = 3, .stride_w = 3, .bias = true}, 0, 0), random);
  check_planes(sized({.c = 17, .h = 9, .w = 9, .k = 31, .pad_top = 1, .pad_left = 1}, 1, 1), random);
  for (const DType type : kTypes) {
    const Conv2dProblem p = sized({.c = 9, .h = 8, .w = 16, .k = 3, .dtype = type, .nhwc = false}, 0, 0);
    CHECK(PlanesPlan(p, best_target(), 1).description().fusion.find("input in place") == 0);
  }
}

TEST_CASE("planes: an input beyond L2, whose rows are prefetched, with a stride and without") {
  std::mt19937 random(38);
  const std::int64_t c = l2_bytes() / 2 / (64 * 33) + 3;  // also in 16 bits
  const auto strided = [&](std::int64_t window, std::int64_t stride) {
    const std::int64_t pad = window / 2;
    check_planes(sized({.c = c,
                        .h = 64,
                        .w = 33,
                        .k = 3,
                        .r = window,
                        .s = window,
                        .stride_h = stride,
                        .stride_w = stride,
                        .pad_top = pad,
                        .pad_left = pad},
                       pad, pad),
                 random);
  };
  strided(1, 2);
  strided(3, 3);
  if (!is_fast()) strided(3, 1);
}

TEST_CASE("planes: pools of any window and stride") {
  std::mt19937 random(33);
  const FusedPool pools[] = {{2, 2, 2, 2}, {3, 3, 2, 2}, {2, 2, 1, 1}, {3, 2, 3, 3}, {1, 2, 1, 2}};
  int turn = 0;
  for (const FusedPool& pool : pools) {
    Conv2dProblem p = same_padded({.n = 2, .c = 20, .h = 14, .w = 19, .k = 19, .r = 3, .s = 3, .bias = true});
    p.pool = pool;
    p.activation = turn % 2 == 0 ? Activation::relu : Activation::none;
    check_planes(p, random, 1 + turn % 2);
    ++turn;
  }
  Conv2dProblem wide = same_padded({.c = 40, .h = 6, .w = 700, .k = 9, .r = 3, .s = 3});
  wide.pool = {2, 2, 2, 2};
  check_planes(wide, random);
}

TEST_CASE("planes: strips cut by rows, by columns and by panels, for many threads") {
  std::mt19937 random(34);
  check_planes(same_padded({.c = 130, .h = 30, .w = 30, .k = 31, .r = 3, .s = 3}), random);
  check_planes(sized({.c = 2050, .h = 1, .w = 200, .k = 15}, 0, 0), random);
  check_planes(same_padded({.c = 520, .h = 7, .w = 60, .k = 17, .r = 1, .s = 3, .bias = true}), random, 4);
  check_planes(same_padded({.c = 16, .h = 5, .w = 5, .k = 300, .r = 3, .s = 3}), random, 6);
}

TEST_CASE("planes: NaN of padding, of neighbours and of an odd channel's pair reaches no output") {
  // A single channel lies before poisoned memory; the outputs must not see it.
  const Conv2dProblem p = [] {
    Conv2dProblem q = same_padded({.c = 3, .h = 6, .w = 9, .k = 4, .r = 3, .s = 3});
    q.nhwc = false;
    q.dtype = DType::bf16;
    return q;
  }();
  std::vector<std::uint16_t> x(static_cast<std::size_t>(p.x_elements() + 64), 0x7fc0);
  std::fill_n(x.begin(), p.x_elements(), std::uint16_t{0x3f80});
  const std::vector<std::uint16_t> weights(4 * 3 * 9, 0x3f80);
  std::vector<std::uint16_t> y(static_cast<std::size_t>(p.y_elements()));
  for (const planes::TileUnit* unit : {&emulated_planes(), &planes::dot_unit(), &planes::amx_unit()}) {
    if (!unit->missing.empty()) continue;
    PlanesPlan plan(p, 1, *unit, best_target(), 1);
    std::vector<float> packed(plan.packed_bytes() / sizeof(float));
    plan.pack(weights.data(), dense_strides(p), packed.data());
    plan.run(x.data(), packed.data(), nullptr, y.data());
    CHECK(y.front() == 0x4140);                                                 // 3 channels x 4 taps
    CHECK(std::count(y.begin(), y.end(), std::uint16_t{0x41d8}) == 4 * 4 * 7);  // 27, inside
    CHECK(std::none_of(y.begin(), y.end(), [](std::uint16_t v) { return (v & 0x7f80u) == 0x7f80u; }));
  }
}

TEST_CASE("planes: a result beyond the last level's share, on aligned and unaligned addresses") {
  check_large_result<PlanesPlan>({.h = 725, .w = 725, .k = 17, .ho = 725, .wo = 725, .nhwc = false, .bias = true});
}

TEST_CASE("planes: what it refuses") {
  const auto refused = [](const Conv2dProblem& p) { return planes_refusal(p, 0, planes::vector_unit(best_target())); };
  CHECK(refused({}).find("nhwc") != std::string::npos);
  CHECK(refused({.c = 4, .k = 4, .groups = 4, .nhwc = false}).find("depthwise") != std::string::npos);
  CHECK(refused({.c = 60000, .h = 9, .w = 9, .r = 9, .s = 9, .nhwc = false}).find("bytes") != std::string::npos);
}

}  // namespace gable::cpu::test
