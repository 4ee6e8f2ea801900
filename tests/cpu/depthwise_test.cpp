// The depthwise kernels against an f64 reference, and the parts that the staged one is made of.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "cpu/common/cache.h"
#include "cpu/common/core.h"
#include "tests/cpu/conv2d_check.h"

namespace gable::cpu::test {

TEST_CASE("depthwise 3x3: strides, edges, single rows, channel tails, and outputs that leave the caches") {
  std::mt19937 random(23);
  for (const std::int64_t stride : {1, 2}) {
    for (const std::int64_t pad : {0, 1}) {
      for (const std::int64_t size : {3, 4, 7, 9, 10, 13, 14}) {  // also rows of 7 outputs, with padding on either side
        // Below and above two vectors of every target, with a tail.
        const std::int64_t channels = size == 7 ? 17 : 33 + size;
        Conv2dProblem p{.n = 2, .c = channels, .h = size, .w = size, .k = channels, .r = 3, .s = 3};
        p.stride_h = p.stride_w = stride;
        p.pad_top = p.pad_left = pad;
        p.groups = p.c;
        p.bias = pad == 1;
        p.activation = size % 2 == 0 ? Activation::relu : Activation::none;
        Runs runs = check_everywhere(sized(p, pad, pad), random, size > 9 ? 3 : 1);
        CHECK(runs["depthwise"] == runs_in_one_layout());
        CHECK(runs["depthwise_planes"] >= runs_in_one_layout());
        CHECK(runs["depthwise_staged"] == 2 * runs_in_one_layout());
      }
    }
  }
  check_everywhere_in("depthwise", sized({.c = 40, .h = 8, .w = 8, .k = 40, .r = 3, .s = 3, .groups = 40}, 0, 1),
                      random);
  Conv2dProblem p{.c = 144, .h = 64, .w = 64, .k = 144, .r = 3, .s = 3, .groups = 144, .bias = true};
  check_everywhere_in("depthwise", same_padded(p), random, 2);
  p = {.n = 2, .c = 3, .h = 90, .w = 131, .k = 3, .r = 3, .s = 3, .groups = 3};  // several blocks of rows a plane
  for (const std::int64_t stride : {1, 2}) {
    p.stride_h = p.stride_w = stride;
    check_everywhere_in("depthwise_planes", sized(p, 2, 2), random, 2);
  }
}

TEST_CASE("depthwise 3x3 of fewer channels than lanes: tiles of two rows leave the pixels behind theirs as they are") {
  std::mt19937 random(33);
  for (const std::int64_t channels : {2, 3, 5, 8, 9, 12, 15}) {
    for (const std::int64_t width : {4, 9, 16, 17, 35}) {
      for (const std::int64_t stride : {1, 2}) {
        Conv2dProblem p{.n = 2, .c = channels, .h = 9 + width % 2, .w = width, .k = channels, .r = 3, .s = 3};
        p.groups = channels;
        p.stride_h = p.stride_w = stride;
        p.bias = channels != 5;
        p.activation = width == 9 ? Activation::relu : Activation::none;
        check_everywhere_in("depthwise", same_padded(p), random, channels == 8 ? 2 : 1);
        check_everywhere_in("depthwise", sized(p, 0, 0), random);
      }
    }
  }
}

TEST_CASE("depthwise of few channels in NHWC: all channels of neighbouring pixels are the lanes of a vector") {
  std::mt19937 random(35);
  for (const std::int64_t channels : {2, 3, 5, 6, 7}) {  // fewer than the lanes of every vector of several
    for (const std::int64_t kernel : {2, 3, 5}) {
      for (const std::int64_t stride : {1, 2, 3}) {
        Conv2dProblem p{.n = 2, .c = channels, .h = 11, .w = 29, .k = channels, .r = kernel, .s = kernel};
        p.groups = channels;
        p.stride_h = p.stride_w = stride;
        p.dilation_w = channels == 5 ? 2 : 1;
        p.bias = kernel != 5;
        p.activation = channels == 6 ? Activation::tanh : kernel == 3 ? Activation::relu : Activation::none;
        const int threads = stride == 2 ? 3 : 1;
        Runs runs = check_everywhere(sized(p, 0, 0), random, threads);
        CHECK(runs["depthwise_planes"] > runs_in_one_layout());
        p.pad_top = kernel / 2;
        p.pad_left = 1;
        runs = check_everywhere(sized(p, 1, kernel - 1), random, threads);
        CHECK(runs["depthwise_planes"] > runs_in_one_layout());
      }
    }
  }
  // A unit of rows that follow one another, and channels whose last vector overlaps the one before.
  for (const std::int64_t channels : {3, 9, 12, 15}) {
    Conv2dProblem p{.n = 1, .c = channels, .h = 70, .w = 61, .k = channels, .r = 3, .s = 3, .groups = channels};
    p.bias = true;
    check_everywhere_in("depthwise_planes", same_padded(p), random, 2);
  }
}

TEST_CASE("depthwise of bf16 in NCHW: every kind of NaN reaches exactly the outputs that it belongs to") {
  constexpr std::int64_t kChannels = 24;
  for (const std::int64_t size : {5, 12, 50}) {  // lanes are channels or pixels
    Conv2dProblem p{.c = kChannels, .h = 5, .w = size, .k = kChannels, .r = 3, .s = 3, .groups = kChannels};
    p.dtype = DType::bf16;
    p.bias = true;
    p.nhwc = false;
    p = sized(p, 0, 0);
    const auto plane = static_cast<std::size_t>(p.ho * p.wo);
    for (const Target* target : supported_targets()) {
      for (const auto pattern : std::to_array<std::uint16_t>({0x7fff, 0xffff, 0x7f81, 0xffc0})) {
        std::vector<std::uint16_t> x(static_cast<std::size_t>(p.x_elements()), 0x3f80);
        std::vector<float> bias(kChannels, 0.5F);
        x[static_cast<std::size_t>(3 * p.h * p.w)] = pattern;  // reaches the first output of channel 3 alone
        bias[8] = std::bit_cast<float>(0x7fffffffU);
        const std::vector<std::uint16_t> weights(kChannels * 9, 0x3f80);
        DepthwisePlanesPlan plan(p, *target, 1);
        std::vector<float> packed(plan.packed_bytes() / sizeof(float));
        plan.pack(weights.data(), dense_strides(p), packed.data());
        GuardedOutput y(DType::bf16, p.y_elements());
        plan.run(x.data(), packed.data(), bias.data(), y.data());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < kChannels * plane; ++i) {
          const bool nan = i == 3 * plane || i / plane == 8;
          wrong += nan ? !std::isnan(y.at(i)) : y.at(i) != 9.5F;
        }
        INFO(pattern << " on " << target->name << ", rows of " << size);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("depthwise of fewer channels than lanes: no unit writes into the rows of the next one") {
  std::mt19937 random(34);
  for (const std::int64_t channels : {2, 3, 8, 12}) {
    for (const std::int64_t kernel : {2, 3, 5, 7}) {
      for (const std::int64_t threads : {2, 5}) {
        Conv2dProblem p{.n = 2, .c = channels, .h = 23, .w = 17, .k = channels, .r = kernel, .s = kernel};
        p.groups = channels;
        p.bias = kernel != 5;
        if (kernel == 2) p.s = 1;
        check_everywhere_in("depthwise", same_padded(p), random, static_cast<int>(threads));
      }
    }
  }
}

TEST_CASE("depthwise 3x3 of bf16: every kind of NaN reaches exactly the outputs that it belongs to") {
  constexpr std::int64_t kChannels = 64, kSize = 5;
  Conv2dProblem p{.c = kChannels, .h = kSize, .w = kSize, .k = kChannels, .r = 3, .s = 3, .groups = kChannels};
  p.dtype = DType::bf16;
  p.bias = true;
  p = sized(p, 0, 0);
  for (const Target* target : supported_targets()) {
    for (const auto pattern : std::to_array<std::uint16_t>({0x7fff, 0xffff, 0x7f81, 0xffc0})) {
      std::vector<std::uint16_t> x(kSize * kSize * kChannels, 0x3f80);
      std::vector<float> bias(kChannels, 0.5F);
      x[3] = pattern;                               // the corner pixel of channel 3 reaches output pixel 0 alone
      bias[8] = std::bit_cast<float>(0x7fffffffU);  // and the bias of channel 8 all of its outputs
      const std::vector<std::uint16_t> weights(kChannels * 9, 0x3f80);
      DepthwisePlan plan(p, *target, 1);
      std::vector<float> packed(plan.packed_bytes() / sizeof(float));
      plan.pack(weights.data(), dense_strides(p), packed.data());
      GuardedOutput y(DType::bf16, 9 * kChannels);
      plan.run(x.data(), packed.data(), bias.data(), y.data());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < 9 * kChannels; ++i) {
        const bool nan = i == 3 || i % kChannels == 8;
        wrong += nan ? !std::isnan(y.at(i)) : y.at(i) != 9.5F;
      }
      INFO(pattern << " on " << target->name);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE(
    "depthwise of bf16: pairs of vectors of the even and the odd channels, and channels that are no whole pairs") {
  std::mt19937 random(31);
  for (const std::int64_t channels : {31, 32, 48, 64, 72, 96}) {
    for (const std::int64_t kernel : {1, 2, 3, 5, 7, 8}) {
      for (const std::int64_t stride : {1, 2}) {
        Conv2dProblem p{.n = 2, .c = channels, .h = 9, .w = 19, .k = channels, .r = kernel, .s = kernel};
        p.groups = channels;
        p.stride_h = p.stride_w = stride;
        p.dtype = DType::bf16;
        p.bias = channels != 64;
        p.activation = kernel == 5 ? Activation::relu : Activation::none;
        p = same_padded(p);
        const Sample sample = random_sample(p, random);
        Runs runs;
        for (const Target* target : supported_targets()) check_kernels(p, *target, 1, sample, runs);
        CHECK(runs["depthwise"] == supported_targets().size());
      }
    }
  }
  // Tiles of two rows whose padding is before the row, behind it, on both sides or wider than a pixel.
  for (const std::int64_t width : {2, 7, 8, 15, 16, 23}) {
    for (const std::int64_t padding : {0, 1, 2}) {
      Conv2dProblem p{.n = 1, .c = 64, .h = 6, .w = width, .k = 64, .r = 3, .s = 3, .groups = 64, .bias = true};
      p.stride_h = p.stride_w = 2;
      p.pad_top = p.pad_left = padding;
      p.dtype = DType::bf16;
      if (width + 2 * padding < 3) continue;
      p = sized(p, padding, padding);
      const Sample sample = random_sample(p, random);
      Runs runs;
      for (const Target* target : supported_targets()) check_kernels(p, *target, 1, sample, runs);
      CHECK(runs["depthwise"] == supported_targets().size());
    }
  }
  // Threads take blocks of channels, which do not part pairs.
  for (const std::int64_t channels : {288, 1056}) {
    Conv2dProblem p{.n = 1, .c = channels, .h = 3, .w = 5, .k = channels, .r = 3, .s = 3, .groups = channels};
    p.dtype = DType::bf16;
    p = same_padded(p);
    const Sample sample = random_sample(p, random);
    Runs runs;
    for (const Target* target : supported_targets()) check_kernels(p, *target, 5, sample, runs);
    CHECK(runs["depthwise"] == supported_targets().size());
  }
}

TEST_CASE("depthwise: channel counts around the partition and the vector, strides and pools") {
  std::mt19937 random(7);
  for (const std::int64_t channels : {2, 16, 31, 128, 130, 256}) {
    Conv2dProblem p{.n = 2, .c = channels, .h = 7, .w = 17, .k = channels, .r = 3, .s = 3};
    p.groups = channels;
    p.bias = true;
    check_everywhere_in("depthwise_staged", same_padded(p), random);
    check_everywhere_in("depthwise_staged", sized(p, 0, 0), random);
    p.stride_h = p.stride_w = 2;
    p.activation = Activation::relu;
    check_everywhere_in("depthwise_staged", same_padded(p), random);
    p.pool = {2, 2, 2, 2};
    check_everywhere_in("depthwise_staged", same_padded(p), random);
  }
  check_everywhere_in("depthwise_staged", sized({.c = 40, .h = 6, .w = 6, .k = 40, .r = 1, .s = 1, .groups = 40}, 0, 0),
                      random);
}

TEST_CASE("depthwise of any window: sizes, strides, dilation and padding on every side") {
  std::mt19937 random(26);
  for (const std::int64_t kernel : {1, 2, 5, 7}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      Conv2dProblem p{.n = 2, .c = 37, .h = 12, .w = 33, .k = 37, .r = kernel, .s = kernel, .groups = 37};
      p.stride_h = p.stride_w = stride;
      p.activation = stride == 2 ? Activation::tanh : Activation::none;
      check_everywhere_in("depthwise_staged", same_padded(p), random, static_cast<int>(kernel % 3 + 1));
      p.dilation_w = 2;
      check_everywhere_in("depthwise_staged", sized(p, 1, kernel), random);
    }
  }
  Conv2dProblem p{.c = 32, .h = 6, .w = 66, .k = 32, .r = 3, .s = 3, .groups = 32, .pool = {2, 2, 2, 2}};
  check_everywhere_in("depthwise_staged", same_padded(p), random);
  p.pool = {3, 2, 1, 2};
  check_everywhere_in("depthwise_staged", same_padded(p), random);
}

namespace {

/// A result that no cache keeps, on aligned addresses, which take non-temporal stores, and on unaligned ones.
template <class Plan>
void check_large_depthwise_result() {
  constexpr std::int64_t kChannels = 16, kSide = 725;
  const Conv2dProblem p = sized({.c = kChannels, .h = kSide, .w = kSide, .k = kChannels, .groups = kChannels}, 0, 0);
  const auto count = static_cast<std::size_t>(p.y_elements());
  std::mt19937 random(27);
  const Elements x = random_elements(DType::f32, p.x_elements(), random);
  const Elements weights = random_elements(DType::f32, kChannels, random);
  for (const Target* target : supported_targets()) {
    Plan plan(p, *target, 2);
    const std::vector<float> packed = packed_weights(plan, p, weights.data());
    for (const std::size_t shift : {0, 1}) {
      INFO(target->name << ", y " << shift << " floats from a cache line");
      AlignedFloats y(count + 32, count + 32);
      float* first = y.data() + 16 + shift;
      plan.run(x.data(), packed.data(), nullptr, first);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) wrong += first[i] == x.at(i) * weights.at(i % kChannels) ? 0 : 1;
      CHECK(wrong == 0);
      CHECK(first[-1] == 0.0f);
      CHECK(first[count] == 0.0f);
    }
  }
}

}  // namespace

TEST_CASE("depthwise: windows of one column, whose tiles lie along the columns of the image") {
  std::mt19937 random(37);
  for (const std::int64_t taps : {2, 3, 5, 11}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      const std::int64_t channels = 13 + 4 * taps;
      Conv2dProblem p{.n = 2, .c = channels, .h = 10 + 7 * stride, .w = 5 + stride, .k = channels, .r = taps, .s = 1};
      p.stride_h = stride;
      p.pad_top = taps / 2;
      p.dilation_h = taps == 3 ? 2 : 1;
      p.groups = p.c;
      p.bias = stride == 1;
      p.activation = stride == 2 ? Activation::relu : Activation::none;
      check_everywhere_in("depthwise", sized(p, taps == 5 ? 4 : taps / 2, 0), random);
      p.pad_left = 1;
      p.w = 1;
      check_everywhere_in("depthwise", sized(p, 0, 1), random);
    }
  }
}

TEST_CASE("depthwise: pixels that share sets of L1 are copied, in several parts where images are tall") {
  std::mt19937 random(37);
  for (const std::int64_t stride : {1, 2}) {
    for (const std::int64_t kernel : {2, 3, 5}) {
      Conv2dProblem p{.n = 2, .c = 1024, .h = 9, .w = 10, .k = 1024, .r = kernel, .s = kernel, .groups = 1024};
      p.stride_h = p.stride_w = stride;
      p.bias = kernel != 5;
      p.activation = kernel == 3 ? Activation::relu : Activation::none;
      check_everywhere_in("depthwise", same_padded(p), random, kernel == 3 ? 3 : 1);
      check_everywhere_in("depthwise", sized(p, 0, 0), random);
    }
    Conv2dProblem p{.c = 2048, .h = 3, .w = 4, .k = 2048, .r = 3, .s = 3, .groups = 2048};
    p.stride_h = p.stride_w = stride;
    check_everywhere_in("depthwise", same_padded(p), random);  // few pixels: blocks of many channels
    p = {.c = 2048, .h = 61, .w = 11, .k = 2048, .r = 3, .s = 3, .groups = 2048};
    p.stride_h = p.stride_w = stride;
    p.dilation_h = stride == 1 ? 2 : 1;
    check_everywhere_in("depthwise", same_padded(p), random);
  }
  // A last block of half a vector's bytes.
  check_everywhere_in(
      "depthwise",
      same_padded({.c = 11264, .h = 13, .w = 13, .k = 11264, .r = 3, .s = 3, .groups = 11264, .dtype = DType::f16}),
      random);
  Conv2dProblem p{.c = 1024, .h = 20, .w = 7, .k = 1024, .r = 3, .s = 3, .groups = 1024};
  for (const Target& target : compiled_targets()) {
    if (!target.supported) continue;
    INFO(target.name);
    const DepthwiseBlocking b = choose_depthwise_blocking(same_padded(p), target, 1);
    CHECK(b.copies_input == l1_has_few_ways());
    CHECK((!b.copies_input || b.copied_pixel * 4 / 64 % 2 == 1));
    Conv2dProblem other = p;
    other.c = other.k = other.groups = 1040;
    CHECK(!choose_depthwise_blocking(same_padded(other), target, 1).copies_input);
    other = p;
    if (target.name == "avx2") {  // half a way apart: where nine taps for each step read a line's vectors
      other.w = 20;
      other.c = other.k = other.groups = 512;
      CHECK(choose_depthwise_blocking(same_padded(other), target, 1).copies_input == l1_has_few_ways());
      other.stride_h = other.stride_w = 2;
      CHECK(!choose_depthwise_blocking(same_padded(other), target, 1).copies_input);
    }
    other = p;
    other.w = 4096;  // the rows of a window are more than L2 keeps
    other.dilation_h = 5;
    CHECK(!choose_depthwise_blocking(sized(other, 0, 0), target, 1).copies_input);
  }
}

TEST_CASE("depthwise: a result beyond the last level's share, on aligned and unaligned addresses") {
  check_large_depthwise_result<DepthwisePlan>();
  check_large_depthwise_result<DepthwiseStagedPlan>();
}

namespace {

std::string input_of(const Conv2dProblem& p) {
  const std::string fusion = DepthwiseStagedPlan(p, best_target(), 1).description().fusion;
  return fusion.substr(0, fusion.find(','));
}

}  // namespace

TEST_CASE("depthwise of any window: explains where the input is read") {
  const Conv2dProblem wide{.c = 32, .h = 20, .w = 200, .k = 32, .r = 5, .s = 5, .groups = 32};
  CHECK(input_of(sized(wide, 0, 0)) == "input in place");
  CHECK(input_of(same_padded(wide)) == "input staged where tiles touch padding");
  Conv2dProblem p = same_padded(wide);
  p.dtype = DType::f16;
  CHECK(input_of(p) == "input staged");
  p = same_padded(wide);
  p.nhwc = false;
  CHECK(input_of(p) == "input staged");
  p = wide;
  p.w = 10;  // each tile touches padding
  CHECK(input_of(same_padded(p)) == "input staged");
  p = wide;
  p.c = p.k = p.groups = 33;  // a vector has lanes past the last channel, with and without padding
  CHECK(input_of(same_padded(p)) == "input staged");
  CHECK(input_of(sized(p, 0, 0)) == "input staged");
  p.c = p.k = p.groups = 129;  // and only the last out tile has such a vector
  CHECK(input_of(same_padded(p)) == "input staged in some units and elsewhere where tiles touch padding");
}

TEST_CASE("depthwise: results of few products stay in the last level where several threads would wait for DRAM") {
  const Target& target = best_target();
  if (depthwise_tiles(target).lanes != 16 || last_level_bytes() / 2 < 5 * l2_bytes()) {
    MESSAGE("skipped: it needs vectors of 16 lanes and a last level of ten times L2");
    return;
  }
  const auto streams = [&](std::int64_t megabytes, std::int64_t window, std::int64_t stride, int threads) {
    const std::int64_t rows = (megabytes << 20) / (2 * 128 * 64 * 4);
    const Conv2dProblem p{.c = 64, .h = rows * stride, .w = 128, .k = 64, .r = window, .s = window, .groups = 64};
    Conv2dProblem strided = same_padded(p);
    strided.stride_h = stride;
    strided.ho = rows;
    return DepthwisePlan(strided, target, threads).description().fusion.find("non-temporal") != std::string::npos;
  };
  const std::int64_t cached = 5 * l2_bytes() >> 20, far = 2 * last_level_bytes() >> 20;
  CHECK_FALSE(streams(cached, 3, 1, 2));
  CHECK(streams(cached, 3, 1, 1));
  CHECK(streams(cached, 3, 2, 2));
  CHECK(streams(cached, 7, 1, 2));
  CHECK(streams(far, 3, 1, 2));
}

TEST_CASE("depthwise: explains the register tile and the stores that run") {
  const Target& target = best_target();
  const std::int64_t lanes = depthwise_tiles(target).lanes;
  Conv2dProblem p = same_padded({.c = 64, .h = 9, .w = 9, .k = 64, .r = 3, .s = 3, .groups = 64});
  const DepthwiseTiles& tiles = depthwise_tiles(target);
  const bool widest = tiles.row_tile(p.dtype, 1, kMaxTileOutputs) != nullptr;
  const std::string pixels = widest ? "2x5" : tiles.long_row_outputs > 0 ? "2x3" : "5";
  CHECK(DepthwisePlan(p, target, 1).description().tile == pixels + " pixels x " + text(lanes) + " channels");
  CHECK(DepthwisePlan(p, target, 1).description().fusion ==
        "input in place, no pool, bias and activation in registers");
  p.dtype = DType::bf16;
  CHECK(DepthwisePlan(p, target, 1).description().fusion.find("input in place") == 0);
  p.activation = Activation::tanh;
  CHECK(DepthwisePlan(p, target, 1).description().fusion.find("input widened") == 0);
  p = same_padded({.c = 64, .h = 300, .w = 300, .k = 64, .r = 3, .s = 3, .groups = 64});  // 46 MB
  const bool streams = DepthwisePlan(p, target, 1).description().fusion.find("non-temporal") != std::string::npos;
  CHECK(streams == (lanes == 16));
  p.nhwc = false;
  CHECK(DepthwisePlanesPlan(p, target, 1).description().fusion ==
        "input staged, no pool, bias and activation in registers");
  p = sized(p, 0, 0);
  p.pad_left = 0;
  CHECK(DepthwisePlanesPlan(sized(p, 0, 0), target, 1).description().fusion.find("input in place") == 0);
}

TEST_CASE(
    "depthwise: windows from one tap to more than a register tile holds, with strides and dilations of every kind") {
  std::mt19937 random(28);
  struct Window {
    std::int64_t r, s, stride_h, stride_w, dilation_h, dilation_w;
  };
  // Stride and dilation that divide one another, that do not, and windows of one, two and five runs of taps.
  for (const Window& w : std::vector<Window>{{1, 1, 1, 1, 1, 1},
                                             {1, 1, 2, 2, 1, 1},
                                             {2, 2, 2, 2, 1, 1},
                                             {3, 3, 1, 1, 1, 1},
                                             {3, 3, 2, 2, 1, 1},
                                             {5, 5, 1, 1, 1, 1},
                                             {5, 3, 2, 1, 1, 2},
                                             {7, 7, 2, 2, 1, 1},
                                             {9, 4, 1, 2, 1, 1},
                                             {3, 3, 2, 2, 2, 2},
                                             {3, 3, 4, 2, 2, 4},
                                             {3, 3, 2, 3, 3, 2},
                                             {6, 11, 3, 1, 1, 1},
                                             {1, 31, 1, 1, 1, 1},
                                             {31, 1, 1, 2, 1, 1}}) {
    for (const std::int64_t channels : {3, 16, 24, 37}) {
      Conv2dProblem p{.n = 2, .c = channels, .h = 13, .w = 21, .k = channels, .r = w.r, .s = w.s, .groups = channels};
      p.stride_h = w.stride_h;
      p.stride_w = w.stride_w;
      p.dilation_h = w.dilation_h;
      p.dilation_w = w.dilation_w;
      p.bias = channels % 2 == 1;
      p.activation = channels == 24 ? Activation::relu : Activation::none;
      p.pad_top = (w.r - 1) * w.dilation_h / 2;
      p.pad_left = (w.s - 1) * w.dilation_w / 2;
      const Runs runs = check_everywhere(sized(p, p.pad_top, p.pad_left), random, channels == 16 ? 3 : 1);
      CHECK(runs.at("depthwise") == runs_in_one_layout());
      CHECK(runs.at("depthwise_planes") >= runs_in_one_layout());
      p.pad_top = (w.r - 1) * w.dilation_h;
      p.pad_left = 1;
      check_everywhere(sized(p, 2, (w.s - 1) * w.dilation_w), random);
    }
  }
}

TEST_CASE(
    "depthwise 3x3 of fewer channels than lanes: row tiles for more than half of them, and for few in short rows") {
  const Target& target = best_target();
  const DepthwiseTiles& tiles = depthwise_tiles(target);
  if (!tiles.parts || core_kind(tiles.lanes) != CoreKind::whole_512) {
    MESSAGE("skipped: it needs a core with whole vectors of 16 lanes, and no AMX");
    return;
  }
  const auto takes_row_tiles = [&](std::int64_t channels, std::int64_t columns) {
    const Conv2dProblem p{.c = channels, .h = 14, .w = columns, .k = channels, .r = 3, .s = 3, .groups = channels};
    return choose_depthwise_blocking(same_padded(p), target, 1).row_tile_outputs > 0;
  };
  CHECK(takes_row_tiles(12, 56));
  CHECK(takes_row_tiles(5, kMaxTileOutputs + 1));
  CHECK(!takes_row_tiles(8, 56));  // half a vector is full
  CHECK(!takes_row_tiles(5, 56));  // long rows stay in L1
  CHECK(!takes_row_tiles(12, 3));  // too short
}

TEST_CASE(
    "depthwise with strides of 3 and 4 in NCHW: rows from fewer columns than a vector's phases to several vectors") {
  std::mt19937 random(54);
  for (const std::int64_t stride : {3, 4}) {
    for (const std::int64_t width : {9, 31, 34, 50, 67, 133}) {
      Conv2dProblem p{.c = 3, .h = 14, .w = width, .k = 3, .r = 3, .s = 5, .groups = 3};
      p.stride_h = p.stride_w = stride;
      p.activation = width % 2 == 0 ? Activation::tanh : Activation::relu;
      const Runs runs = check_everywhere(same_padded(p), random);
      CHECK(runs.at("depthwise_planes") >= runs_in_one_layout());
    }
  }
}

TEST_CASE("depthwise of small images in NCHW: fewer planes than a block of their transpose has rows") {
  std::mt19937 random(53);
  for (const std::int64_t channels : {2, 3, 17, 19}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      Conv2dProblem p{.n = 2, .c = channels, .h = 9, .w = 4 + 2 * stride, .k = channels, .r = 3, .s = 3};
      p.stride_h = p.stride_w = stride;
      p.groups = p.c;
      p.bias = stride == 1;
      p.activation = stride == 2 ? Activation::tanh : Activation::none;
      check_everywhere_in("depthwise_planes", sized(p, 1, 1), random);
    }
  }
}

TEST_CASE("depthwise 1x1: planes of any size, outputs of one input channel in several units, every activation") {
  std::mt19937 random(31);
  for (const std::int64_t multiplier : {1, 3}) {
    for (const std::int64_t size : {1, 3, 4, 7, 12, 20}) {
      const std::int64_t channels = size == 4 ? 37 : 5;
      Conv2dProblem p{.n = 2, .c = channels, .h = size, .w = size, .k = multiplier * channels, .r = 1, .s = 1};
      p.groups = channels;
      p.bias = size != 7;
      p.activation = size == 3 ? Activation::tanh : size == 4 ? Activation::relu : Activation::none;
      const Runs runs = check_everywhere(sized(p, 0, 0), random, size == 12 ? 1 : 3);
      CHECK(runs.at("depthwise_planes") >= runs_in_one_layout());
    }
  }
}

TEST_CASE("depthwise: several output channels an input channel, tanh, and images of few pixels") {
  std::mt19937 random(29);
  for (const std::int64_t multiplier : {2, 3, 5, 16}) {
    for (const std::int64_t channels : {2, 7, 16, 40}) {
      Conv2dProblem p{.n = 2, .c = channels, .h = 9, .w = 10, .k = multiplier * channels, .r = 3, .s = 5};
      p.groups = channels;
      p.bias = true;
      p.stride_h = p.stride_w = multiplier == 3 ? 2 : 1;
      p.activation = channels == 7 ? Activation::tanh : Activation::relu;
      const Runs runs = check_everywhere(same_padded(p), random, multiplier == 5 ? 3 : 1);
      CHECK(runs.at("depthwise") == runs_in_one_layout());
      CHECK(runs.at("depthwise_planes") >= runs_in_one_layout());
    }
  }
  for (const std::int64_t size : {1, 2, 3, 5, 6, 8}) {
    for (const std::int64_t channels : {2, 4, 8, 9, 15, 17, 41, 127, 128, 129}) {
      Conv2dProblem p{.n = 3, .c = channels, .h = size, .w = size, .k = channels, .r = 3, .s = 3, .groups = channels};
      p.activation = size == 2 ? Activation::tanh : Activation::none;
      check_everywhere(same_padded(p), random, size == 3 ? 4 : 1);
      p.r = p.s = 7;
      check_everywhere(same_padded(p), random);
      p.r = p.s = 1;
      check_everywhere(same_padded(p), random);
    }
  }
}

TEST_CASE("depthwise: tiles cover every output once, and read what is inside the image") {
  for (const std::int64_t size : {1, 7, 20, 45}) {
    for (const std::int64_t taps : {1, 3, 7, 8, 16}) {
      for (const std::int64_t stride : {1, 2, 3, 4}) {
        for (const std::int64_t dilation : {1, 2, 3}) {
          const std::int64_t reach = (taps - 1) * dilation + 1;
          // Of every tenth axis the padding has tiles of its own.
          const std::int64_t pad = (size + taps + stride + dilation) % 10 == 0 ? 60 + reach : taps * dilation / 2;
          if (size + 2 * pad < reach) continue;
          const WindowAxis axis{size, (size + 2 * pad - reach) / stride + 1, taps, stride, dilation, pad};
          const AxisCut cut(axis);
          std::vector<Positions> positions;
          std::vector<int> reads(static_cast<std::size_t>(axis.outputs * taps));
          std::vector<AxisTile> tiles;
          const std::vector<AxisTile> made = cut.tiles(0, axis.outputs, kMaxTileOutputs, positions);
          CHECK(static_cast<std::int64_t>(positions.size()) <= cut.most_positions(axis.outputs, kMaxTileOutputs));
          for (AxisTile tile : made) {
            for (std::int64_t i = 0; i < tile.count; ++i) {
              tiles.push_back(tile);
              tile.first += tile.outputs * cut.output_step();
              tile.input += tile.outputs * cut.tile_stride() * cut.position_step();
            }
          }
          for (const AxisTile& tile : tiles) {
            for (std::int64_t run = 0; run < cut.runs(); ++run) {
              for (std::int64_t tap = 0; tap < cut.run_taps(run); ++tap) {
                for (int i = 0; i < tile.outputs; ++i) {
                  const std::int64_t position = i * cut.tile_stride() + tap;
                  const std::int64_t source = tile.input + cut.run_tap(run) * dilation + position * cut.position_step();
                  const std::int64_t output = tile.first + i * cut.output_step();
                  CHECK(source == axis.first(output) + (cut.run_tap(run) + tap) * dilation);
                  const bool inside =
                      (positions[tile.positions_at + static_cast<std::size_t>(run)] >> position & 1) != 0;
                  CHECK(inside == (source >= 0 && source < size));
                  ++reads[static_cast<std::size_t>(output * taps + cut.run_tap(run) + tap)];
                }
              }
            }
          }
          CHECK(std::all_of(reads.begin(), reads.end(), [](int count) { return count == 1; }));
        }
      }
    }
  }
}

TEST_CASE("depthwise: one thread computes all channels of a pixel at once where no input is read again") {
  for (const Target& target : compiled_targets()) {
    if (!target.supported) continue;
    const auto blocks = [&](std::int64_t taps, int threads) {
      Conv2dProblem p{.c = 1024, .h = 112, .w = 112, .k = 1024, .r = taps, .s = taps, .groups = 1024};
      return choose_depthwise_blocking(same_padded(p), target, threads).channel_blocks.size();
    };
    INFO(target.name);
    CHECK(blocks(1, 1) == 1);
    CHECK(blocks(1, 2) > 1);
    // Beside AMX, what lies beyond L2 is read in long runs of lines.
    const bool is_far = core_kind(depthwise_tiles(target).lanes) == CoreKind::amx;
    CHECK((blocks(5, 1) == 1) == is_far);
  }
}

TEST_CASE("depthwise: threads get rows of their own with all channels, or rows of their own with blocks of channels") {
  const auto cut = [](const Target& target, std::int64_t channels, std::int64_t size, std::int64_t taps, int threads) {
    Conv2dProblem p{.n = 1, .c = channels, .h = size, .w = size, .k = channels, .r = taps, .s = taps};
    p.pad_top = p.pad_left = (taps - 1) / 2;
    p.groups = channels;
    return choose_depthwise_blocking(sized(p, taps - 1 - p.pad_top, taps - 1 - p.pad_left), target, threads);
  };
  for (const Target& target : compiled_targets()) {
    if (!target.supported) continue;
    for (const std::int64_t channels : {240, 576, 1392}) {
      for (const std::int64_t size : {7, 9, 14}) {
        const DepthwiseBlocking b = cut(target, channels, size, 3, 2);
        CHECK_MESSAGE(b.unit_blocks == static_cast<std::int64_t>(b.channel_blocks.size()), channels, " at ", size);
        CHECK_MESSAGE(b.row_blocks >= 2, channels, " at ", size);
      }
    }
    for (const std::int64_t taps : {5, 7}) CHECK(cut(target, 1392, 9, taps, 2).row_blocks >= 2);
    CHECK(cut(target, 1024, 2, 3, 12).units() > 2);  // too few rows: blocks of channels
    CHECK(cut(target, 576, 14, 3, 1).units() == 1);
  }
}

TEST_CASE("depthwise: 10^9 outputs are cut at once, and what would make tables of them is refused with the numbers") {
  const std::int64_t billion = 1'000'000'000;
  const auto channels = [](Conv2dProblem p) {
    p.c = p.groups = 8;
    p.k = 16;
    return p;
  };
  const Conv2dProblem long_row = sized(channels({.w = billion, .s = 3}), 0, 1);
  const Conv2dProblem long_padding = sized(channels({.w = 8, .s = 3, .pad_left = billion}), 0, billion);
  const Conv2dProblem far_taps = sized(channels({.w = 2 * billion, .s = 2, .dilation_w = billion}), 0, 0);
  const Conv2dProblem far_rows = sized(channels({.h = 2 * billion, .r = 2, .dilation_h = billion}), 0, 0);
  Conv2dProblem long_filter = sized(channels({.w = 2 * billion, .s = billion}), 0, 0);
  // Of each tile that reaches into the padding, and of each block of pixels, the table holds as many positions as it
  // has runs of taps.
  const std::int64_t million = 1'000'000;
  const Conv2dProblem wide = sized(channels({.w = million, .s = million / 2}), 0, million / 4);
  const Conv2dProblem tall = sized(channels({.h = million, .r = million / 2}), million / 4, 0);
  const Conv2dProblem spread = sized(channels({.w = million, .s = 1000, .dilation_w = 60}), 0, 0);
  const Conv2dProblem spread_rows = sized(channels({.h = million, .w = 64, .r = 1000, .dilation_h = 60}), 0, 0);
  const std::clock_t start = std::clock();
  for (const Conv2dProblem* p : {&long_row, &long_padding}) {
    const WindowAxis axis = column_axis(*p);
    std::vector<Positions> positions;
    std::int64_t outputs = 0;
    for (const AxisTile& tile : AxisCut(axis).tiles(0, axis.outputs, kMaxTileOutputs, positions))
      outputs += tile.outputs * tile.count;
    CHECK(outputs == axis.outputs);
    CHECK(positions.size() < 20);
  }
  for (const Target* target : supported_targets()) {
    for (const bool nhwc : {true, false}) {
      for (const Conv2dProblem* problem :
           nhwc ? std::array{&far_taps, &wide, &spread} : std::array{&far_rows, &tall, &spread_rows}) {
        Conv2dProblem p = *problem;
        p.nhwc = nhwc;
        const std::string refusal = nhwc ? depthwise_refusal(p, *target) : depthwise_planes_refusal(p, *target);
        CAPTURE(refusal);
        CHECK(refusal.find("; its table holds 1048576") != std::string::npos);
      }
      long_filter.nhwc = nhwc;
      const std::string taps =
          nhwc ? depthwise_refusal(long_filter, *target) : depthwise_planes_refusal(long_filter, *target);
      CHECK(taps == "1000000000 filter taps; its table holds 1048576");
    }
  }
  CHECK(std::clock() - start < CLOCKS_PER_SEC / 2);  // it took seconds and tens of gigabytes
}

TEST_CASE("the staged depthwise tiles have as many pixels 4 KiB apart as a set of L1 holds") {
  for (const Target& target : compiled_targets()) {
    if (!target.supported) continue;
    const DepthwiseStagedKernels& kernels = depthwise_staged_kernels(target);
    const auto pixels = [&](std::int64_t channels) {
      const Conv2dProblem p{
          .c = channels, .h = 16, .w = 30, .k = channels, .r = 3, .s = 3, .stride_w = 2, .groups = channels};
      return choose_blocking(sized(p, 0, 0), kernels, 1).tile_pixels;
    };
    INFO(target.name);
    CHECK(pixels(520) == kernels.max_pixels);
    CHECK(pixels(512) == std::min<std::int64_t>(kernels.max_pixels, l1_bytes() / kL1WayBytes));
  }
}

TEST_CASE("the staged depthwise register tile: kernel rows in the padding are skipped, two rows are pooled") {
  for (const Target* target : supported_targets()) {
    const DepthwiseStagedKernels& kernels = depthwise_staged_kernels(*target);
    const std::int64_t lanes = kernels.lanes, px = lanes, pixels = kernels.max_pair_pixels;
    const std::int64_t row = (pixels + 1) * px;
    // Input (row, column, lane) is 10*row + column; the kernel is 3x2 ones.
    std::vector<float> x(static_cast<std::size_t>(4 * row)), weights(static_cast<std::size_t>(6 * lanes), 1.0F);
    for (std::int64_t i = 0; i < 4 * row; ++i) {
      x[static_cast<std::size_t>(i)] = static_cast<float>(10 * (i / row) + i % row / px);
    }
    std::vector<float> bias(static_cast<std::size_t>(lanes), 0.5F), y(static_cast<std::size_t>(pixels * lanes), -1.0F);
    DepthwiseStagedCall call{.x = {x.data(), row, px, row, px, 0, 1},
                             .weights = weights.data(),
                             .kernel_w = 2,
                             .rows = {1, 2},
                             .y = {y.data(), 0, px, static_cast<int>(lanes), bias.data(), false, false}};
    kernels.row[1][pixels](call);
    for (std::int64_t i = 0; i < pixels * lanes; ++i) {
      CHECK(y[static_cast<std::size_t>(i)] == static_cast<float>(20 + 2 * (i / lanes) + 1) + 0.5F);
    }
    call.rows = {0, 3};
    call.y.lanes = 1;
    std::fill(y.begin(), y.end(), -1.0F);
    kernels.row_pair[1][pixels](call);
    for (std::int64_t i = 0; i < pixels * lanes; ++i) {
      // The lower right convolution result is the largest: rows 1 to 3, columns 2p+1 and 2p+2.
      const bool stored = i % lanes == 0 && i / lanes < pixels / 2;
      const float largest = static_cast<float>(2 * 60 + 3 * (4 * (i / lanes) + 3)) + 0.5F;
      CHECK(y[static_cast<std::size_t>(i)] == (stored ? largest : -1.0F));
    }
  }
}

}  // namespace gable::cpu::test
