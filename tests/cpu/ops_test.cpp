// The other CPU kernels (matmul, max-pool, add, transpose, conversions) on every supported target and storage type.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include <gable/problem.h>
#include "cpu/common/aligned.h"
#include "cpu/common/cache.h"
#include "cpu/direct/conv2d.h"
#include "cpu/ops/activate.h"
#include "cpu/ops/bilinear.h"
#include "cpu/ops/concat.h"
#include "cpu/ops/elementwise.h"
#include "cpu/ops/multiply.h"
#include "cpu/ops/pool.h"
#include "cpu/ops/softmax.h"
#include "cpu/ops/transpose.h"
#include "cpu/ops/upsample.h"
#include "tests/cpu/oracle.h"

namespace gable::cpu::test {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

void check_matmul(const MatmulProblem& p, const Target& target, int threads, std::mt19937& random) {
  INFO("m" << p.m << " n" << p.n << " k" << p.k << " " << name_of(p.dtype) << " on " << target.name);
  const Elements a = random_elements(p.dtype, p.m * p.k, random);
  const Elements b = random_elements(p.dtype, p.k * p.n, random);
  const Elements bias = random_elements(DType::f32, p.n, random);
  Conv2dPlan plan(as_conv2d(p), target, threads);
  std::vector<float> packed(plan.packed_floats());
  plan.pack(b.data(), dense_strides(p), packed.data());
  GuardedOutput c(p.dtype, p.m * p.n);
  plan.run(a.data(), packed.data(), static_cast<const float*>(bias.data()), c.data());
  const std::vector<double> rows = channels_last(a, p.k, 1), columns = channels_last(b, p.k, p.n);
  std::size_t wrong = 0;
  for (std::int64_t row = 0; row < p.m; ++row) {
    for (std::int64_t column = 0; column < p.n; ++column) {
      const double first = p.bias ? static_cast<double>(bias.at(static_cast<std::size_t>(column))) : 0.0;
      ProductSums sums{first, std::abs(first)};
      add_products(rows.data() + row * p.k, columns.data() + column * p.k, p.k, sums);
      const double sum = p.activation == Activation::relu ? std::max(sums.sum, 0.0) : sums.sum;
      const double tolerance =
          4.0 * std::sqrt(static_cast<double>(p.k + 1)) * std::ldexp(sums.magnitude, -24) + rounding(p.dtype, sum);
      const double value = c.at(static_cast<std::size_t>(row * p.n + column));
      if (!(std::abs(value - sum) <= tolerance)) ++wrong;
    }
  }
  CHECK(wrong == 0);
  CHECK(c.guards_untouched());
}

void check_max_pool(const MaxPoolProblem& p, const Target& target, int threads, std::mt19937& random) {
  INFO("n" << p.n << " c" << p.c << " h" << p.h << " w" << p.w << " window " << p.window_h << "x" << p.window_w
           << " stride " << p.stride_h << "x" << p.stride_w << " pad " << p.pad_top << "," << p.pad_left << " "
           << name_of(p.dtype) << (p.nhwc ? " nhwc" : " nchw") << " on " << target.name);
  const Elements x = random_elements(p.dtype, p.n * p.c * p.h * p.w, random);
  MaxPoolPlan plan(p, target, threads);
  GuardedOutput y(p.dtype, p.n * p.c * p.out_h * p.out_w);
  plan.run(x.data(), y.data());
  std::size_t wrong = 0;
  for (std::int64_t image = 0; image < p.n; ++image) {
    for (std::int64_t channel = 0; channel < p.c; ++channel) {
      for (std::int64_t row = 0; row < p.out_h; ++row) {
        for (std::int64_t column = 0; column < p.out_w; ++column) {
          float best = -INFINITY;
          for (std::int64_t i = 0; i < p.window_h; ++i) {
            for (std::int64_t j = 0; j < p.window_w; ++j) {
              const std::int64_t h = row * p.stride_h - p.pad_top + i;
              const std::int64_t w = column * p.stride_w - p.pad_left + j;
              if (h < 0 || h >= p.h || w < 0 || w >= p.w) continue;
              best = std::max(best, x.at(offset(p.nhwc, p.c, p.h, p.w, image, channel, h, w)));
            }
          }
          if (y.at(offset(p.nhwc, p.c, p.out_h, p.out_w, image, channel, row, column)) != best) ++wrong;
        }
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(y.guards_untouched());
}

/// Whether `half` is the f16/bf16 nearest to value, the even one of two equally near.
bool is_nearest(float value, std::uint16_t half, float (*widen)(std::uint16_t), std::uint16_t infinity) {
  const std::uint16_t magnitude = half & 0x7fff;
  const auto at = [&](int step) {
    const int neighbour = magnitude + step;
    // One step past the largest finite value counts as the power of two that would come next.
    if (neighbour == infinity) {
      const double largest = widen(static_cast<std::uint16_t>(infinity - 1));
      return largest + (largest - static_cast<double>(widen(static_cast<std::uint16_t>(infinity - 2))));
    }
    return static_cast<double>(widen(static_cast<std::uint16_t>(neighbour)));
  };
  const double target = std::abs(static_cast<double>(value));
  const double error = std::abs(at(0) - target);
  const bool beats_lower =
      magnitude == 0 || error < std::abs(at(-1) - target) || (error == std::abs(at(-1) - target) && magnitude % 2 == 0);
  const bool beats_upper = magnitude == infinity || error < std::abs(at(1) - target) ||
                           (error == std::abs(at(1) - target) && magnitude % 2 == 0);
  return beats_lower && beats_upper && std::signbit(value) == ((half & 0x8000) != 0);
}

/// Values at, between and beside the representable ones, from random bits.
std::vector<float> awkward_floats(std::mt19937& random) {
  std::vector<float> values = {0.0f,       -0.0f,    1.0f,      65504.0f,  65519.99f, 65520.0f,
                               65536.0f,   1e30f,    -1e30f,    0x1p-24f,  0x1p-25f,  0x1.000002p-25f,
                               0x1.8p-24f, 0x1p-14f, 0x1p-126f, 0x1p-149f, 3.4e38f};
  for (int i = 0; i < 20000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isfinite(value)) values.push_back(value);
    // In f16's range, and exactly halfway between two f16 values.
    const float scaled = std::ldexp(static_cast<float>(random() % 4096), static_cast<int>(random() % 40) - 26);
    values.push_back(scaled);
    values.push_back(-scaled);
  }
  return values;
}

}  // namespace

TEST_CASE("half: conversion to f16 and bf16 rounds to nearest even, and back is exact") {
  std::mt19937 random(20);
  std::size_t wrong = 0;
  for (const float value : awkward_floats(random)) {
    if (!is_nearest(value, f32_to_f16(value), f16_to_f32, 0x7c00)) ++wrong;
    if (!is_nearest(value, f32_to_bf16(value), bf16_to_f32, 0x7f80)) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(f16_to_f32(0x0001) == 0x1p-24f);
  CHECK(f16_to_f32(0x3c00) == 1.0f);
  CHECK(f16_to_f32(0x7bff) == 65504.0f);
  CHECK(f16_to_f32(0xfc00) == -INFINITY);
  CHECK(std::isnan(f16_to_f32(0x7c01)));
  CHECK(std::isnan(f16_to_f32(f32_to_f16(NAN))));
  CHECK(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  CHECK(bf16_to_f32(0x3f80) == 1.0f);
}

/// relu as every kernel has it: a NaN stays one.
float relu_of(float value) { return value < 0 ? 0.0f : value; }

TEST_CASE("add: every f16 and bf16 pattern, NaN and infinities too, as the scalar conversions have it") {
  std::mt19937 random(21);
  constexpr std::size_t kCount = 65536 + 7;
  for (const DType type : {DType::f16, DType::bf16}) {
    const auto widen = type == DType::f16 ? f16_to_f32 : bf16_to_f32;
    const auto narrow = type == DType::f16 ? f32_to_f16 : f32_to_bf16;
    std::vector<std::uint16_t> a(kCount), b(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      a[i] = static_cast<std::uint16_t>(i);
      b[i] = i % 2 == 0 ? std::uint16_t{0} : static_cast<std::uint16_t>(random());
    }
    for (const Target* target : supported_targets()) {
      for (const Activation activation : {Activation::none, Activation::relu}) {
        INFO(name_of(type) << " on " << target->name << (activation == Activation::relu ? " with relu" : ""));
        GuardedOutput y(type, kCount);
        add({kCount, type, activation}, a.data(), b.data(), y.data(), *target, 1);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < kCount; ++i) {
          const float sum = widen(a[i]) + widen(b[i]);
          const std::uint16_t expected = narrow(activation == Activation::relu ? relu_of(sum) : sum);
          const std::uint16_t got = static_cast<const std::uint16_t*>(y.data())[i];
          const bool both_nan = std::isnan(widen(got)) && std::isnan(widen(expected));
          const bool both_zero = activation == Activation::relu && widen(got) == 0 && widen(expected) == 0;
          if (got != expected && !both_nan && !both_zero) ++wrong;  // relu(-0) may be either zero
        }
        CHECK(wrong == 0);
        CHECK(y.guards_untouched());
      }
    }
  }
}

TEST_CASE("add: f32, lengths around the vector and the block, one thread and two") {
  std::mt19937 random(22);
  for (const std::int64_t count : {0, 1, 3, 15, 16, 17, 63, 16384, 50001}) {
    for (const Target* target : supported_targets()) {
      for (const int threads : {1, 2}) {
        const Elements a = random_elements(DType::f32, count, random);
        const Elements b = random_elements(DType::f32, count, random);
        GuardedOutput y(DType::f32, count);
        add({.count = count}, a.data(), b.data(), y.data(), *target, threads);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < y.size(); ++i) wrong += y.at(i) != a.at(i) + b.at(i);
        CHECK(wrong == 0);
        CHECK(y.guards_untouched());
        add({.count = count, .activation = Activation::relu}, a.data(), b.data(), y.data(), *target, threads);
        for (std::size_t i = 0; i < y.size(); ++i) wrong += y.at(i) != relu_of(a.at(i) + b.at(i));
        CHECK(wrong == 0);
        CHECK(y.guards_untouched());
      }
    }
  }
}

/// tanh(x) of a kernel: a product by one, whose epilogue is tanh.
std::vector<float> tanh_of(const std::vector<float>& x, const Target& target) {
  const Conv2dProblem p{.w = static_cast<std::int64_t>(x.size()),
                        .wo = static_cast<std::int64_t>(x.size()),
                        .activation = Activation::tanh};
  Conv2dPlan plan(p, target, 1);
  std::vector<float> packed(plan.packed_floats()), y(x.size());
  const float one = 1.0f;
  plan.pack(&one, dense_strides(p), packed.data());
  plan.run(x.data(), packed.data(), nullptr, y.data());
  return y;
}

/// Every 1009th f32 from the least subnormal to infinity.
std::vector<float> floats_of_every_size() {
  std::vector<float> values{0.0f};
  for (std::uint32_t bits = 1; bits <= 0x7f800000u; bits += 1009) values.push_back(std::bit_cast<float>(bits));
  values.push_back(INFINITY);
  return values;
}

TEST_CASE("tanh: within the relative error that tanh-inl.h states, with its margin, odd, and never beyond 1") {
  constexpr double kStated = 4 * 0x1p-23, kMeasured = 3 * 0x1p-23;
  const std::vector<float> x = floats_of_every_size();
  std::vector<float> negative(x);
  for (float& value : negative) value = -value;
  for (const Target* target : supported_targets()) {
    const std::vector<float> y = tanh_of(x, *target), minus_y = tanh_of(negative, *target);
    double worst = 0;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::tanh(static_cast<double>(x[i]));
      const double error = std::abs(static_cast<double>(y[i]) - exact);
      wrong += !(error <= kStated * exact) || y[i] > 1.0f || minus_y[i] != -y[i];
      if (exact > 0) worst = std::max(worst, error / exact);
    }
    INFO(target->name << ": relative error up to " << worst * 0x1p23 << " * 2^-23");
    CHECK(wrong == 0);
    CHECK(worst <= kMeasured);
    CHECK(worst > 0);
    CHECK(std::isnan(tanh_of({NAN}, *target)[0]));
  }
}

TEST_CASE("matmul: weights beyond the last level, used once by all rows") {
  std::mt19937 random(24);
  for (const int threads : {1, 2}) check_matmul({.m = 70, .n = 140000, .k = 61}, best_target(), threads, random);
}

TEST_CASE("matmul: sizes around the tile, types, bias and activation") {
  std::mt19937 random(23);
  const std::int64_t sizes[][3] = {{1, 1, 1},   {1, 17, 300}, {13, 16, 5},  {14, 33, 64},   {15, 129, 31},
                                   {29, 64, 2}, {100, 7, 70}, {64, 200, 9}, {500, 40, 128}, {5, 5, 5000}};
  for (const auto& size : sizes) {
    for (const DType type : kTypes) {
      for (const Target* target : supported_targets()) {
        check_matmul({size[0], size[1], size[2], type, false, Activation::none}, *target, 1, random);
        check_matmul({size[0], size[1], size[2], type, true, Activation::relu}, *target, 2, random);
      }
    }
  }
  CHECK_THROWS_WITH_AS(Conv2dPlan(as_conv2d(MatmulProblem{.m = 0}), best_target(), 1),
                       "conv2d: w is 0, must be at least 1", std::invalid_argument);
}

TEST_CASE("activate: the ends of every function, NaN, in place, and beyond the last level") {
  const std::vector<float> ends{-INFINITY, -1e30f, -200, -104.5f, -90, -88, -20, -6,  -3,    -1e-6f,   -0.0f, 0,
                                1e-30f,    0.5f,   3,    6,       20,  88,  90,  105, 1e30f, INFINITY, NAN};
  const auto on = [&](Function function, std::vector<float> x, const Target& target, int threads) {
    const ActivateProblem problem{.count = static_cast<std::int64_t>(x.size()), .function = function, .slope = -0.25f};
    activate(problem, x.data(), x.data(), target, threads);
    return x;
  };
  for (const Target* target : supported_targets()) {
    INFO(target->name);
    const std::vector<float> sigmoid = on(Function::sigmoid, ends, *target, 1),
                             silu = on(Function::silu, ends, *target, 1), gelu = on(Function::gelu, ends, *target, 1),
                             swish = on(Function::hard_swish, ends, *target, 1),
                             relu6 = on(Function::relu6, ends, *target, 1),
                             leaky = on(Function::leaky_relu, ends, *target, 1);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const double x = ends[i];
      INFO(x);
      if (std::isnan(x)) {
        CHECK(std::isnan(sigmoid[i]));
        CHECK(std::isnan(silu[i]));
        CHECK(std::isnan(gelu[i]));
        CHECK(std::isnan(swish[i]));
        CHECK(std::isnan(relu6[i]));
        CHECK(std::isnan(leaky[i]));
        continue;
      }
      const double s = 1 / (1 + std::exp(-x));
      CHECK(std::abs(sigmoid[i] - s) <= 8 * 0x1p-24 * s + 0x1p-126);
      CHECK(relu6[i] == std::clamp(ends[i], 0.0f, 6.0f));
      CHECK(leaky[i] == (ends[i] < 0 ? -0.25f * ends[i] : ends[i]));
      if (std::isinf(x) && x < 0) continue;  // 0 times infinity
      if (std::isinf(x)) {
        CHECK(silu[i] == INFINITY);
        CHECK(gelu[i] == INFINITY);
        CHECK(swish[i] == INFINITY);
        continue;
      }
      CHECK(std::abs(silu[i] - x * s) <= 8 * 0x1p-24 * std::abs(x) * s + 0x1p-118);
      CHECK(std::abs(gelu[i] - x * std::erfc(-x / std::sqrt(2.0)) / 2) <= 5 * 0x1p-24 * std::abs(x) + 0x1p-126);
      CHECK(std::abs(swish[i] - x * std::clamp(x + 3, 0.0, 6.0) / 6) <= 4 * 0x1p-24 * std::abs(x));
    }
  }
}

