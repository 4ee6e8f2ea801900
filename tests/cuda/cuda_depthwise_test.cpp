// The CUDA depthwise kernel on every path that it has: compiled windows as strips and as planes, whatever is left,
// edges and tails of each. Without a GPU only the refusals and the cuts are tested.
#include <doctest/doctest.h>
#include <gable/gable.h>

#include <array>
#include <string>
#include <vector>

#include "cuda/depthwise/depthwise.h"
#include "cuda/depthwise/planes.h"
#include "cuda/depthwise/strips_cut.h"
#include "tests/conformance/conformance_run.h"
#include "tests/cuda/check_op.h"
#include "tests/tools/expect.h"

namespace gable {
namespace {

using conformance::Bench;
using conformance::make_operands;
using conformance::Operands;

constexpr std::array kDTypes{DType::f32, DType::f16, DType::bf16};
constexpr std::array kLayouts{Layout::nchw, Layout::nhwc};

cudaDeviceProp h200() {
  cudaDeviceProp device{};
  device.major = 9;
  device.multiProcessorCount = 132;
  device.sharedMemPerMultiprocessor = 233472;
  device.sharedMemPerBlockOptin = 232448;
  return device;
}

Conv2d depthwise(const Shape& input, std::int64_t kernel_h, std::int64_t kernel_w, std::int64_t stride) {
  return {.input = input,
          .weights = {input[1], 1, kernel_h, kernel_w},
          .stride = {stride, stride},
          .padding = {kernel_h / 2, kernel_w / 2},
          .groups = input[1],
          .epilogue = {.bias = true, .activation = Activation::relu}};
}

/// Every dtype and both layouts.
void check_all(const Device& device, Conv2d conv) {
  for (const DType dtype : kDTypes) {
    for (const Layout layout : kLayouts) {
      conv.dtype = dtype;
      conv.layout = layout;
      check(device, conv);
    }
  }
}

TEST_CASE("depthwise windows of 3, 5 and 7: strides, widths of each register tile, single rows, channel tails") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0?kernel=depthwise");
  for (const std::int64_t window : {3, 5, 7}) {
    for (const std::int64_t stride : {1, 2}) {
      for (const Shape& input : {Shape{3, 34, 37, 16}, Shape{2, 130, 14, 14}, Shape{5, 6, 7, 7}, Shape{1, 2, 130, 141},
                                 Shape{1, 128, 1, 9}, Shape{9, 72, 8, 8}}) {
        check_all(device, depthwise(input, window, window, stride));
      }
    }
  }
}

TEST_CASE("depthwise windows of 5 and 7 have tiles of 4 and of 7 columns") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0?kernel=depthwise");
  for (const std::int64_t window : {5, 7}) {
    for (const char* wanted : {"x 4 columns a thread, strips", "x 7 columns a thread, strips"}) {
      bool found = false;
      for (const std::int64_t images : {1, 8, 16, 32, 48}) {
        Conv2d conv = depthwise({images, 320, 14, 14}, window, window, 1);
        conv.dtype = DType::f16;
        conv.layout = Layout::nhwc;
        if (found || !contains(device.plan(conv).explain(), wanted)) continue;
        found = true;
        check(device, conv);
      }
      CHECK_MESSAGE(found, "no problem makes it choose '", wanted, "'");
    }
  }
}

TEST_CASE("depthwise: padding on every side of its own, none, and more than the window") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0?kernel=depthwise");
  for (const std::int64_t window : {3, 5, 7, 4}) {
    for (const std::int64_t stride : {1, 2}) {
      Conv2d conv = depthwise({2, 10, 13, 18}, window, window, stride);
      for (const Padding& padding : {Padding{0, 0}, Padding{0, 3, 2, 1}, Padding{9, 0, 8, 9}}) {
        conv.padding = padding;
        check_all(device, conv);
      }
    }
  }
  for (const Activation activation : {Activation::none, Activation::tanh}) {
    for (const std::int64_t window : {3, 7, 6}) {
      Conv2d conv = depthwise({2, 10, 13, 18}, window, window, 1);
      conv.epilogue = {.bias = false, .activation = activation};
      check_all(device, conv);
    }
  }
}

TEST_CASE("depthwise with dilation, whose phases are strips of their own, also where the image has fewer pixels") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0?kernel=depthwise");
  for (const std::int64_t window : {3, 5, 7}) {
    for (const auto& [dilation_h, dilation_w] : {std::array<std::int64_t, 2>{2, 2}, {3, 1}, {1, 4}, {9, 20}}) {
      for (const std::int64_t stride : {1, 2}) {
        Conv2d conv = depthwise({2, 12, 15, 17}, window, window, stride);
        conv.dilation = {dilation_h, dilation_w};
        conv.padding = {dilation_h * (window / 2), dilation_w * (window / 2)};
        check_all(device, conv);
      }
    }
  }
}

