// Convolutions on bf16 units against an f64 reference: the plain C++ unit on every target, and the units of this CPU;
// bf16, and f32 as 3 and 6 products of parts.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "cpu/bf16/blocking.h"
#include "cpu/bf16/conv2d.h"
#include "cpu/bf16/work_unit.h"
#include "cpu/common/cache.h"
#include "tests/cpu/bf16_emulated.h"
#include "tests/cpu/oracle.h"
#include "tests/tools/fast.h"

namespace gable::cpu::test {
namespace {

Bf16Unit anything_goes(const Bf16Unit& unit) {
  Bf16Unit copy = unit;
  copy.most_padding = 1e9;
  return copy;
}

/// The units that this machine has, without their limits on wasted work; one that takes single halves twice, as it
/// reads windows in a strip and in the image.
std::vector<Bf16Unit> units() {
  std::vector<Bf16Unit> all{emulated_unit()};
  for (const Bf16Unit* unit : {&bf16_dot_unit(), &amx_unit()}) {
    if (!unit->missing.empty()) continue;
    all.push_back(anything_goes(*unit));
    if (unit->loads_full_halves) continue;
    all.back().windows = bf16::WindowInput::strip;
    all.push_back(all.back());
    all.back().windows = bf16::WindowInput::image;
  }
  return all;
}

bool is_emulated(const Bf16Unit& unit) { return unit.coverage == PathUnit::emulated; }

struct Data {
  Elements x, weights;
  std::vector<float> bias;
  std::vector<Expected> expected;
};

void check_unit(const Conv2dProblem& p, int products, const Bf16Unit& unit, const Target& target, int threads,
                const Data& data) {
  INFO(describe(p) << " in " << products << " products on " << unit.name << ", " << target.name << ", " << threads
                   << " threads");
  Bf16Conv2dPlan plan(p, products, unit, target, threads);
  CHECK(plan.workspace_bytes() <= static_cast<std::size_t>(threads) * (2u << 20));
  std::vector<std::uint16_t> packed(plan.packed_bytes() / 2, 0x7fc0);
  plan.pack(data.weights.data(), dense_strides(p), packed.data());
  GuardedOutput y(p.dtype, p.n * p.k * p.out_h() * p.out_w());
  plan.run(data.x.data(), packed.data(), data.bias.data(), y.data());
  check_output(p, data.expected, y);
}

/// The plain unit on every target; the machine's on the best one.
void check_units(const Conv2dProblem& p, int products, int threads, const Data& data) {
  for (const Bf16Unit& unit : units()) {
    if (unit.tile(products) == nullptr) continue;
    if (!is_emulated(unit)) {
      check_unit(p, products, unit, best_target(), threads, data);
      continue;
    }
    for (const Target* target : supported_targets()) check_unit(p, products, unit, *target, threads, data);
  }
}

Data data_of(const Conv2dProblem& p, int products, std::mt19937& random) {
  const Elements x = random_elements(p.dtype, p.n * p.c * p.h * p.w, random);
  const Elements weights = random_elements(p.dtype, p.k * (p.c / p.groups) * p.r * p.s, random);
  std::vector<float> bias(static_cast<std::size_t>(p.k));
  std::generate(bias.begin(), bias.end(), [&] { return std::uniform_real_distribution<float>(-1, 1)(random); });
  return {in_layout(x, true, p.n, p.c, p.h, p.w), weights, bias,
          for_products(conv2d_reference(p, x, weights, bias), p, products)};
}

void check_everywhere(Conv2dProblem p, std::mt19937& random, int threads = 1) {
  p.nhwc = true;
  for (const auto& [type, products] : kPartProducts) {
    p.dtype = type;
    check_units(p, products, threads, data_of(p, products, random));
  }
}

/// On the units whose halves may be several rows.
void check_runs(Conv2dProblem p, std::mt19937& random, int threads = 1) {
  p.nhwc = true;
  p.dtype = DType::bf16;
  const Data data = data_of(p, 1, random);
  for (const Bf16Unit& unit : units()) {
    if (unit.takes_runs) check_unit(p, 1, unit, best_target(), threads, data);
  }
}

}  // namespace

TEST_CASE("bf16: kernels, strides, dilations, paddings, groups and epilogues") {
  std::mt19937 random(11);
  check_everywhere(same_padded({.n = 2, .c = 32, .h = 9, .w = 17, .k = 32, .r = 3, .s = 3}), random);
  check_everywhere(same_padded({.c = 70, .h = 7, .w = 7, .k = 45, .r = 3, .s = 3, .bias = true}), random);
  check_everywhere(sized({.c = 33, .h = 6, .w = 40, .k = 5, .r = 2, .s = 3}, 0, 0), random);
  check_everywhere(sized({.c = 64, .h = 6, .w = 33, .k = 33, .r = 3, .s = 3, .pad_top = 2, .pad_left = 1}, 0, 3),
                   random);
  check_everywhere(sized({.c = 40,
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
  check_everywhere(sized({.c = 34,
                          .h = 19,
                          .w = 23,
                          .k = 66,
                          .r = 3,
                          .s = 4,
                          .stride_h = 2,
                          .stride_w = 2,
                          .pad_top = 3,
                          .pad_left = 2,
                          .dilation_h = 3,
                          .dilation_w = 2,
                          .bias = true,
                          .activation = Activation::tanh},
                         0, 2),
                   random);
  check_everywhere(same_padded({.c = 80, .h = 8, .w = 9, .k = 72, .r = 3, .s = 3, .groups = 2}), random);
  // Outputs of padding alone, and a kernel larger than the image.
  check_everywhere(sized({.c = 36, .h = 4, .w = 4, .k = 6, .r = 2, .s = 2, .pad_top = 3, .pad_left = 3}, 3, 3), random);
  check_everywhere(sized({.c = 36, .h = 2, .w = 3, .k = 8, .r = 5, .s = 5, .pad_top = 2, .pad_left = 2}, 2, 2), random);
}

TEST_CASE("bf16: windows that are read in the image row by row skip the padding beside it") {
  std::mt19937 random(37);
  const auto padded = [](std::int64_t width, std::int64_t outputs, std::int64_t columns) {
    return Conv2dProblem{.n = 2,
                         .c = 34,
                         .h = 5,
                         .w = width,
                         .k = outputs,
                         .r = 3,
                         .s = columns,
                         .pad_top = 1,
                         .bias = true,
                         .activation = Activation::relu};
  };
  for (const std::int64_t width : {3, 7, 16, 29, 61}) {
    for (const std::int64_t outputs : {5, 16, 45}) {
      Conv2dProblem p = padded(width, outputs, 5);
      p.pad_left = 2;
      check_everywhere(sized(p, 1, 2), random, width == 61 ? 2 : 1);
      p.c = 33;  // half a pair
      p.stride_h = p.stride_w = 2;
      check_everywhere(sized(p, 1, 3), random);
      p.dilation_w = 3;  // kernel columns that no output reads, and outputs that read no kernel column
      p.pad_left = 9;
      check_everywhere(sized(p, 1, 14), random);
    }
  }
  // Sums that pass through memory from one round of weights to the next, and groups, alone and merged.
  check_everywhere(same_padded({.c = 520, .h = 6, .w = 9, .k = 70, .r = 3, .s = 3, .bias = true}), random);
  check_everywhere(same_padded({.c = 63, .h = 9, .w = 20, .k = 42, .r = 3, .s = 3, .groups = 7}), random, 2);
  check_everywhere(same_padded({.c = 32, .h = 9, .w = 20, .k = 16, .r = 3, .s = 3, .groups = 8}), random);
  // Folded columns without padding, in one group and in several, and windows within their stride.
  check_everywhere(
      sized({.c = 15, .h = 9, .w = 31, .k = 12, .r = 3, .s = 3, .stride_h = 4, .stride_w = 4, .groups = 3}, 0, 0),
      random);
  check_everywhere(
      sized({.n = 2, .c = 3, .h = 17, .w = 31, .k = 40, .r = 3, .s = 3, .stride_h = 4, .stride_w = 4}, 0, 0), random);
  check_everywhere(sized({.c = 40, .h = 9, .w = 33, .k = 12, .r = 2, .s = 2, .stride_h = 3, .stride_w = 3}, 0, 0),
                   random, 2);
}

TEST_CASE("bf16: halves of several short rows, in a strip and in the image, and masks of its borders") {
  std::mt19937 random(41);
  for (std::int64_t width = 1; width <= 15; ++width) {
    for (const std::int64_t outputs : {5, 16, 24, 40}) {
      Conv2dProblem p{.n = 2, .c = width % 2 == 0 ? 33 : 36, .h = 17, .w = width, .k = outputs, .bias = true};
      p.activation = width % 5 == 0 ? Activation::tanh : Activation::relu;  // tanh: sums in memory
      const auto window = [&](std::int64_t kernel, std::int64_t pad) {
        p.r = p.s = kernel;
        p.pad_top = p.pad_left = pad;
        return sized(p, pad, pad);
      };
      check_runs(window(3, 1), random, width == 7 ? 2 : 1);
      check_runs(window(5, 2), random);
      check_runs(window(7, 3), random);  // borders of three columns, which have no masks
      p.dilation_w = 3;
      check_runs(window(3, 3), random);
      p.dilation_w = 1;
      p.stride_h = p.stride_w = 2;
      p.w = 2 * width;
      check_runs(window(3, 1), random);
      check_runs(window(1, 0), random);
      p.groups = 4;
      p.c = 40;
      p.k = outputs * 4;
      check_runs(window(5, 2), random);
    }
  }
  // An image narrower than the stride: kernel columns that no output reads lie between others.
  for (const std::int64_t height : {5, 12}) {
    Conv2dProblem p{.n = 2, .c = 36, .h = height, .w = 1, .k = 24, .r = 3, .s = 5, .bias = true};
    p.pad_top = 1;
    p.pad_left = 4;
    p.stride_w = 2;
    check_runs(sized(p, 1, 4), random);
    p.w = 2;
    p.s = 7;
    p.pad_left = 6;
    p.stride_w = 3;
    check_runs(sized(p, 1, 6), random);
  }
  // Sums in rounds of weights, and rows whose halves have masks on one side.
  check_runs(same_padded({.c = 1280, .h = 9, .w = 5, .k = 70, .r = 3, .s = 3}), random);
  check_runs(same_padded({.n = 2, .c = 34, .h = 19, .w = 64, .k = 24, .r = 5, .s = 5, .bias = true}), random, 2);
}

TEST_CASE("bf16: pixels 2, 4 and 8 KB apart, of whose lines L1 keeps few") {
  std::mt19937 random(43);
  for (const std::int64_t channels : {1024, 2048}) {
    for (const std::int64_t of_group : {16, 32}) {
      for (const std::int64_t width : {7, 14, 30}) {
        Conv2dProblem p{.c = channels, .h = 5, .w = width, .k = channels, .r = 3, .s = 3, .bias = true};
        p.groups = channels / of_group;
        check_runs(sized(p, 1, 1), random);
        p.stride_h = p.stride_w = 2;
        check_runs(sized(p, 1, 1), random);
      }
    }
  }
}

TEST_CASE("bf16: panels of one vector, whose halves take up to 28 positions") {
  std::mt19937 random(29);
  for (const std::int64_t width : {15, 17, 28, 29, 61}) {
    const std::int64_t outputs = width % 2 == 0 ? 8 : width == 29 ? 16 : 11;
    Conv2dProblem p = same_padded({.c = 34, .h = 5, .w = width, .k = outputs, .r = 3, .s = 3, .bias = true});
    check_everywhere(p, random, width == 61 ? 2 : 1);
    p.c = 33;  // half a pair
    p.activation = width == 17 ? Activation::tanh : Activation::relu;
    check_everywhere(p, random);
    check_everywhere(same_padded({.n = 2, .c = 3, .h = 7, .w = width, .k = outputs, .r = 3, .s = 3}), random);
  }
  check_everywhere(sized({.n = 2, .c = 47, .h = 3, .w = 101, .k = 13, .stride_h = 2, .stride_w = 2}, 0, 0), random);
  check_everywhere(sized({.c = 16, .h = 9, .w = 57, .k = 16}, 0, 0), random, 2);
  check_everywhere(sized({.c = 9, .h = 40, .w = 41, .k = 2, .bias = true}, 0, 0), random);
  // Sums in rounds over several halves, and groups.
  check_everywhere(same_padded({.c = 1280, .h = 9, .w = 47, .k = 5, .r = 3, .s = 3}), random);
  check_everywhere(same_padded({.c = 60, .h = 6, .w = 31, .k = 48, .r = 3, .s = 3, .groups = 3}), random);
}

TEST_CASE("bf16: 2x2 pool, even and odd sizes") {
  std::mt19937 random(12);
  for (const std::int64_t width : {2, 14, 31, 70}) {
    Conv2dProblem p = same_padded({.n = 2, .c = 48, .h = 7, .w = width, .k = 40, .r = 3, .s = 3, .bias = true});
    p.pool = {2, 2, 2, 2};
    p.activation = width == 31 ? Activation::tanh : Activation::relu;
    check_everywhere(p, random);
  }
}

TEST_CASE("bf16: narrow groups, several of them merged into one") {
  std::mt19937 random(23);
  check_everywhere(same_padded({.c = 184, .h = 7, .w = 9, .k = 184, .r = 3, .s = 3, .groups = 23, .bias = true}),
                   random);
  check_everywhere(sized({.n = 2, .c = 35, .h = 5, .w = 30, .k = 14, .groups = 7}, 0, 0), random);
  check_everywhere(same_padded({.c = 64, .h = 20, .w = 34, .k = 128, .r = 3, .s = 3, .groups = 4}), random);
  check_everywhere(same_padded({.c = 128, .h = 20, .w = 20, .k = 32, .r = 3, .s = 3, .groups = 8}), random, 3);
  check_everywhere(sized({.c = 6, .h = 9, .w = 11, .k = 9, .r = 3, .s = 3, .groups = 3, .pool = {2, 2, 2, 2}}, 0, 0),
                   random);
  check_everywhere(same_padded({.n = 2, .c = 40, .h = 6, .w = 6, .k = 40, .r = 5, .s = 5, .groups = 40}), random);
}

TEST_CASE("bf16: groups that a work unit computes one after another, with epilogues that wait for the next one") {
  std::mt19937 random(31);
  check_everywhere(same_padded({.c = 456, .h = 5, .w = 5, .k = 456, .r = 3, .s = 3, .groups = 19, .bias = true}),
                   random);
  check_everywhere(
      sized({.n = 2, .c = 100, .h = 9, .w = 7, .k = 185, .r = 3, .s = 3, .stride_h = 2, .stride_w = 2, .groups = 5}, 1,
            1),
      random);
  check_everywhere(same_padded({.c = 104, .h = 8, .w = 9, .k = 104, .r = 3, .s = 3, .groups = 13, .bias = true}),
                   random, 2);
  check_everywhere(same_padded({.c = 90,
                                .h = 6,
                                .w = 4,
                                .k = 30,
                                .r = 3,
                                .s = 3,
                                .groups = 3,
                                .bias = true,
                                .activation = Activation::tanh}),
                   random);
  check_everywhere(
      same_padded({.c = 68, .h = 6, .w = 8, .k = 68, .r = 3, .s = 3, .groups = 2, .bias = true, .pool = {2, 2, 2, 2}}),
      random);
}

TEST_CASE("bf16: sums of many blocks of channels, in rounds over several halves") {
  std::mt19937 random(24);
  check_everywhere(same_padded({.c = 160, .h = 9, .w = 20, .k = 41, .r = 3, .s = 3, .bias = true}), random);
  check_everywhere(same_padded({.n = 2, .c = 171, .h = 5, .w = 3, .k = 12, .r = 3, .s = 5}), random, 2);
  check_everywhere(same_padded({.c = 160, .h = 9, .w = 6, .k = 33, .r = 3, .s = 3}), random);  // halves of 6
  // More weights than L2 holds beside the strip.
  check_everywhere(same_padded({.c = 1439, .h = 4, .w = 8, .k = 34, .r = 3, .s = 3, .bias = true}), random);
  check_everywhere(
      sized({.c = 130, .h = 17, .w = 34, .k = 33, .r = 3, .s = 3, .stride_h = 2, .stride_w = 2, .pad_top = 1}, 0, 1),
      random);
  check_everywhere(sized({.c = 129, .h = 6, .w = 61, .k = 127, .stride_h = 3, .stride_w = 2, .bias = true}, 0, 0),
                   random);
}

TEST_CASE("bf16: windows of one column, whose halves lie in several rows and skip the taps outside the image") {
  std::mt19937 random(29);
  check_everywhere(same_padded({.c = 40, .h = 17, .w = 17, .k = 33, .r = 7, .s = 1, .bias = true}), random);
  check_everywhere(same_padded({.n = 2, .c = 34, .h = 5, .w = 4, .k = 20, .r = 9, .s = 1}), random, 2);
  check_everywhere(same_padded({.c = 33, .h = 12, .w = 5, .k = 17, .r = 5, .s = 1, .dilation_h = 2}), random, 3);
  check_everywhere(sized({.c = 36, .h = 7, .w = 9, .k = 40, .r = 5, .s = 1, .stride_h = 2, .pad_top = 6}, 5, 0),
                   random);
}

TEST_CASE("bf16: tiles of rows at the image's edges skip the kernel rows that read padding alone") {
  std::mt19937 random(30);
  check_everywhere(same_padded({.c = 64, .h = 14, .w = 14, .k = 40, .r = 3, .s = 3, .bias = true}), random);
  check_everywhere(same_padded({.c = 34, .h = 9, .w = 9, .k = 20, .r = 3, .s = 3, .dilation_h = 6, .dilation_w = 6}),
                   random, 2);
  // Rows of output that read no input at all.
  check_everywhere(sized({.c = 40, .h = 5, .w = 30, .k = 33, .r = 2, .s = 3, .pad_top = 4, .pad_left = 1}, 4, 1),
                   random);
  Conv2dProblem pooled = same_padded({.c = 64, .h = 12, .w = 14, .k = 40, .r = 5, .s = 3, .bias = true});
  pooled.pool = {2, 2, 2, 2};
  check_everywhere(pooled, random);
}

TEST_CASE("bf16: halves of 10 to 13 positions that read a window in the image") {
  std::mt19937 random(32);
  check_everywhere(sized({.c = 64,
                          .h = 72,
                          .w = 72,
                          .k = 16,
                          .r = 3,
                          .s = 3,
                          .stride_h = 2,
                          .stride_w = 2,
                          .pad_top = 1,
                          .pad_left = 1},
                         1, 1),
                   random);
  check_everywhere(
      sized({.n = 2, .c = 40, .h = 17, .w = 40, .k = 16, .r = 1, .s = 5, .pad_left = 2, .bias = true}, 0, 2), random,
      2);
  check_everywhere(same_padded({.c = 34, .h = 24, .w = 24, .k = 32, .r = 3, .s = 3, .dilation_h = 6, .dilation_w = 6}),
                   random);
}

TEST_CASE("bf16: on the last line of a region both halves of a tile lie on it") {
  std::mt19937 random(31);
  check_everywhere(same_padded({.c = 32, .h = 41, .w = 56, .k = 33, .r = 3, .s = 3, .bias = true}), random);
  check_everywhere(same_padded({.n = 2, .c = 64, .h = 35, .w = 30, .k = 48, .r = 2, .s = 5}), random, 2);
  check_everywhere(sized({.c = 32, .h = 65, .w = 64, .k = 16, .r = 3, .s = 1, .pad_top = 1}, 1, 0), random);
}

TEST_CASE("bf16: few channels, folded over the kernel's columns") {
  std::mt19937 random(13);
  check_everywhere(sized({.c = 3,
                          .h = 21,
                          .w = 30,
                          .k = 64,
                          .r = 7,
                          .s = 7,
                          .stride_h = 2,
                          .stride_w = 2,
                          .pad_top = 3,
                          .pad_left = 3},
                         3, 3),
                   random);
  check_everywhere(sized({.c = 6, .h = 9, .w = 11, .k = 16, .r = 5, .s = 5, .pool = {2, 2, 2, 2}}, 0, 0), random);
  check_everywhere(sized({.c = 5, .h = 9, .w = 11, .k = 3, .r = 3, .s = 2, .dilation_w = 3}, 0, 1), random);
  check_everywhere(sized({.c = 5, .h = 6, .w = 23, .k = 8, .r = 2, .s = 3, .stride_w = 4, .pad_left = 2}, 0, 1),
                   random);
  check_everywhere(same_padded({.c = 2, .h = 5, .w = 19, .k = 34, .r = 5, .s = 5, .groups = 2}), random);
  // A position takes several blocks, the last of which may share channels with the one before.
  check_everywhere(same_padded({.c = 16, .h = 9, .w = 33, .k = 40, .r = 3, .s = 3, .bias = true}), random);
  check_everywhere(sized({.c = 19, .h = 8, .w = 35, .k = 17, .r = 3, .s = 5, .stride_w = 2, .pad_left = 1}, 0, 2),
                   random);
}

TEST_CASE("bf16: folded positions overlap, and no pixel enters an output that it does not belong to") {
  std::mt19937 random(22);
  Conv2dProblem p = sized({.c = 3, .h = 9, .w = 40, .k = 40, .r = 3, .s = 5, .stride_w = 2, .pad_left = 1}, 0, 1);
  p.dtype = DType::bf16;
  p.nhwc = true;
  Elements x = random_elements(p.dtype, p.c * p.h * p.w, random);
  const Elements weights = random_elements(p.dtype, p.k * p.c * p.r * p.s, random);
  constexpr std::int64_t kRow = 4, kColumn = 21;
  for (std::int64_t c = 0; c < p.c; ++c) {
    x.set(static_cast<std::size_t>((kRow * p.w + kColumn) * p.c + c), std::numeric_limits<float>::infinity());
  }
  for (const Bf16Unit& unit : units()) {
    Bf16Conv2dPlan plan(p, 1, unit, best_target(), 1);
    std::vector<std::uint16_t> packed(plan.packed_bytes() / 2);
    plan.pack(weights.data(), dense_strides(p), packed.data());
    GuardedOutput y(p.dtype, p.k * p.ho * p.wo);
    plan.run(x.data(), packed.data(), nullptr, y.data());
    int wrong = 0;
    for (std::int64_t pixel = 0; pixel < p.ho * p.wo; ++pixel) {
      const std::int64_t row = pixel / p.wo, column = pixel % p.wo * p.stride_w - p.pad_left;
      const bool reads = row <= kRow && kRow < row + p.r && column <= kColumn && kColumn < column + p.s;
      for (std::int64_t k = 0; k < p.k; ++k) {
        wrong += std::isfinite(y.at(static_cast<std::size_t>(pixel * p.k + k))) == reads;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("bf16: pointwise, in place and staged, also strided") {
  std::mt19937 random(14);
  for (const std::int64_t channels : {32, 46, 64, 129}) {
    for (const std::int64_t width : {1, 5, 16, 39}) {
      check_everywhere(sized({.n = 3, .c = channels, .h = 3, .w = width, .k = 37}, 0, 0), random);
    }
    check_everywhere(sized({.n = 2, .c = channels, .h = 9, .w = 35, .k = 64, .stride_h = 2, .stride_w = 2}, 0, 0),
                     random);
  }
}

TEST_CASE("bf16: panels of 1x1, with tails of pixels, channels and lanes, in rows and in one run") {
  std::mt19937 random(31);
  for (const std::int64_t lanes : {8, 16, 31, 64, 129}) {
    Conv2dProblem p{.n = 1, .c = 72, .h = 7, .w = 7, .k = lanes, .bias = true};
    p.activation = Activation::relu;
    check_everywhere(sized(p, 0, 0), random);
    check_everywhere(sized(p, 0, 0), random, 5);
    p.n = 2;
    p.c = 10;
    p.h = p.w = 19;
    p.stride_h = p.stride_w = 2;
    check_everywhere(sized(p, 0, 0), random);
    check_everywhere(sized(p, 0, 0), random, 3);
  }
  // Staged, as the channels are odd; padding; groups.
  check_everywhere(same_padded({.c = 33, .h = 9, .w = 20, .k = 40, .bias = true}), random);
  check_everywhere(sized({.c = 40, .h = 9, .w = 20, .k = 40, .pad_top = 1, .pad_left = 2}, 1, 1), random);
  check_everywhere(sized({.c = 128, .h = 13, .w = 13, .k = 80, .groups = 2, .bias = true}, 0, 0), random, 4);
  // Whole blocks, of which the last begins within the one before.
  for (const std::int64_t channels : {80, 144}) {
    check_everywhere(sized({.c = channels, .h = 7, .w = 9, .k = 40, .bias = true}, 0, 0), random);
    check_everywhere(same_padded({.c = channels, .h = 16, .w = 16, .k = 24, .r = 3, .s = 3}), random);
  }
}

TEST_CASE("bf16: 1x1 of two and three blocks of channels, of which the weights of two stay in registers") {
  std::mt19937 random(35);
  for (const std::int64_t channels : {34, 47, 50, 64, 80, 95}) {
    for (const std::int64_t lanes : {5, 16, 24, 32, 44, 72, 400}) {
      if (channels > 64 && lanes % 8 == 4) continue;  // enough without it
      Conv2dProblem p{.n = 1, .c = channels, .h = 11, .w = 19, .k = lanes, .bias = lanes != 44};
      p.activation = lanes % 3 == 2 ? Activation::relu : Activation::none;
      check_everywhere(sized(p, 0, 0), random);
      check_everywhere(sized(p, 0, 0), random, 3);
      p.stride_h = p.stride_w = 2;
      check_everywhere(sized(p, 0, 0), random);
    }
  }
}

TEST_CASE("bf16: windows of one to seven channels, strided, dilated and padded, gathered into blocks of channels") {
  std::mt19937 random(36);
  for (const std::int64_t channels : {1, 2, 3, 4, 7}) {
    for (const std::int64_t size : {3, 5, 7}) {
      for (const std::int64_t stride : {1, 2}) {
        // So many outputs that gathering pays.
        Conv2dProblem p{.n = 1, .c = channels, .h = 9, .w = 19, .k = 42 * size, .r = size, .s = 13 - 2 * size};
        if (p.s < 1) p.s = size;
        p.stride_h = stride;
        p.stride_w = 3 - stride;
        p.pad_top = size / 2;
        p.pad_left = p.s / 2;
        p.dilation_h = 1 + size % 2 * (stride - 1);
        p.bias = stride == 1;
        p.activation = size == 5 ? Activation::none : Activation::relu;
        check_everywhere(sized(p, size / 2, p.s / 2), random);
        check_everywhere(sized(p, 0, 1), random, 3);
      }
    }
  }
  // A window wider than the image, and one whose rows all read padding.
  check_everywhere(sized({.c = 3, .h = 2, .w = 2, .k = 169, .r = 3, .s = 5, .pad_top = 1, .pad_left = 2}, 2, 2),
                   random);
  check_everywhere(sized({.c = 3, .h = 5, .w = 9, .k = 90, .r = 3, .s = 3, .pad_top = 4, .pad_left = 4}, 4, 4), random);
}

TEST_CASE("bf16: windows of few channels, gathered by one and by several kernel rows") {
  std::mt19937 random(37);
  const auto check = [&](Conv2dProblem p, std::int64_t rows, int threads = 1) {
    p.dtype = DType::bf16;
    p.nhwc = true;
    p.bias = true;
    CHECK(bf16::terms_of(p, bf16::geometry_of(p, emulated_unit()), 1, emulated_unit()).gathered_rows == rows);
    check_units(p, 1, threads, data_of(p, 1, random));
  };
  for (const int threads : {1, 3}) {
    // Nine rows by three and by one, in rows of tiles and flat; eleven and five by two, whose last taps share a row.
    check(same_padded({.n = 2, .c = 1, .h = 21, .w = 70, .k = 32, .r = 9, .s = 9}), 3, threads);
    check(same_padded({.c = 3, .h = 12, .w = 50, .k = 24, .r = 9, .s = 9}), 1, threads);
    check(sized({.c = 3, .h = 20, .w = 17, .k = 32, .r = 9, .s = 9}, 0, 0), 1, threads);
    check(same_padded({.c = 1, .h = 15, .w = 40, .k = 32, .r = 11, .s = 11, .dilation_h = 2}), 2, threads);
    check(same_padded({.c = 3, .h = 11, .w = 23, .k = 64, .r = 5, .s = 5}), 2, threads);
    // Strides, whose taps lie in two phases of rows and in one.
    check(same_padded({.c = 3, .h = 31, .w = 20, .k = 32, .r = 9, .s = 9, .stride_h = 2, .stride_w = 2}), 1, threads);
    check(same_padded({.c = 1, .h = 40, .w = 40, .k = 32, .r = 9, .s = 9, .stride_h = 3, .dilation_h = 2}), 3, threads);
  }
  // Rows of padding alone, and a window larger than the image.
  check(sized({.c = 3, .h = 3, .w = 9, .k = 32, .r = 9, .s = 9, .pad_top = 9, .pad_left = 4}, 9, 4), 1);
  check(same_padded({.c = 1, .h = 2, .w = 3, .k = 32, .r = 9, .s = 9}), 3);
}

TEST_CASE("bf16: groups of 4, 8, 16 and 24 channels, folded and not, staged whole") {
  std::mt19937 random(32);
  for (const std::int64_t width : {4, 8, 16, 24}) {
    for (const std::int64_t stride : {1, 2}) {
      check_everywhere(same_padded({.c = 3 * width,
                                    .h = 17,
                                    .w = 15,
                                    .k = 3 * width,
                                    .r = 3,
                                    .s = 3,
                                    .stride_h = stride,
                                    .stride_w = stride,
                                    .groups = 3,
                                    .bias = true}),
                       random);
    }
  }
}

TEST_CASE("bf16: one position of many, few and odd channels") {
  std::mt19937 random(33);
  for (const std::int64_t channels : {2, 7, 38, 130, 1000}) {
    check_everywhere(sized({.c = channels, .k = 45, .bias = true}, 0, 0), random);
    check_everywhere(sized({.c = channels, .k = 6, .bias = true}, 0, 0), random);
  }
}

TEST_CASE("bf16: taps read in the image, with borders of every width") {
  std::mt19937 random(20);
  const auto check_in_image = [&](Conv2dProblem p, int threads = 1) {
    Conv2dProblem p16 = p;
    p16.dtype = DType::bf16;
    p16.nhwc = true;
    CHECK(bf16::blocking_of(p16, 1, emulated_unit(), threads).input == bf16::InputPath::in_image);
    check_everywhere(p, random, threads);
  };
  check_in_image(same_padded({.n = 2, .c = 64, .h = 21, .w = 34, .k = 70, .r = 3, .s = 3, .bias = true}));
  Conv2dProblem dilated{.c = 32, .h = 25, .w = 36, .k = 32, .r = 3, .s = 3, .dilation_h = 3, .dilation_w = 2};
  dilated.activation = Activation::relu;
  check_in_image(same_padded(dilated));
  Conv2dProblem single = sized({.n = 2, .c = 64, .h = 33, .w = 64, .k = 40, .stride_h = 2, .stride_w = 2}, 0, 0);
  single.activation = Activation::tanh;
  check_in_image(single);
  check_in_image(
      sized({.c = 32, .h = 36, .w = 66, .k = 32, .r = 3, .s = 4, .stride_h = 2, .stride_w = 2, .pad_top = 2}, 1, 3));
  check_in_image(sized({.c = 32, .h = 18, .w = 34, .k = 8, .r = 2, .s = 3, .pad_top = 5, .pad_left = 3}, 3, 3));
  check_in_image(same_padded({.c = 64, .h = 19, .w = 18, .k = 36, .r = 3, .s = 3, .groups = 2}));
  // With stride 2, the first output with all of its taps inside the image is not at its first pixel.
  check_everywhere(
      same_padded({.c = 32, .h = 33, .w = 31, .k = 32, .r = 3, .s = 3, .stride_h = 2, .stride_w = 2, .bias = true}),
      random);
  check_everywhere(
      same_padded({.c = 32, .h = 29, .w = 35, .k = 32, .r = 3, .s = 3, .stride_h = 2, .stride_w = 2, .bias = true}),
      random);
  Conv2dProblem pooled{.n = 2, .c = 32, .h = 21, .w = 34, .k = 40, .r = 3, .s = 3, .bias = true};
  pooled.pool = {2, 2, 2, 2};
  check_in_image(sized(pooled, 0, 0));
  check_in_image(same_padded({.c = 32, .h = 40, .w = 290, .k = 40, .r = 3, .s = 3}), 4);
  pooled.w = 292;
  check_in_image(sized(pooled, 0, 0), 4);
}

TEST_CASE("bf16: small images sixteen at a time") {
  std::mt19937 random(21);
  const auto check_by_images = [&](Conv2dProblem p, int threads = 1) {
    p.nhwc = true;
    p.dtype = DType::bf16;
    const Elements x = random_elements(p.dtype, p.n * p.c * p.h * p.w, random);
    const Elements weights = random_elements(p.dtype, p.k * (p.c / p.groups) * p.r * p.s, random);
    const std::vector<float> bias(static_cast<std::size_t>(p.k), 0.25f);
    const Data data{in_layout(x, true, p.n, p.c, p.h, p.w), weights, bias, conv2d_reference(p, x, weights, bias)};
    CHECK(bf16::blocking_of(p, 1, emulated_unit(), threads).input == bf16::InputPath::by_images);
    check_units(p, 1, threads, data);
  };
  check_by_images(same_padded({.n = 16, .c = 256, .h = 4, .w = 3, .k = 256, .r = 3, .s = 3, .bias = true}));
  Conv2dProblem strided{.n = 30, .c = 240, .h = 6, .w = 5, .k = 256, .r = 3, .s = 3, .stride_h = 2, .stride_w = 2};
  strided.pad_top = 1;
  check_by_images(sized(strided, 2, 0), 2);
  check_by_images(sized({.n = 16, .c = 1024, .h = 6, .w = 3, .k = 530, .stride_h = 3, .stride_w = 2}, 0, 0));
  check_by_images(
      sized({.n = 14, .c = 512, .h = 2, .w = 5, .k = 512, .r = 3, .s = 3, .dilation_h = 2, .groups = 2}, 4, 0));
}

/// With all outputs by non-temporal stores.
void check_streamed(const Conv2dProblem& p, int products, const Bf16Unit& unit, const Target& target,
                    const Data& data) {
  INFO(describe(p) << " in " << products << " products on " << unit.name << ", " << target.name);
  Bf16Conv2dPlan plan(p, products, unit, target, 2, OutputStores::non_temporal);
  CHECK(plan.description().fusion.find("non-temporal stores") != std::string::npos);
  std::vector<std::uint16_t> packed(plan.packed_bytes() / 2);
  plan.pack(data.weights.data(), dense_strides(p), packed.data());
  GuardedOutput y(p.dtype, p.k * p.out_h() * p.out_w());
  AlignedFloats aligned(y.size());  // only such an output is streamed
  plan.run(data.x.data(), packed.data(), nullptr, aligned.data());
  std::memcpy(y.data(), aligned.data(), y.size() * size_of(p.dtype));
  check_output(p, data.expected, y);
}

TEST_CASE("bf16: outputs written with non-temporal stores") {
  std::mt19937 random(18);
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    const int products = type == DType::bf16 ? 1 : 3;
    for (const FusedPool& pool : {FusedPool{}, FusedPool{2, 2, 2, 2}}) {
      for (const Activation activation : {Activation::none, Activation::tanh}) {
        Conv2dProblem p = same_padded({.c = 32, .h = 6, .w = 18, .k = 64, .r = 3, .s = 3});
        p.dtype = type;
        p.pool = pool;
        p.activation = activation;
        const Elements x = random_elements(p.dtype, p.c * p.h * p.w, random);
        const Elements weights = random_elements(p.dtype, p.k * p.c * p.r * p.s, random);
        const Data data{in_layout(x, true, p.n, p.c, p.h, p.w),
                        weights,
                        {},
                        for_products(conv2d_reference(p, x, weights, {}), p, products)};
        for (const Bf16Unit& unit : units()) {
          if (unit.tile(products) == nullptr) continue;
          for (const Target* target : supported_targets()) {
            if (is_emulated(unit) || target == &best_target()) check_streamed(p, products, unit, *target, data);
          }
        }
      }
    }
  }
}

TEST_CASE("bf16: non-temporal stores write outputs by the one rule of cache.h") {
  for (const std::int64_t limit : {l3_bytes(), std::int64_t{32} << 20}) {
    for (const std::int64_t bytes : {limit - 64, limit, limit + 64, limit / 2, 2 * limit}) {
      const Conv2dProblem p = sized({.c = 32, .w = bytes / 64, .k = 32, .dtype = DType::bf16}, 0, 0);
      const Bf16Conv2dPlan plan(p, 1, emulated_unit(), best_target(), 1);
      const bool streams = plan.description().fusion.find("non-temporal stores") != std::string::npos;
      CHECK(streams == beyond_last_level(bytes));
    }
  }
}

TEST_CASE("bf16: many threads and units of few panels give the same result") {
  std::mt19937 random(15);
  check_everywhere(same_padded({.c = 64, .h = 14, .w = 14, .k = 200, .r = 3, .s = 3}), random, 8);
  check_everywhere(same_padded({.n = 3, .c = 32, .h = 20, .w = 300, .k = 32, .r = 3, .s = 3}), random, 3);
  for (const std::int64_t k : {72, 232})
    check_everywhere(sized({.n = 3, .c = 40, .h = 10, .w = 9, .k = k}, 0, 0), random, 12);
  check_everywhere(same_padded({.c = 288, .h = 5, .w = 4, .k = 104, .r = 3, .s = 3, .bias = true}), random, 12);
}

TEST_CASE("bf16: work units that share a thread's strip, which each run stages anew") {
  std::mt19937 random(23);
  constexpr int kThreads = 2;
  Conv2dProblem p = same_padded({.c = 40, .h = 7, .w = 7, .k = 320, .r = 3, .s = 3});
  p.dtype = DType::bf16;
  p.nhwc = true;
  const Elements x = random_elements(p.dtype, p.x_elements(), random);
  const Elements weights = random_elements(p.dtype, p.k * p.c * p.r * p.s, random);
  const std::vector<float> bias(static_cast<std::size_t>(p.k));
  const std::vector<Expected> expected = conv2d_reference(p, x, weights, bias);
  const Elements in_nhwc = in_layout(x, true, p.n, p.c, p.h, p.w);
  Elements others = in_nhwc;
  for (std::size_t i = 0; i < others.size(); ++i) others.set(i, std::numeric_limits<float>::quiet_NaN());
  for (const Bf16Unit& unit : units()) {
    if (unit.windows == bf16::WindowInput::image) continue;
    const bf16::Blocking b = bf16::blocking_of(p, 1, unit, kThreads);
    INFO(unit.name << ", " << b.work.count << " work units");
    CHECK(b.input == bf16::InputPath::staged);
    CHECK(bf16::work_unit_at(b, 0).input == bf16::work_unit_at(b, 1).input);
    Bf16Conv2dPlan plan(p, 1, unit, best_target(), kThreads);
    std::vector<std::uint16_t> packed(plan.packed_bytes() / 2, 0x7fc0);
    plan.pack(weights.data(), dense_strides(p), packed.data());
    GuardedOutput y(p.dtype, p.n * p.k * p.out_h() * p.out_w());
    plan.run(others.data(), packed.data(), bias.data(), y.data());
    plan.run(in_nhwc.data(), packed.data(), bias.data(), y.data());
    check_output(p, expected, y);
  }
}

TEST_CASE("bf16: weights beyond the last level, used once by all images") {
  std::mt19937 random(19);
  Conv2dProblem p = same_padded({.n = 2, .c = 256, .h = 2, .w = 2, .k = 7400, .r = 3, .s = 3});
  p.dtype = DType::bf16;
  const Elements x = random_elements(p.dtype, p.n * p.c * p.h * p.w, random);
  const Elements weights = random_elements(p.dtype, p.k * p.c * p.r * p.s, random);
  const std::vector<float> bias(static_cast<std::size_t>(p.k));
  const Data data{in_layout(x, true, p.n, p.c, p.h, p.w), weights, bias, conv2d_reference(p, x, weights, bias)};
  for (const Bf16Unit& unit : units()) {
    CHECK(bf16::blocking_of(p, 1, unit, 2).work.weights_outermost);
    check_unit(p, 1, unit, best_target(), 2, data);
  }
}

TEST_CASE("bf16: random problems") {
  std::mt19937 random(16);
  const auto any = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const int wanted = is_fast() ? 20 : 60;
  int checked = 0;
  while (checked < wanted) {
    const std::int64_t groups = any(0, 4) == 0 ? 2 : 1;
    Conv2dProblem p{.n = any(1, 2),
                    .c = groups * any(1, 100),
                    .h = any(1, 20),
                    .w = any(1, 50),
                    .k = groups * any(1, 80),
                    .r = any(1, 4),
                    .s = any(1, 4),
                    .stride_h = any(1, 3),
                    .stride_w = any(1, 3),
                    .pad_top = any(0, 3),
                    .pad_left = any(0, 3),
                    .dilation_h = any(1, 2),
                    .dilation_w = any(1, 2),
                    .groups = groups,
                    .bias = any(0, 1) == 1};
    p.activation = static_cast<Activation>(any(0, 2));
    p = sized(p, any(0, 3), any(0, 3));
    if (p.ho < 2 || p.wo < 2) continue;
    if (any(0, 2) == 0) p.pool = {2, 2, 2, 2};
    check_everywhere(p, random, static_cast<int>(any(1, 2)));
    ++checked;
  }
}

TEST_CASE("bf16: 6 products are as accurate as f32, 3 are not") {
  std::mt19937 random(17);
  Conv2dProblem p = sized({.c = 256, .h = 4, .w = 16, .k = 32}, 0, 0);
  const Elements x = random_elements(p.dtype, p.c * p.h * p.w, random);
  const Elements weights = random_elements(p.dtype, p.k * p.c, random);
  const std::vector<Expected> exact = conv2d_reference(p, x, weights, {});
  const Elements in = in_layout(x, true, p.n, p.c, p.h, p.w);
  const auto worst = [&](int products) {
    Bf16Conv2dPlan plan(p, products, emulated_unit(), best_target(), 1);
    std::vector<std::uint16_t> packed(plan.packed_bytes() / 2);
    plan.pack(weights.data(), dense_strides(p), packed.data());
    GuardedOutput y(p.dtype, p.k * p.h * p.w);
    plan.run(in.data(), packed.data(), nullptr, y.data());
    double most = 0.0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const std::int64_t pixels = p.h * p.w;
      const std::size_t at = static_cast<std::size_t>(static_cast<std::int64_t>(i) % pixels * p.k) + i / 64;
      most = std::max(most, std::abs(y.at(at) - exact[i].value));
    }
    return most;
  };
  CHECK(worst(6) < 3e-5);
  CHECK(worst(3) < 3e-4);
  CHECK(worst(3) > 2 * worst(6));
}

TEST_CASE("bf16: what it can't do is refused with the reason") {
  const Bf16Unit& unit = emulated_unit();
  const Conv2dProblem good = sized({.c = 32, .h = 8, .w = 8, .k = 32, .dtype = DType::bf16}, 0, 0);
  CHECK(bf16_refusal(good, 1, unit).empty());
  Conv2dProblem p = good;
  p.nhwc = false;
  CHECK(bf16_refusal(p, 1, unit) == "layout nchw: it takes nhwc");
  p = good;
  p.pool = {3, 3, 2, 2};
  CHECK(bf16_refusal(p, 1, unit) == "a pool of 3x3 with stride 2x2: it fuses 2x2 with stride 2x2");
  Bf16Unit strict = unit;
  strict.most_padding = 3.0;
  p = good;
  p.c = 1;
  CHECK(
      bf16_refusal(p, 1, strict) ==
      "1 input and 32 output channels a group: padding makes it 32.0 times the work, and beyond 3.0 f32 arithmetic is "
      "faster");
  p = good;
  p.k = 16;
  CHECK(bf16_refusal(p, 1, strict).empty());
  p.c = 8;
  p.dtype = DType::f16;
  CHECK(bf16_refusal(p, 3, strict) ==
        "8 input and 16 output channels a group: padding makes it 4.0 times the work, and beyond 2.0 f32 arithmetic is "
        "faster");
  CHECK_THROWS_WITH_AS(Bf16Conv2dPlan(p, 6, unit, best_target(), 1),
                       "conv2d: products a term are 6, must be 3 or 4 for f16", std::invalid_argument);
  p = good;
  p.c = 1 << 16;
  CHECK(bf16_refusal(p, 1, unit).find("stages") != std::string::npos);
  CHECK_THROWS_WITH_AS(Bf16Conv2dPlan(good, 3, unit, best_target(), 1),
                       "conv2d: products a term are 3, must be 1 for bf16", std::invalid_argument);
}

}  // namespace gable::cpu::test