TEST_CASE("concat and upsample: rows in pieces, and many rows in one") {
  for (const int threads : {1, 2}) {
    for (const auto& [rows, a_count, b_count] :
         {std::array<std::int64_t, 3>{1, 100001, 70003}, {3, 1, 2}, {2000, 7, 1}, {2, 16384, 1}}) {
      INFO(rows << " rows of " << a_count << " and " << b_count);
      std::vector<std::uint16_t> a(rows * a_count), b(rows * b_count), y(rows * (a_count + b_count) + 1, 9);
      std::iota(a.begin(), a.end(), std::uint16_t{1});
      std::iota(b.begin(), b.end(), std::uint16_t{77});
      concat({.rows = rows, .a_bytes = 2 * a_count, .b_bytes = 2 * b_count}, a.data(), b.data(), y.data(), threads);
      std::int64_t wrong = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto at = y.begin() + row * (a_count + b_count);
        wrong += !std::equal(at, at + a_count, a.begin() + row * a_count);
        wrong += !std::equal(at + a_count, at + a_count + b_count, b.begin() + row * b_count);
      }
      CHECK(wrong == 0);
      CHECK(y.back() == 9);
    }
    for (const std::int64_t channels : {1, 5}) {
      for (const std::int64_t scale : {1, 2, 3}) {
        INFO(channels << " channels, " << scale << " times");
        constexpr std::int64_t kRows = 300, kPixels = 41;
        std::vector<std::uint32_t> x(kRows * kPixels * channels), y(x.size() * scale * 2 + 1, 9);
        std::iota(x.begin(), x.end(), 10u);
        upsample({.rows = kRows, .pixels = kPixels, .channels = channels, .scale_h = 2, .scale_w = scale}, x.data(),
                 y.data(), threads);
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i + 1 < static_cast<std::int64_t>(y.size()); ++i) {
          const std::int64_t c = i % channels, q = i / channels % (kPixels * scale),
                             p = i / (channels * kPixels * scale);
          wrong += y[i] != x[((p / 2) * kPixels + q / scale) * channels + c];
        }
        CHECK(wrong == 0);
        CHECK(y.back() == 9);
      }
    }
  }
}

