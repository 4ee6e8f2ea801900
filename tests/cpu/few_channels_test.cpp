// The kernel of few input channels against an f64 reference.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <stdexcept>

#include "tests/cpu/conv2d_check.h"

namespace gable::cpu::test {

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
        AlignedFloats y(static_cast<std::size_t>(count + 32), static_cast<std::size_t>(count + 32));
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

TEST_CASE("few channels: kernels of one to five taps a row, of few and of many output channels, pooled or not") {
  std::mt19937 random(21);
  for (const std::int64_t k : {1, 2, 5, 6, 7, 8, 9, 16, 21, 40}) {
    for (const std::int64_t s : {1, 3, 5}) {
      Conv2dProblem p =
          sized({.n = 2, .c = 1 + k % 4, .h = 9, .w = 21 + k, .k = k, .r = 2, .s = s, .bias = k % 2 == 0}, 0, 0);
      p.activation = k % 3 == 0 ? Activation::relu : Activation::tanh;
      check_everywhere_in("few_channels", p, random, 2);
      p.pool = {2, 2, 2, 2};
      check_everywhere_in("few_channels", p, random);
    }
  }
}

TEST_CASE("few channels: rows of one vector of outputs, of which a tile takes up to 28 pixels") {
  std::mt19937 random(24);
  for (const std::int64_t w : {15, 28, 29, 43, 54, 57}) {
    for (const std::int64_t k : {10, 16}) {
      const std::int64_t stride = 1 + w % 2;
      Conv2dProblem p = sized({.c = 3, .h = 7, .w = w * stride, .k = k, .r = 3, .s = 3, .bias = true}, 1, 1);
      p.stride_h = p.stride_w = stride;
      p.pad_top = p.pad_left = 1;
      p.ho = (p.h - 1) / stride + 1;
      p.wo = (p.w - 1) / stride + 1;
      p.nhwc = true;
      p.activation = k == 10 ? Activation::relu : Activation::none;
      check_everywhere_in("few_channels", p, random);
    }
  }
}

TEST_CASE("few channels: strides, dilation and padding on every side") {
  std::mt19937 random(22);
  check_everywhere_in("few_channels",
                      sized({.c = 3,
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
  check_everywhere_in("few_channels",
                      sized({.c = 7,
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
  check_everywhere_in("few_channels",
                      sized({.c = 8, .h = 5, .w = 3, .k = 3, .r = 5, .s = 5, .pad_top = 4, .pad_left = 4}, 4, 4),
                      random);
  check_everywhere_in("few_channels",
                      sized({.c = 2, .h = 300, .w = 200, .k = 4, .r = 3, .s = 3, .pad_top = 1, .pad_left = 1}, 1, 1),
                      random, 2);
}

}  // namespace gable::cpu::test