TEST_CASE("depthwise in nchw goes through nhwc where only that layout has a kernel for the window") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0?kernel=depthwise");
  Conv2d conv = depthwise({16, 64, 56, 56}, 5, 5, 1);
  conv.dilation = {2, 2};
  conv.padding = {4, 4};
  conv.dtype = DType::f16;
  CHECK(contains(device.plan(conv).explain(), "nchw reordered"));
  check(device, conv);
}

TEST_CASE("depthwise of any other window, stride, channel count and multiplier") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0?kernel=depthwise");
  for (const auto& [kernel_h, kernel_w] :
       {std::array<std::int64_t, 2>{1, 1}, {9, 9}, {1, 11}, {11, 1}, {2, 4}, {31, 31}}) {
    for (const std::int64_t stride : {1, 2}) {
      for (const std::int64_t channels : {32, 127})
        check_all(device, depthwise({2, channels, 12, 19}, kernel_h, kernel_w, stride));
    }
  }
  for (const std::int64_t window : {3, 5, 7}) {
    check_all(device, depthwise({2, 129, 14, 11}, window, window, 1));
    Conv2d uneven = depthwise({2, 20, 15, 14}, window, window, 1);
    for (const auto& [stride_h, stride_w] : {std::array<std::int64_t, 2>{1, 2}, {2, 1}, {3, 3}, {4, 2}}) {
      uneven.stride = {stride_h, stride_w};
      check_all(device, uneven);
    }
    for (const std::int64_t multiplier : {2, 3}) {
      Conv2d more = depthwise({2, 10, 15, 14}, window, window, 1);
      more.weights[0] = multiplier * 10;
      check_all(device, more);
      more.stride = {2, 2};
      check_all(device, more);
    }
  }
}

TEST_CASE("depthwise: an infinity reaches only the windows that hold it") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0?kernel=depthwise");
  for (const std::int64_t window : {3, 5, 7, 9}) {
    for (const Layout layout : kLayouts) {
      Conv2d conv = depthwise({1, 4, 30, 30}, window, window, 1);
      conv.dtype = DType::f16;
      conv.layout = layout;
      Operands operands = make_operands(conv);
      constexpr std::uint16_t infinity = 0x7c00;
      operands.tensors[0].as<std::uint16_t>()[4 * 30 * 10 + 7] = infinity;
      const Plan plan = device.plan(conv);
      INFO(plan.explain());
      Bench bench(device, plan, operands);
      bench.run();
      CHECK(compare(bench.outcome().y, oracle(conv, operands.views()), plan.error_bound()).mismatches == 0);
    }
  }
}

Conv2dProblem small_problem(std::int64_t window, std::int64_t stride) {
  const std::int64_t out = (28 - 1) / stride + 1;
  return {.n = 2,
          .c = 34,
          .h = 28,
          .w = 28,
          .k = 34,
          .r = window,
          .s = window,
          .ho = out,
          .wo = out,
          .stride_h = stride,
          .stride_w = stride,
          .pad_top = window / 2,
          .pad_left = window / 2,
          .groups = 34};
}

TEST_CASE("depthwise refuses what is not one input channel a group, and what has a pool") {
  using cuda::DepthwiseConv2d;
  Conv2dProblem p = small_problem(3, 1);
  CHECK(DepthwiseConv2d::refusal(p, h200()).empty());
  p.groups = 17;
  CHECK(contains(DepthwiseConv2d::refusal(p, h200()), "17 groups of 2 input channels"));
  p.groups = 34;
  p.pool = {2, 2, 2, 2};
  CHECK(contains(DepthwiseConv2d::refusal(p, h200()), "max-pool"));
  p.pool = {};
  p.h = p.w = 1LL << 30;
  CHECK(contains(DepthwiseConv2d::refusal(p, h200()), "a dimension of more than"));
}

TEST_CASE("depthwise cuts cover every output once, whatever the batch") {
  for (const std::int64_t window : {3, 5, 7}) {
    for (const std::int64_t stride : {1, 2}) {
      for (const std::int64_t images : {1, 32}) {
        Conv2dProblem p = small_problem(window, stride);
        p.n = images;
        const cuda::DepthwiseStripsCut strips = cuda::best_strips_cut(p, h200());
        REQUIRE(strips.variant != nullptr);
        CHECK(strips.strips.rows * strips.strips.strips >= p.ho);
        CHECK(strips.strips.rows * (strips.strips.strips - 1) < p.ho);
        CHECK(strips.strips.block_pairs * strips.strips.channel_blocks >= 17);
        CHECK(strips.seconds > 0);
        p.nhwc = false;
        CHECK(cuda::best_strips_cut(p, h200()).variant == nullptr);
        const cuda::DepthwisePlanesCut planes = cuda::best_planes_cut(p, h200());
        REQUIRE(planes.variant != nullptr);
        CHECK(planes.planes.rows * planes.planes.block_strips * planes.planes.row_blocks >= p.ho);
        CHECK((planes.planes.block_planes == 1 || planes.planes.row_blocks == 1));
        CHECK(planes.shared_bytes <= 48 * 1024);
      }
    }
  }
}

}  // namespace
}  // namespace gable