TEST_CASE("bilinear: pixels and planes around the vector, ends, and single rows and columns") {
  std::mt19937 random(32);
  for (const DType type : kTypes) {
    for (const BilinearProblem& shape :
         {BilinearProblem{.images = 2, .rows = 5, .pixels = 7, .channels = 19, .scale_h = 2, .scale_w = 3},
          BilinearProblem{.images = 3, .rows = 6, .pixels = 37, .scale_h = 2, .scale_w = 2},
          BilinearProblem{.pixels = 70, .scale_h = 4, .scale_w = 1}, BilinearProblem{.rows = 9, .scale_w = 5},
          BilinearProblem{.rows = 40, .pixels = 45, .channels = 8, .scale_h = 3, .scale_w = 2}}) {
      for (const bool align_corners : {false, true}) {
        BilinearProblem p = shape;
        p.align_corners = align_corners;
        p.dtype = type;
        const std::int64_t rows = p.rows * p.scale_h, pixels = p.pixels * p.scale_w;
        const Elements x = random_elements(type, p.images * p.rows * p.pixels * p.channels, random);
        for (const Target* target : supported_targets()) {
          INFO(name_of(type) << " on " << target->name << ", " << p.rows << "x" << p.pixels << ", corners "
                             << align_corners);
          GuardedOutput y(type, p.images * rows * pixels * p.channels);
          BilinearPlan(p, *target, 2).run(x.data(), y.data());
          double worst = 0;
          for (std::size_t i = 0; i < y.size(); ++i) {
            const auto at = static_cast<std::int64_t>(i);
            const std::int64_t row = at / (pixels * p.channels), c = at % p.channels;
            const Between down = between(row % rows, p.rows, p.scale_h, align_corners);
            const Between across = between(at / p.channels % pixels, p.pixels, p.scale_w, align_corners);
            const auto from = [&](std::int64_t r, std::int64_t column) {
              return static_cast<double>(
                  x.at(static_cast<std::size_t>(((row / rows * p.rows + r) * p.pixels + column) * p.channels + c)));
            };
            const double above = across.first_share * from(down.first, across.first) +
                                 across.second_share * from(down.first, across.second);
            const double below = across.first_share * from(down.second, across.first) +
                                 across.second_share * from(down.second, across.second);
            worst = std::max(worst, std::abs(y.at(i) - down.first_share * above - down.second_share * below));
          }
          CHECK(worst <= (type == DType::f32 ? 4 * 0x1p-24 : type == DType::f16 ? 0x1p-11 : 0x1p-8));
          CHECK(y.guards_untouched());
        }
      }
    }
  }
  // Sums of shares are 1, and places rise.
  for (const bool align_corners : {false, true}) {
    for (const std::int64_t scale : {1, 2, 3, 7, 32}) {
      for (const std::int64_t size : {1, 2, 5, 33}) {
        double before = -1;
        for (std::int64_t i = 0; i < size * scale; ++i) {
          const Between of = between(i, size, scale, align_corners);
          const double place = static_cast<double>(of.first) * static_cast<double>(of.first_share) +
                               static_cast<double>(of.second) * static_cast<double>(of.second_share);
          CHECK(std::abs(of.first_share + of.second_share - 1) <= 0x1p-23);
          CHECK((place >= before && of.second < size));
          before = place;
        }
        CHECK(before <= static_cast<double>(size - 1));
        if (align_corners && scale > 1) CHECK(before == static_cast<double>(size - 1));
      }
    }
  }
}

/// y[at] of a row made `scale` times as long, in f64, from the pixels that have a share alone.
double interpolated(const std::vector<double>& row, std::int64_t at, std::int64_t scale, bool align_corners) {
  const auto size = static_cast<std::int64_t>(row.size());
  const std::int64_t parts = align_corners ? size * scale - 1 : 2 * scale;
  const std::int64_t place = align_corners ? at * (size - 1) : std::max<std::int64_t>(0, 2 * at + 1 - scale);
  const auto first = static_cast<std::size_t>(place / parts);
  const auto rest = static_cast<double>(place % parts), whole = static_cast<double>(parts);
  if (rest == 0 || first + 1 == row.size()) return row[first];
  return (whole - rest) / whole * row[first] + rest / whole * row[first + 1];
}

TEST_CASE("bilinear: an infinity reaches the outputs in which it has a share, and no exact pixel beside it") {
  // Three times an odd number: pixels lie on pixels, with align_corners those in the middle.
  constexpr std::int64_t kRows = 5, kPixels = 37, kScale = 3;
  struct Place {
    std::int64_t row, pixel;
  };
  std::mt19937 random(34);
  for (const DType type : kTypes) {
    for (const std::int64_t channels : {1, 19}) {
      for (const auto& [row, pixel] : {Place{2, 18}, Place{2, 19}, Place{3, 17}, Place{0, 1}, Place{4, 36}}) {
        Elements x = random_elements(type, kRows * kPixels * channels, random);
        for (std::int64_t c = 0; c < channels; ++c) {
          x.set(static_cast<std::size_t>((row * kPixels + pixel) * channels + c), c % 2 == 0 ? INFINITY : -INFINITY);
        }
        for (const bool align_corners : {false, true}) {
          std::vector<double> exact(kRows * kPixels * kScale * kScale * static_cast<std::size_t>(channels));
          const auto column_at = [&](std::int64_t channel, std::int64_t at) {
            std::vector<double> column;
            for (std::int64_t r = 0; r < kRows; ++r) {
              std::vector<double> pixels;
              for (std::int64_t j = 0; j < kPixels; ++j) {
                pixels.push_back(x.at(static_cast<std::size_t>((r * kPixels + j) * channels + channel)));
              }
              column.push_back(interpolated(pixels, at, kScale, align_corners));
            }
            return column;
          };
          for (std::int64_t channel = 0; channel < channels; ++channel) {
            for (std::int64_t at = 0; at < kPixels * kScale; ++at) {
              const std::vector<double> column = column_at(channel, at);
              for (std::int64_t r = 0; r < kRows * kScale; ++r) {
                exact[static_cast<std::size_t>((r * kPixels * kScale + at) * channels + channel)] =
                    interpolated(column, r, kScale, align_corners);
              }
            }
          }
          for (const Target* target : supported_targets()) {
            INFO(name_of(type) << " on " << target->name << ", " << channels << " channels, infinity in row " << row
                               << ", pixel " << pixel << ", corners " << align_corners);
            const BilinearProblem p{.rows = kRows,
                                    .pixels = kPixels,
                                    .channels = channels,
                                    .scale_h = kScale,
                                    .scale_w = kScale,
                                    .align_corners = align_corners,
                                    .dtype = type};
            GuardedOutput y(type, static_cast<std::int64_t>(exact.size()));
            BilinearPlan(p, *target, 1).run(x.data(), y.data());
            const double allowed = type == DType::f32 ? 8 * 0x1p-24 : type == DType::f16 ? 0x1p-11 : 0x1p-8;
            std::size_t wrong = 0, infinities = 0;
            for (std::size_t i = 0; i < exact.size(); ++i) {
              infinities += std::isinf(exact[i]);
              wrong += !(y.at(i) == exact[i] || std::abs(y.at(i) - exact[i]) <= allowed);
            }
            CHECK(wrong == 0);
            CHECK(infinities > 0);
          }
        }
      }
    }
  }
}

TEST_CASE("bilinear: a plan's workspace counts the neighbours, and rows of 2^31 pixels are refused") {
  for (const std::int64_t channels : {1, 8}) {
    const BilinearProblem p{.rows = 2, .pixels = 1000, .channels = channels, .scale_w = 3};
    const std::size_t strips = channels == 1 ? 2 * 1000 * sizeof(float) : 0, neighbours = 3000 * std::size_t{16};
    const std::size_t bytes = BilinearPlan(p, best_target(), 2).workspace_bytes();
    CHECK(bytes >= strips + neighbours);
    CHECK(bytes <= strips + neighbours + 4096);  // whole vectors
  }
  CHECK_THROWS_WITH_AS(BilinearPlan({.pixels = std::int64_t{1} << 31}, best_target(), 1),
                       "bilinear: pixels is 2147483648, must be below 2147483648", std::invalid_argument);
}

TEST_CASE("softmax: rows and columns around the vector, far exponents, infinities and NaN, in place") {
  std::mt19937 random(33);
  for (const DType type : kTypes) {
    for (const SoftmaxProblem& shape :
         {SoftmaxProblem{.rows = 5, .count = 1}, SoftmaxProblem{.rows = 700, .count = 37},
          SoftmaxProblem{.rows = 2, .count = 20001}, SoftmaxProblem{.rows = 3, .count = 21, .columns = 35},
          SoftmaxProblem{.count = 9, .columns = 5003}, SoftmaxProblem{.rows = 64, .count = 16}}) {
      SoftmaxProblem p = shape;
      p.dtype = type;
      Elements x = random_elements(type, p.rows * p.count * p.columns, random);
      for (std::size_t i = 0; i < x.size(); ++i) x.set(i, (i % 11 == 0 ? 150.0f : 5.0f) * x.at(i));
      for (const Target* target : supported_targets()) {
        for (const int threads : {1, 2}) {
          INFO(name_of(type) << " on " << target->name << ", " << p.rows << " x " << p.count << " x " << p.columns);
          GuardedOutput y(type, static_cast<std::int64_t>(x.size()));
          softmax(p, x.data(), y.data(), *target, threads);
          double worst = 0;
          for (std::int64_t vector = 0; vector < p.rows * p.columns; ++vector) {
            const std::int64_t first = vector / p.columns * p.count * p.columns + vector % p.columns;
            const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(first + i * p.columns); };
            double greatest = -INFINITY, sum = 0;
            for (std::int64_t i = 0; i < p.count; ++i) greatest = std::max<double>(greatest, x.at(at(i)));
            for (std::int64_t i = 0; i < p.count; ++i) sum += std::exp(x.at(at(i)) - greatest);
            for (std::int64_t i = 0; i < p.count; ++i) {
              const double exact = std::exp(x.at(at(i)) - greatest) / sum;
              const double of_type = type == DType::f32   ? 0
                                     : type == DType::f16 ? 0x1p-11 * exact + 0x1p-25
                                                          : 0x1p-8 * exact;
              const double allowed = 40 * 0x1p-24 * exact * (1 + greatest - x.at(at(i))) + of_type + 0x1p-126;
              worst = std::max(worst, std::abs(y.at(at(i)) - exact) / allowed);
            }
          }
          CHECK(worst <= 1);
          CHECK(y.guards_untouched());
          Elements in_place = x;
          softmax(p, in_place.data(), in_place.bytes.data(), *target, threads);
          std::size_t others = 0;
          for (std::size_t i = 0; i < x.size(); ++i) others += in_place.at(i) != y.at(i);
          CHECK(others == 0);
        }
      }
    }
  }
  for (const Target* target : supported_targets()) {
    for (const std::int64_t columns : {1, 2}) {
      std::vector<float> x(static_cast<std::size_t>(40 * columns), -INFINITY);
      x[0] = 3;
      if (columns == 2) x[1] = NAN;
      softmax({.count = 40, .columns = columns}, x.data(), x.data(), *target, 1);
      CHECK((x[0] == 1 && x[static_cast<std::size_t>(columns)] == 0));
      if (columns == 2) CHECK((std::isnan(x[1]) && std::isnan(x[3])));
      x.assign(x.size(), -INFINITY);  // no element to share among
      softmax({.count = 40, .columns = columns}, x.data(), x.data(), *target, 1);
      CHECK(std::isnan(x[0]));
    }
  }
}

TEST_CASE("softmax: a long sum of equal terms stays within the plan's bound, in columns and in a row") {
  for (const SoftmaxProblem& p :
       {SoftmaxProblem{.count = 21841, .columns = 2}, SoftmaxProblem{.count = 21841, .columns = 19},
        SoftmaxProblem{.count = (1 << 20) + 3}}) {
    // One element of 0 in each vector, otherwise -1: terms of exp(-1), all of which round the same way in a long chain.
    const auto size = static_cast<std::size_t>(p.count * p.columns);
    std::vector<float> x(size, -1.0f), y(size);
    std::fill_n(x.begin(), p.columns, 0.0f);
    const double sum = 1 + static_cast<double>(p.count - 1) * std::exp(-1.0);
    const double bound = 6 * std::sqrt(static_cast<double>(p.count + 1)) * 0x1p-24;
    for (const Target* target : supported_targets()) {
      INFO(target->name << ", " << p.count << " x " << p.columns);
      softmax(p, x.data(), y.data(), *target, 1);
      double worst = 0;
      for (std::size_t i = 0; i < size; ++i) {
        const double exact = std::exp(static_cast<double>(x[i])) / sum;
        worst = std::max(worst, std::abs(y[i] - exact) / (exact * (1 - x[i])));
      }
      CHECK(worst <= bound);
    }
  }
}

TEST_CASE("multiply: one shape, factors of channels, and of planes, in pieces and several images a unit") {
  std::mt19937 random(31);
  for (const DType type : kTypes) {
    for (const MultiplyProblem& shape :
         {MultiplyProblem{.run = 40001}, MultiplyProblem{.images = 3, .run = 7},
          MultiplyProblem{.images = 5, .repeats = 700, .run = 37},
          MultiplyProblem{.images = 2, .repeats = 3, .run = 17000}, MultiplyProblem{.images = 900, .repeats = 49},
          MultiplyProblem{.images = 2, .repeats = 20001}}) {
      MultiplyProblem problem = shape;
      problem.dtype = type;
      const Elements a = random_elements(type, problem.count(), random),
                     b = random_elements(type, problem.images * problem.run, random);
      Elements exact(type, a.size() + 1);
      for (std::size_t i = 0; i < a.size(); ++i) {
        const std::size_t run = static_cast<std::size_t>(problem.run), image = problem.repeats * run;
        exact.set(i, a.at(i) * b.at(i / image * run + i % run));
      }
      exact.set(a.size(), 3);
      for (const Target* target : supported_targets()) {
        for (const int threads : {1, 2}) {
          INFO(name_of(type) << " on " << target->name << ", " << problem.images << " images, run " << problem.run);
          Elements y(type, exact.size());
          y.set(a.size(), 3);
          multiply(problem, a.data(), b.data(), y.bytes.data(), *target, threads);
          CHECK(y.bytes == exact.bytes);
          std::memcpy(y.bytes.data(), a.data(), a.bytes.size());
          multiply(problem, y.bytes.data(), b.data(), y.bytes.data(), *target, threads);
          CHECK(y.bytes == exact.bytes);
        }
      }
    }
  }
}

TEST_CASE("add in tiles: every shape of tile gives what add gives, and ends where it ends") {
  std::mt19937 random(27);
  for (const DType type : kTypes) {
    for (const Target* target : supported_targets()) {
      for (const std::int64_t count : {1, 127, 25600}) {
        const Addition addition{count, type, count == 127 ? Activation::relu : Activation::none};
        const Elements a = random_elements(type, count, random), b = random_elements(type, count, random);
        GuardedOutput expected(type, count);
        add(addition, a.data(), b.data(), expected.data(), *target, 1);
        for (const std::int64_t lanes : {1, 5, 16, 100, 128}) {
          for (const std::int64_t steps :
               {std::int64_t{1}, std::int64_t{3}, std::int64_t{200}, std::int64_t{1} << 40}) {
            INFO(count << " " << name_of(type) << " in tiles of " << lanes << "x" << steps << " on " << target->name);
            GuardedOutput y(type, count);
            add_in_tiles(addition, {lanes, steps}, a.data(), b.data(), y.data(), *target, steps == 3 ? 2 : 1);
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) wrong += y.at(i) != expected.at(i);
            CHECK(wrong == 0);
            CHECK(y.guards_untouched());
          }
        }
      }
    }
  }
}

TEST_CASE("max-pool: windows, strides and padding in both layouts") {
  std::mt19937 random(24);
  for (const DType type : kTypes) {
    for (const bool nhwc : {true, false}) {
      for (const Target* target : supported_targets()) {
        for (const std::int64_t window : {1, 2, 3, 5}) {
          for (const std::int64_t stride : {1, 2, 3}) {
            for (const std::int64_t pad : {std::int64_t{0}, window / 2}) {
              MaxPoolProblem p{.n = 2, .c = 19, .h = 9, .w = 41, .window_h = window, .window_w = window};
              p.stride_h = p.stride_w = stride;
              p.pad_top = p.pad_left = pad;
              p.out_h = (p.h + 2 * pad - window) / stride + 1;
              p.out_w = (p.w + 2 * pad - window) / stride + 1;
              p.dtype = type;
              p.nhwc = nhwc;
              check_max_pool(p, *target, pad == 0 ? 1 : 2, random);
            }
          }
        }
      }
    }
  }
  CHECK_THROWS_AS(MaxPoolPlan({.window_h = 2, .window_w = 2, .pad_top = 2}, best_target(), 1), std::invalid_argument);
  CHECK_THROWS_AS(MaxPoolPlan({.h = 2, .w = 2, .out_h = 3}, best_target(), 1), std::invalid_argument);
}

TEST_CASE("max-pool: a NaN in the window comes out, wherever it lies") {
  for (const Target* target : supported_targets()) {
    for (const bool nhwc : {true, false}) {
      for (const std::int64_t stride : {1, 2}) {
        for (std::size_t position = 0; position < 40; ++position) {
          MaxPoolProblem p{.h = 2, .w = 20, .window_h = 2, .window_w = 2};
          p.stride_h = p.stride_w = stride;
          p.out_w = (p.w - 2) / stride + 1;
          p.nhwc = nhwc;
          std::vector<float> x(40, 1.0f), y(20);
          x[position] = NAN;
          MaxPoolPlan(p, *target, 1).run(x.data(), y.data());
          const std::int64_t column = static_cast<std::int64_t>(position % 20);
          for (std::int64_t out = 0; out < p.out_w; ++out) {
            const bool inside = column >= out * stride && column < out * stride + 2;
            CHECK(std::isnan(y[static_cast<std::size_t>(out)]) == inside);
          }
        }
      }
    }
  }
}

TEST_CASE("transpose: sizes around the block and the tile, strides, one thread and two") {
  std::mt19937 random(25);
  for (const DType type : {DType::f32, DType::f16}) {
    for (const Target* target : supported_targets()) {
      for (const std::int64_t rows : {1, 3, 8, 31, 33, 70}) {
        for (const std::int64_t columns : {1, 4, 15, 32, 65}) {
          INFO(rows << "x" << columns << " " << name_of(type) << " on " << target->name);
          const Transpose2d shape{rows, columns, columns + 3, rows + 2};
          const Elements x = random_elements(type, rows * shape.x_stride, random);
          GuardedOutput y(type, columns * shape.y_stride);
          transpose(shape, x.data(), y.data(), static_cast<int>(size_of(type)), *target, rows > 32 ? 2 : 1);
          std::size_t wrong = 0;
          for (std::int64_t c = 0; c < columns; ++c) {
            for (std::int64_t r = 0; r < shape.y_stride; ++r) {
              const float value = y.at(static_cast<std::size_t>(c * shape.y_stride + r));
              // The gap between rows keeps its poison.
              const bool right =
                  r < rows ? value == x.at(static_cast<std::size_t>(r * shape.x_stride + c)) : std::isnan(value);
              if (!right) ++wrong;
            }
          }
          CHECK(wrong == 0);
          CHECK(y.guards_untouched());
        }
      }
    }
  }
  CHECK_THROWS_WITH_AS(transpose({}, nullptr, nullptr, 8, best_target(), 1),
                       "transpose: element_bytes is 8, must be 2 or 4", std::invalid_argument);
}

TEST_CASE("transpose: a result beyond the last level, on aligned and unaligned addresses") {
  constexpr std::int64_t kRows = 4160 + 5, kColumns = 64 * 64 + 9, kPitch = 4224;  // whole tiles and rests
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto bytes = static_cast<std::int64_t>(size_of(type));
    const AlignedFloats from(static_cast<std::size_t>(kRows * kPitch)),
        to(static_cast<std::size_t>(kColumns * kPitch + 16), static_cast<std::size_t>(kColumns * kPitch + 16));
    auto* in = reinterpret_cast<unsigned char*>(from.data());
    for (std::int64_t i = 0; i < kRows * kPitch * bytes; ++i) in[i] = static_cast<unsigned char>(i * 2654435761 >> 11);
    for (const Target* target : supported_targets()) {
      for (const std::int64_t offset : {std::int64_t{0}, bytes}) {
        INFO(name_of(type) << " on " << target->name << ", " << offset << " bytes from a line");
        unsigned char* out = reinterpret_cast<unsigned char*>(to.data()) + offset;
        std::fill_n(to.data(), to.size(), -7.0f);
        transpose({kRows, kColumns, kPitch, kPitch}, in, out, static_cast<int>(bytes), *target, 2);
        std::size_t wrong = 0;
        for (std::int64_t c = 0; c < kColumns; ++c) {
          for (std::int64_t r = 0; r < kRows; ++r) {
            wrong += std::memcmp(out + (c * kPitch + r) * bytes, in + (r * kPitch + c) * bytes,
                                 static_cast<std::size_t>(bytes)) != 0;
          }
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("add, activate, max-pool: results beyond the last level, on aligned and unaligned addresses") {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const auto bytes = static_cast<std::int64_t>(size_of(type));
    const std::int64_t count = (std::int64_t{33} << 20) / bytes / 32 * 32;
    // A pool of windows of one pixel copies.
    MaxPoolProblem pool;
    pool.h = pool.out_h = 4;
    pool.c = 32;
    pool.w = pool.out_w = count / 4 / 32;
    pool.dtype = type;
    pool.nhwc = true;
    const Elements x = [&] {
      std::mt19937 random(29);
      return random_elements(type, count, random);
    }();
    const auto doubled = [&](Activation activation) {
      Elements sums(type, x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float sum = 2 * x.at(i);
        sums.set(i, activation == Activation::relu ? relu_of(sum) : sum);
      }
      return sums;
    };
    const Elements sums = doubled(Activation::none), positive = doubled(Activation::relu);
    const Elements activated = [&] {
      Elements values(type, x.size());
      for (std::size_t i = 0; i < x.size(); ++i) values.set(i, relu_of(x.at(i)));
      return values;
    }();
    const auto floats = static_cast<std::size_t>(count * bytes / 4 + 32);
    const AlignedFloats to(floats, floats);
    for (const Target* target : supported_targets()) {
      for (const std::int64_t offset : {std::int64_t{0}, bytes}) {
        INFO(name_of(type) << " on " << target->name << ", " << offset << " bytes from a line");
        char* y = reinterpret_cast<char*>(to.data()) + offset;
        const auto wrong = [&](const Elements& expected) {
          if (std::memcmp(y, expected.data(), expected.bytes.size()) == 0) return std::size_t{0};
          std::size_t found = 0;  // a zero may have either sign
          for (std::size_t i = 0; i < expected.size(); ++i)
            found += element_as_f32(y, type, static_cast<std::int64_t>(i)) != expected.at(i);
          return found;
        };
        std::fill_n(to.data(), to.size(), -7.0f);
        add({count, type}, x.data(), x.data(), y, *target, 2);
        CHECK(wrong(sums) == 0);
        std::fill_n(to.data(), to.size(), -7.0f);
        add({count, type, Activation::relu}, x.data(), x.data(), y, *target, 2);
        CHECK(wrong(positive) == 0);
        std::fill_n(to.data(), to.size(), -7.0f);
        activate({count, type, Function::relu}, x.data(), y, *target, 2);
        CHECK(wrong(activated) == 0);
        std::fill_n(to.data(), to.size(), -7.0f);
        MaxPoolPlan(pool, *target, 2).run(x.data(), y);
        CHECK(wrong(x) == 0);
      }
    }
  }
}

TEST_CASE("reorder: nchw to nhwc and back, of few and many channels, of images below a block and beyond a stripe") {
  std::mt19937 random(26);
  struct Shape {
    std::int64_t c, h, w;
  };
  std::vector<Shape> shapes;
  for (const std::int64_t c : {1, 2, 3, 4, 5, 7, 8, 9, 12, 37, 66}) {
    for (const std::int64_t h : {1, 2, 5, 33}) shapes.push_back({c, h, h == 33 ? 32 : 2 * h - 1});
    shapes.push_back({c, 8, 9});  // little more than two lines
  }
  // Rows a multiple of 4 KiB apart, whose tiles are copied first.
  for (const std::int64_t c : {8, 16, 33, 63}) shapes.push_back({c, 32, 64});
  for (const DType type : kTypes) {
    const int bytes = static_cast<int>(size_of(type));
    for (const Target* target : supported_targets()) {
      for (const auto& [c, h, w] : shapes) {
        const std::int64_t n = 2;
        INFO(c << " channels of " << h << "x" << w << " " << name_of(type) << " on " << target->name);
        const Elements x = random_elements(type, n * c * h * w, random);
        const Elements expected = in_layout(x, true, n, c, h, w);
        Elements nhwc(type, x.size()), nchw(type, x.size());
        nchw_to_nhwc({n, c, h, w, bytes}, x.data(), nhwc.bytes.data(), *target, 2);
        CHECK(nhwc.bytes == expected.bytes);
        nhwc_to_nchw({n, c, h, w, bytes}, nhwc.data(), nchw.bytes.data(), *target, 1);
        CHECK(nchw.bytes == x.bytes);
      }
    }
  }
}

TEST_CASE("targets: found by name, the best is supported, an unknown name is none") {
  CHECK(best_target().supported);
  for (const Target& target : compiled_targets()) CHECK(find_target(target.name) == &target);
  CHECK(find_target("no such target") == nullptr);
}

}  // namespace gable::cpu::test
