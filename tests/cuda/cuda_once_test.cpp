// The CUDA kernels that read and write each tensor once, on shapes that conformance_test does not have: several images
// and several bands a block, each compiled register tile, tf32, the vector paths of the ops without weights, graphs of
// PageRank. Without a GPU only the refusals are tested.
#include <doctest/doctest.h>
#include <gable/gable.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cuda/common/check.h"
#include "cuda/common/padded_nhwc.h"
#include "cuda/few_channels/few_channels.h"
#include "cuda/few_channels/few_channels_mma.h"
#include "cuda/few_channels/one_channel.h"
#include "cuda/ops/reorder.h"
#include "cuda/studies/bandwidth.h"
#include "cuda/studies/ceilings.h"
#include "cuda/studies/pagerank.h"
#include "tests/conformance/conformance_run.h"
#include "tests/cuda/check_op.h"
#include "tests/cuda/device_memory.h"
#include "tests/tools/expect.h"

namespace gable {
namespace {

using conformance::make_operands;
using conformance::Operands;

constexpr std::array kDTypes{DType::f32, DType::f16, DType::bf16};
constexpr std::array kLayouts{Layout::nchw, Layout::nhwc};

/// What LeNet, ResNet and MobileNet have at their ends, small: the register tiles, several images a block, bands.
std::vector<Conv2d> few_channel_convolutions() {
  return {
      {.input = {9, 1, 20, 22}, .weights = {6, 1, 5, 5}},
      {.input = {11, 6, 14, 13}, .weights = {16, 6, 5, 5}},
      {.input = {2, 2, 17, 70}, .weights = {10, 2, 5, 5}, .padding = {2, 2}},
      {.input = {2, 3, 66, 75}, .weights = {70, 3, 7, 7}, .stride = {2, 2}, .padding = {3, 3}},
      {.input = {1, 3, 150, 33}, .weights = {64, 3, 3, 3}, .padding = {1, 1}},
      {.input = {3, 4, 30, 31}, .weights = {20, 4, 3, 3}, .stride = {2, 2}, .padding = {1, 1}},
      {.input = {2, 8, 19, 18}, .weights = {12, 4, 2, 4}, .stride = {1, 3}, .dilation = {2, 2}, .groups = 2},
      {.input = {1, 3, 41, 50}, .weights = {32, 3, 3, 3}, .stride = {2, 2}, .padding = {1, 1}},
      {.input = {2, 4, 18, 20}, .weights = {24, 4, 4, 4}, .stride = {4, 4}},
      {.input = {1, 8, 20, 22}, .weights = {40, 8, 3, 3}, .padding = {1, 2}},
      {.input = {3, 5, 16, 18}, .weights = {33, 5, 3, 1}, .padding = {1, 0}},
      {.input = {40, 4, 30, 32}, .weights = {32, 4, 1, 1}},
      {.input = {24, 3, 40, 40}, .weights = {64, 3, 3, 3}, .padding = {1, 1}},  // enough for 64 channels a block
      {.input = {24, 3, 40, 40}, .weights = {58, 3, 3, 3}, .padding = {1, 1}},  // stores of two channels
      {.input = {24, 4, 33, 40}, .weights = {60, 4, 1, 1}},                     // of four
      {.input = {5, 6, 21, 22}, .weights = {9, 2, 3, 3}, .padding = {1, 1}, .groups = 3},
      {.input = {3, 64, 12, 19}, .weights = {64, 4, 3, 3}, .stride = {2, 1}, .padding = {1, 1}, .groups = 16},
      {.input = {7, 14, 9, 9}, .weights = {16, 7, 5, 5}, .padding = {2, 2}, .groups = 2},
  };
}

std::vector<Conv2d> one_channel_convolutions() {
  return {
      {.input = {7, 1, 48, 48}, .weights = {6, 1, 5, 5}},
      {.input = {300, 1, 12, 12}, .weights = {4, 1, 5, 5}, .padding = {2, 2}},
      {.input = {2, 1, 17, 70}, .weights = {5, 1, 5, 5}, .padding = {1, 3}},
      {.input = {5, 1, 28, 28}, .weights = {8, 1, 3, 3}},
      {.input = {3, 1, 31, 9}, .weights = {3, 1, 3, 3}, .padding = {1, 1}},
  };
}

/// The kernel must run all convolutions of at least this many input channels a group, and refuse the others.
void check_convolutions(const std::vector<Conv2d>& convolutions, const std::string& kernel,
                        const std::vector<DType>& dtypes, Math math, std::int64_t least_channels = 1) {
  const Device device = open("cuda:0?kernel=" + kernel);
  int turn = 0;
  for (Conv2d conv : convolutions) {
    for (const DType dtype : dtypes) {
      for (const Layout layout : kLayouts) {
        for (const bool pool : {false, true}) {
          conv.dtype = dtype;
          conv.layout = layout;
          conv.math = math;
          conv.epilogue = {.bias = turn % 3 != 0, .activation = turn % 2 == 0 ? Activation::tanh : Activation::relu};
          if (pool) conv.epilogue.max_pool = {2, 2};
          ++turn;
          const KernelSupport support = device.query(conv).front();
          INFO(describe(conv), ": ", support.reason);
          REQUIRE(support.supported == (conv.weights[1] >= least_channels));
          if (support.supported) check(device, conv);
        }
      }
    }
  }
}

TEST_CASE("few_channels computes each of its register tiles, with several images and bands a block") {
  if (is_missing("cuda")) return;
  check_convolutions(few_channel_convolutions(), "few_channels", {DType::f32, DType::f16, DType::bf16}, Math::strict);
}

TEST_CASE("one_channel computes each of its register tiles, with whole rows and with margins") {
  if (is_missing("cuda")) return;
  check_convolutions(one_channel_convolutions(), "one_channel", {DType::f32, DType::f16, DType::bf16}, Math::strict);
}

TEST_CASE("the kernels on the f32 units keep strict math's bound in any math") {
  if (is_missing("cuda")) return;
  for (const char* kernel : {"one_channel", "few_channels"}) {
    const Device device = open(std::string("cuda:0?kernel=") + kernel);
    Conv2d conv{.input = {7, 1, 20, 20}, .weights = {6, 1, 5, 5}, .layout = Layout::nhwc};
    const double strict = device.plan(conv).error_bound().accumulation;
    for (const Math math : {Math::tf32, Math::split3, Math::split6}) {
      conv.math = math;
      CHECK(device.plan(conv).error_bound().accumulation == strict);
      check(device, conv);
    }
  }
}

TEST_CASE("few_channels_mma computes f16, bf16 and tf32 within their bounds") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0?kernel=few_channels_mma");
  const Conv2d least{.input = {1, 3, 9, 9}, .weights = {8, 3, 3, 3}, .dtype = DType::f16};
  if (contains(device.query(least).front().reason, "it needs sm_80")) {
    MESSAGE("skipped, ", device.query(least).front().reason);
    return;
  }
  check_convolutions(few_channel_convolutions(), "few_channels_mma", {DType::f16, DType::bf16}, Math::strict, 2);
  check_convolutions(few_channel_convolutions(), "few_channels_mma", {DType::f32}, Math::tf32, 2);
}

TEST_CASE("few_channels_mma has tiles of 8 and of 16 channels, for one group and for several") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0?kernel=few_channels_mma");
  if (!device.query(Conv2d{.input = {1, 3, 9, 9}, .weights = {8, 3, 3, 3}, .dtype = DType::f16}).front().supported)
    return;
  for (const std::int64_t groups : {1, 5}) {
    for (const std::int64_t k : {1, 3, 8, 9, 16}) {
      Conv2d conv{
          .input = {2, 3 * groups, 33, 30}, .weights = {k * groups, 3, 3, 3}, .padding = {1, 1}, .groups = groups};
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        conv.dtype = dtype;
        conv.math = dtype == DType::f32 ? Math::tf32 : Math::strict;
        conv.layout = k % 2 == 0 ? Layout::nhwc : Layout::nchw;
        const std::string explained = device.plan(conv).explain();
        INFO(explained);
        if (groups == 1) CHECK(contains(explained, k <= 8 ? "x 8 channels a warp" : "x 16 channels a warp"));
        check(device, conv);
      }
    }
  }
}

/// With all tensors at multiples of 16 bytes but for one, which begins an element behind: an input, or the output where
/// `shifted` is the number of inputs.
void check_shifted(const Device& device, const Op& op, std::size_t shifted) {
  const Plan plan = device.plan(op);
  const Operands operands = make_operands(op);
  INFO(describe(op), ", shifted: ", shifted, ", ", plan.explain());
  std::vector<Tensor> owners;
  std::vector<TensorView> views;
  const auto place = [&](const ConstTensorView& contents) {
    owners.push_back(device.tensor(contents.dtype, {contents.shape.elements() + 1}));
    const std::size_t offset = views.size() == shifted ? size_of(contents.dtype) : 0;
    views.emplace_back(static_cast<char*>(owners.back().data()) + offset, contents.dtype, contents.shape,
                       contents.layout, owners.back().view().memory);
    device.copy(contents, views.back());
  };
  for (const Tensor& tensor : operands.tensors) place(tensor);
  const Tensor result(dtype_of(op), plan.output_shape(), operands.tensors[0].view().layout);
  std::memset(result.data(), 0xff, result.bytes());
  place(result);
  device.synchronize();
  if (views.size() == 3) {
    plan.run(views[0], views[1], views[2]);
  } else {
    plan.run(views[0], views[1]);
  }
  device.copy(views.back(), result);
  device.synchronize();
  CHECK(compare(result, oracle(op, operands.views()), plan.error_bound()).passed);
}

TEST_CASE("ops without weights take arrays that do not begin at 16 bytes, any one of them") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  const Shape shape{2, 8, 4, 8}, odd{2, 3, 5, 7};
  for (const DType dtype : kDTypes) {
    for (const Layout layout : kLayouts) {
      std::vector<Op> ops{Multiply{.a = shape, .b = shape, .dtype = dtype, .layout = layout},
                          Multiply{.a = shape, .b = {2, 8, 1, 1}, .dtype = dtype, .layout = layout},
                          Multiply{.a = odd, .b = {2, 3, 1, 1}, .dtype = dtype, .layout = layout},
                          Concat{.a = shape, .b = {2, 16, 4, 8}, .dtype = dtype, .layout = layout}};
      for (const Interpolation way :
           {Interpolation::nearest, Interpolation::bilinear, Interpolation::bilinear_align_corners}) {
        for (const std::int64_t scale : {2, 3}) {
          ops.emplace_back(Upsample{
              .input = shape, .scale = {scale, scale}, .dtype = dtype, .layout = layout, .interpolation = way});
        }
      }
      for (const Op& op : ops) {
        const std::size_t inputs = make_operands(op).tensors.size();
        for (std::size_t shifted = 0; shifted <= inputs; ++shifted) check_shifted(device, op, shifted);
      }
    }
  }
}

std::vector<Conv2d> wide_pixel_convolutions() {
  return {
      {.input = {3, 12, 19, 21}, .weights = {8, 12, 4, 4}, .padding = {2, 1, 1, 2}},
      {.input = {2, 24, 30, 31}, .weights = {10, 24, 2, 3}, .stride = {2, 2}},
      {.input = {9, 12, 11, 13}, .weights = {24, 12, 2, 2}},
      {.input = {1, 32, 40, 70}, .weights = {33, 32, 3, 3}, .padding = {1, 1}},
      {.input = {2, 16, 18, 20}, .weights = {16, 16, 5, 5}, .padding = {2, 2}},
      {.input = {2, 9, 23, 17}, .weights = {5, 9, 3, 3}, .stride = {1, 3}, .padding = {1, 2}},
      {.input = {1, 27, 25, 24}, .weights = {70, 27, 3, 3}, .padding = {2, 2}, .dilation = {2, 2}},
      {.input = {2, 18, 16, 33}, .weights = {7, 18, 3, 2}, .stride = {2, 3}, .dilation = {1, 4}},
      {.input = {20, 20, 6, 7}, .weights = {12, 20, 3, 3}, .padding = {1, 1}},
      {.input = {2, 30, 9, 64}, .weights = {3, 30, 1, 7}, .stride = {1, 2}, .padding = {0, 3}},
  };
}

TEST_CASE("few_channels_mma computes pixels of 9 to 32 channels, in loads of every width") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0?kernel=few_channels_mma");
  if (!device.query(Conv2d{.input = {1, 3, 9, 9}, .weights = {8, 3, 3, 3}, .dtype = DType::f16}).front().supported)
    return;
  int turn = 0;
  for (Conv2d conv : wide_pixel_convolutions()) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const bool pool : {false, true}) {
        conv.dtype = dtype;
        conv.math = dtype == DType::f32 ? Math::tf32 : Math::strict;
        conv.layout = Layout::nhwc;
        conv.epilogue = {.bias = turn % 3 != 0, .activation = turn % 2 == 0 ? Activation::tanh : Activation::relu};
        if (pool) conv.epilogue.max_pool = {2, 2};
        ++turn;
        check(device, conv);
      }
    }
  }
}

void set(const Tensor& tensor, std::int64_t at, float value) {
  if (tensor.dtype() == DType::f32) {
    tensor.as<float>()[at] = value;
  } else {
    tensor.as<std::uint16_t>()[at] = tensor.dtype() == DType::f16 ? f16_from_float(value) : bf16_from_float(value);
  }
}

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

/// With one infinite element of x.
void check_with_infinity(const Device& device, const Op& op, std::int64_t at) {
  const Operands operands = make_operands(op);
  set(operands.tensors[0], at, kInfinity);
  INFO("element ", at, " is infinite");
  check(device, op, operands);
}

TEST_CASE("an infinity reaches only the windows that hold it, also where a reduction is padded to whole steps") {
  if (is_missing("cuda")) return;
  for (const char* kernel : {"few_channels", "few_channels_mma"}) {
    const Device device = open(std::string("cuda:0?kernel=") + kernel);
    for (const Layout layout : kLayouts) {
      const Conv2d conv{.input = {1, 3, 20, 20}, .weights = {8, 3, 3, 3}, .dtype = DType::f16, .layout = layout};
      check_with_infinity(device, conv, 3 * 20 * 10 + 7);
    }
  }
  // Wide pixels: the first and the last channel, beside the units' padding.
  const Device device = open("cuda:0?kernel=few_channels_mma");
  for (const std::int64_t channels : {9, 12}) {
    for (const DType dtype : {DType::f16, DType::f32}) {
      const Conv2d conv{.input = {1, channels, 20, 20},
                        .weights = {8, channels, 3, 3},
                        .dtype = dtype,
                        .layout = Layout::nhwc,
                        .math = dtype == DType::f32 ? Math::tf32 : Math::strict};
      for (const std::int64_t channel : {std::int64_t{0}, channels - 1})
        check_with_infinity(device, conv, channels * (20 * 10 + 7) + channel);
    }
  }
}

TEST_CASE("softmax keeps its bound along long dimensions, and where columns are few, many, or share blocks") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  check(device, Softmax{.shape = {1, 1000, 7, 7}, .axis = 1});
  check(device, Softmax{.shape = {3, 127, 33}, .axis = 1});
  check(device, Softmax{.shape = {2, 32, 4097}, .axis = 1});
  check(device, Softmax{.shape = {3, 5, 301}, .axis = 1});
  // Equal terms, whose rounding errors have the same sign.
  for (const std::int64_t columns : {1, 3, 9000}) {
    const Softmax softmax{.shape = {columns > 3 ? 300 : 21841, columns}, .axis = 0};
    const Operands operands = make_operands(softmax);
    for (std::int64_t i = 0; i < softmax.shape.elements(); ++i) set(operands.tensors[0], i, i < columns ? 1.0f : 0.0f);
    check(device, softmax, operands);
  }
}

TEST_CASE("softmax: a NaN, an infinity and elements that are all -infinity stay in their vectors, -infinity takes 0") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  for (const DType dtype : kDTypes) {
    // By warps, by blocks, and by columns with one thread each and with several.
    for (const Shape& vectors : {Shape{40, 1}, Shape{5000, 1}, Shape{12, 5}, Shape{40, 5}, Shape{1000, 5}}) {
      const std::int64_t count = vectors[0], columns = vectors[1];
      const Softmax softmax{.shape = {5, count, columns}, .axis = 1, .dtype = dtype};
      const Operands operands = make_operands(softmax);
      const auto set_first_column = [&](std::int64_t row, std::int64_t i, float value) {
        set(operands.tensors[0], (row * count + i) * columns, value);
      };
      set_first_column(0, count / 2, kNaN);
      set_first_column(1, count - 1, kInfinity);
      set_first_column(2, 0, -kInfinity);
      for (std::int64_t i = 0; i < count; ++i) set_first_column(3, i, -kInfinity);
      check(device, softmax, operands);
    }
  }
}

TEST_CASE("bilinear: an infinity reaches only the outputs between it and its neighbours") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  for (const Layout layout : kLayouts) {
    for (const Interpolation way : {Interpolation::bilinear, Interpolation::bilinear_align_corners}) {
      for (const DType dtype : kDTypes) {
        for (const std::int64_t channels : {3, 8}) {
          const Upsample upsample{
              .input = {1, channels, 5, 7}, .scale = {3, 3}, .dtype = dtype, .layout = layout, .interpolation = way};
          for (const std::int64_t pixel : {0, 2 * 7 + 3, 5 * 7 - 1})
            check_with_infinity(device, upsample, layout == Layout::nhwc ? channels * pixel : pixel);
        }
      }
    }
  }
}

TEST_CASE("bilinear counts in 64 bits where rows times rows of the input reach 2^31") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  for (const Interpolation way : {Interpolation::bilinear, Interpolation::bilinear_align_corners}) {
    for (const std::int64_t scale : {1, 2}) {
      check(device, Upsample{.input = {1, 1, 46342, 1}, .scale = {scale, 1}, .interpolation = way});
      check(device,
            Upsample{.input = {1, 4, 46342, 1}, .scale = {scale, 1}, .layout = Layout::nhwc, .interpolation = way});
    }
  }
}

TEST_CASE("ops without weights compute what 16 bytes divide and what they don't") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  for (const DType dtype : kDTypes) {
    for (const auto& [rows, columns] : {std::array<std::int64_t, 2>{200, 136}, {136, 201}, {8, 1000}, {1, 7}}) {
      check(device, Transpose{.rows = rows, .columns = columns, .dtype = dtype});
    }
    for (const std::int64_t count : {64, 4099}) {
      check(device, Add{.shape = {count}, .dtype = dtype});
      // A NaN stays one behind relu, in the vectors and in the tail.
      const Add with_relu{.shape = {count}, .dtype = dtype, .activation = Activation::relu};
      const conformance::Operands operands = conformance::make_operands(with_relu);
      for (const std::int64_t at : {std::int64_t{3}, count - 1}) {
        std::memset(static_cast<char*>(operands.tensors[0].data()) + at * static_cast<std::int64_t>(size_of(dtype)),
                    0xff, size_of(dtype));
      }
      check(device, with_relu, operands);
    }
    for (int function = 0; function <= static_cast<int>(Function::leaky_relu); ++function) {
      const Activate activate{.shape = {9001}, .function = static_cast<Function>(function), .dtype = dtype};
      const conformance::Operands operands = conformance::make_operands(activate);
      // In the vectors and in the tail. Without another sign, 0xff is a NaN.
      for (const std::int64_t at : {3, 9000}) {
        std::memset(static_cast<char*>(operands.tensors[0].data()) + at * static_cast<std::int64_t>(size_of(dtype)),
                    0xff, size_of(dtype));
      }
      check(device, activate, operands);
    }
    for (const std::int64_t count : {7, 1000, 5000}) check(device, Softmax{.shape = {13, count}, .dtype = dtype});
    for (const Layout layout : kLayouts) {
      check(device, Softmax{.shape = {2, 21, 30, 17}, .axis = 1, .dtype = dtype, .layout = layout});
      // Words of every width: by channels in NHWC, by columns in NCHW. The last has several blocks.
      for (const Shape& shape : {Shape{2, 64, 17, 24}, Shape{1, 12, 5, 20}, Shape{3, 6, 7, 22}, Shape{2, 3, 17, 23},
                                 Shape{2, 5, 130, 160}}) {
        Shape other = shape;
        other[1] = shape[1] % 4 == 0 ? 8 * shape[1] : 1 + shape[1];
        for (const Shape& factors : {Shape{shape[0], shape[1], 1, 1}, shape})
          check(device, Multiply{.a = shape, .b = factors, .dtype = dtype, .layout = layout});
        check(device, Concat{.a = shape, .b = shape, .dtype = dtype, .layout = layout});
        check(device, Concat{.a = other, .b = shape, .dtype = dtype, .layout = layout});
        for (const Shape& scale : {Shape{2, 2}, Shape{1, 2}, Shape{1, 3}, Shape{3, 5}, Shape{2, 1}})
          check(device, Upsample{.input = shape, .scale = {scale[0], scale[1]}, .dtype = dtype, .layout = layout});
        for (const Interpolation way : {Interpolation::bilinear, Interpolation::bilinear_align_corners}) {
          check(device, Upsample{.input = shape,
                                 .scale = {2, shape[1] == 64 ? 2 : 3},
                                 .dtype = dtype,
                                 .layout = layout,
                                 .interpolation = way});
        }
      }
    }
    for (const Shape& shape : {Shape{2, 3, 29, 37}, Shape{3, 16, 23, 23}, Shape{2, 3, 24, 48}, Shape{2, 1, 5, 7},
                               Shape{2, 72, 8, 9}, Shape{2, 17, 5, 7}}) {
      check(device, Reorder{.shape = shape, .from = Layout::nchw, .to = Layout::nhwc, .dtype = dtype});
      check(device, Reorder{.shape = shape, .from = Layout::nhwc, .to = Layout::nchw, .dtype = dtype});
    }
    for (const Layout layout : kLayouts) {
      for (const std::int64_t channels : {16, 5}) {
        check(
            device,
            MaxPool{
                .input = {2, channels, 18, 32}, .window = {2, 2}, .stride = {2, 2}, .dtype = dtype, .layout = layout});
        // Widths that vectors of outputs divide, that half of them do, and that none does; heights with a last window
        // over the padding and without.
        for (const Shape& image : {Shape{17, 32}, Shape{18, 24}, Shape{7, 28}, Shape{17, 19}}) {
          for (const std::int64_t stride : {1, 2}) {
            check(device, MaxPool{.input = {2, channels, image[0], image[1]},
                                  .window = {3, 3},
                                  .stride = {stride, stride},
                                  .padding = {1, 1},
                                  .dtype = dtype,
                                  .layout = layout});
          }
        }
      }
    }
  }
}

/// Planes to padded pixels and back by the reorders alone. Planes begin `offset` elements behind whole 16 bytes. What
/// lies around both tensors and, before the way back, behind a pixel's channels is poison.
template <typename T>
void check_padded_reorder(const cuda::PaddedReorder& r, std::size_t offset) {
  INFO(r.channels, " channels in ", r.pitch, ", ", r.pixels, " pixels, ", r.element_bytes, " bytes, offset ", offset);
  constexpr T kPoison = std::numeric_limits<T>::max();
  constexpr std::size_t kBehind = 16;
  const auto n = static_cast<std::size_t>(r.n), channels = static_cast<std::size_t>(r.channels);
  const auto pixels = static_cast<std::size_t>(r.pixels), pitch = static_cast<std::size_t>(r.pitch);
  std::vector<T> planes(offset + n * channels * pixels + kBehind, kPoison);
  std::vector<T> poisoned(n * pixels * pitch + kBehind, kPoison), zeroed = poisoned;
  std::fill(zeroed.begin(), zeroed.end() - kBehind, T{0});
  for (std::size_t i = 0; i < n * channels * pixels; ++i) {
    const std::size_t image = i / (channels * pixels), channel = i / pixels % channels, pixel = i % pixels;
    const std::size_t padded = (image * pixels + pixel) * pitch + channel;
    planes[offset + i] = poisoned[padded] = zeroed[padded] = static_cast<T>(1 + i % 65000);
  }
  const OnDevice from(planes), to(std::vector<T>(zeroed.size(), kPoison));
  cuda::nchw_to_padded_nhwc(from.get() + offset, to.get(), r, nullptr);
  CHECK((to.read() == zeroed));
  const OnDevice padded(poisoned), back(std::vector<T>(planes.size(), kPoison));
  cuda::padded_nhwc_to_nchw(padded.get(), back.get() + offset, r, nullptr);
  CHECK((back.read() == planes));
}

TEST_CASE("reorders that pad channels write zeros behind them, and reorders back read nothing behind them") {
  if (is_missing("cuda")) return;
  for (const auto& [channels, pitch] : {std::array<std::int64_t, 2>{1, 8},
                                        {3, 8},
                                        {8, 8},
                                        {3, 16},
                                        {13, 16},
                                        {16, 16},
                                        {17, 24},
                                        {3, 40},  // a tile of zeros alone
                                        {35, 40},
                                        {67, 72}}) {
    for (const std::int64_t pixels : {1, 49, 64, 264, 300, 520}) {
      for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
        check_padded_reorder<std::uint16_t>({3, channels, pixels, pitch, 2}, offset);
        check_padded_reorder<std::uint32_t>({3, channels, pixels, pitch, 4}, offset);
        if (pitch - channels >= 4) check_padded_reorder<std::uint32_t>({2, channels, pixels, pitch - 4, 4}, offset);
      }
    }
  }
}

/// Rows of `count` elements to padded ones and back, with poison behind what is read and written.
template <typename T>
void check_copied_rows(std::int64_t rows, std::int64_t count, std::int64_t pitch) {
  INFO(rows, " rows of ", count, " in ", pitch, ", ", sizeof(T), " bytes");
  constexpr T kPoison = std::numeric_limits<T>::max();
  constexpr std::size_t kBehind = 16;
  constexpr int kBytes = static_cast<int>(sizeof(T));
  const auto dense_size = static_cast<std::size_t>(rows * count), padded_size = static_cast<std::size_t>(rows * pitch);
  std::vector<T> dense(dense_size + kBehind, kPoison), poisoned(padded_size + kBehind, kPoison), zeroed = poisoned;
  std::fill(zeroed.begin(), zeroed.end() - kBehind, T{0});
  for (std::size_t i = 0; i < dense_size; ++i) {
    const std::size_t row = i / static_cast<std::size_t>(count), column = i % static_cast<std::size_t>(count);
    const std::size_t padded = row * static_cast<std::size_t>(pitch) + column;
    dense[i] = poisoned[padded] = zeroed[padded] = static_cast<T>(1 + i % 65000);
  }
  const OnDevice from(dense), to(std::vector<T>(zeroed.size(), kPoison));
  cuda::copy_rows(from.get(), to.get(), rows, count, count, pitch, kBytes, nullptr);
  CHECK((to.read() == zeroed));
  const OnDevice padded(poisoned), back(std::vector<T>(dense.size(), kPoison));
  cuda::copy_rows(padded.get(), back.get(), rows, count, pitch, count, kBytes, nullptr);
  CHECK((back.read() == dense));
}

TEST_CASE("copies of rows write zeros behind a row's elements, and copies back read nothing behind them") {
  if (is_missing("cuda")) return;
  for (const std::int64_t rows : {1, 2, 7, 300}) {
    for (const std::int64_t count : {1, 3, 5, 7, 8, 9, 10, 11, 12, 13, 15, 17, 19, 30, 33, 36, 58, 101, 269, 531}) {
      check_copied_rows<std::uint16_t>(rows, count, (count + 7) / 8 * 8);
      check_copied_rows<std::uint16_t>(rows, count, (count + 7) / 8 * 8 + 8);
      check_copied_rows<std::uint32_t>(rows, count, (count + 3) / 4 * 4);
      check_copied_rows<std::uint32_t>(rows, count, (count + 3) / 4 * 4 + 4);
    }
  }
}

cudaDeviceProp hopper() {
  cudaDeviceProp device{};
  device.major = 9;
  device.multiProcessorCount = 132;
  device.sharedMemPerBlockOptin = 227 * 1024;
  return device;
}

Conv2dProblem small_problem() { return {.n = 1, .c = 3, .h = 16, .w = 16, .k = 8, .r = 3, .s = 3, .ho = 14, .wo = 14}; }

template <typename Kernel>
std::string refusal_with(Conv2dProblem problem, const cudaDeviceProp& device = hopper()) {
  return Kernel::refusal(problem, device);
}

TEST_CASE("the few-channel kernels refuse by the value that stands against them") {
  using cuda::FewChannelsConv2d;
  using cuda::FewChannelsMma;
  CHECK(refusal_with<FewChannelsConv2d>(small_problem()).empty());
  Conv2dProblem p = small_problem();
  p.c = 9;
  CHECK(contains(refusal_with<FewChannelsConv2d>(p), "9 input channels"));
  p = small_problem();
  p.pool = {.h = 3, .w = 3, .stride_h = 2, .stride_w = 2};
  CHECK(contains(refusal_with<FewChannelsConv2d>(p), "max-pool 3x3"));
  p = small_problem();
  p.w = 1 << 20;
  p.wo = p.w - 2;
  CHECK(contains(refusal_with<FewChannelsConv2d>(p), "bytes of shared memory"));
  p = small_problem();
  p.math = Math::tf32;
  CHECK(refusal_with<FewChannelsConv2d>(p).empty());
  CHECK(refusal_with<FewChannelsMma>(p).empty());
  cudaDeviceProp turing = hopper();
  turing.major = 7;
  turing.minor = 5;
  CHECK(contains(refusal_with<FewChannelsMma>(p, turing), "sm_75"));
  p.math = Math::strict;
  CHECK(contains(refusal_with<FewChannelsMma>(p), "tf32"));
  p.dtype = DType::bf16;
  p.c = 2;
  CHECK(refusal_with<FewChannelsMma>(p).empty());
  p.c = 1;
  CHECK(contains(refusal_with<FewChannelsMma>(p), "1 input channel a group"));
  p.nhwc = true;
  p.c = 32;
  CHECK(refusal_with<FewChannelsMma>(p).empty());
  p.nhwc = false;
  CHECK(contains(refusal_with<FewChannelsMma>(p), "in nchw and of several groups it takes at most 8"));
  p.c = 33;
  CHECK(contains(refusal_with<FewChannelsMma>(p), "33 input channels a group; it takes at most 32"));
}

TEST_CASE("one_channel refuses by the value that stands against it") {
  using cuda::OneChannelConv2d;
  Conv2dProblem p = small_problem();
  CHECK(contains(refusal_with<OneChannelConv2d>(p), "3 input channels"));
  p.c = 1;
  CHECK(refusal_with<OneChannelConv2d>(p).empty());
  p.k = 9;
  CHECK(contains(refusal_with<OneChannelConv2d>(p), "3x3 with 9 output channels"));
  p.k = 8;
  p.stride_h = 2;
  CHECK(contains(refusal_with<OneChannelConv2d>(p), "stride and dilation are 1"));
  p.stride_h = 1;
  p.pool = {.h = 3, .w = 3, .stride_h = 2, .stride_w = 2};
  CHECK(contains(refusal_with<OneChannelConv2d>(p), "2x2"));
  p.pool = {};
  p.h = p.w = 1000;
  p.ho = p.wo = 998;
  CHECK(contains(refusal_with<OneChannelConv2d>(p), "bytes of shared memory"));
}

TEST_CASE("loops over memory and PageRank refuse what is none") {
  const cuda::MemorySweep odd{.block_bytes = 100, .blocks = 1, .threads = 32};
  CHECK_THROWS_AS(cuda::run_memory_loop(cuda::MemoryLoop::read, odd, nullptr, nullptr, nullptr, nullptr, nullptr),
                  std::invalid_argument);
  const cuda::MemorySweep whole{.block_bytes = 65536, .blocks = 1, .threads = 1024};
  CHECK_THROWS_AS(cuda::run_memory_loop(cuda::MemoryLoop{99}, whole, nullptr, nullptr, nullptr, nullptr, nullptr),
                  std::invalid_argument);
  CHECK_THROWS_AS(cuda::has_ceiling_loop(cuda::CeilingLoop{99}, hopper()), std::invalid_argument);
  CHECK_THROWS_AS(cuda::ceiling_units(cuda::CeilingLoop{99}, hopper(), 1), std::invalid_argument);
  CHECK_THROWS_AS(cuda::run_ceiling_loop(cuda::CeilingLoop{99}, hopper(), 1, nullptr, nullptr), std::invalid_argument);
  CHECK_THROWS_AS(cuda::Pagerank({0, 3, 2}, 0.85f), std::invalid_argument);
  CHECK_THROWS_AS(cuda::Pagerank({}, 0.85f), std::invalid_argument);
  const cuda::MemorySweep sweep{.block_bytes = 65536, .blocks = 3, .threads = 1024, .passes = 2};
  CHECK(cuda::bytes_moved(cuda::MemoryLoop::triad, sweep) == 3 * 65536 * 3 * 2);
}

struct Graph {
  std::vector<std::int64_t> offsets;
  std::vector<std::int32_t> sources, out_degrees;
};

/// Vertex 0 takes a fifth of all edges, vertex 1 a fiftieth, so that rows of every length are there; every seventh
/// vertex has no out-edge.
Graph skewed_graph(std::int32_t vertices, std::int64_t edges) {
  std::mt19937 engine(7);
  const auto below = [&](std::int32_t n) { return static_cast<std::int32_t>(engine() % static_cast<unsigned>(n)); };
  std::vector<std::vector<std::int32_t>> rows(static_cast<std::size_t>(vertices));
  Graph graph;
  graph.out_degrees.assign(rows.size(), 0);
  for (std::int64_t i = 0; i < edges; ++i) {
    std::int32_t from = below(vertices);
    if (from % 7 == 0) ++from;
    if (from >= vertices) continue;
    const std::int32_t to = i % 5 == 0 ? 0 : i % 50 == 1 ? 1 : below(vertices);
    rows[static_cast<std::size_t>(to)].push_back(from);
    ++graph.out_degrees[static_cast<std::size_t>(from)];
  }
  graph.offsets = {0};
  for (const auto& row : rows) {
    graph.sources.insert(graph.sources.end(), row.begin(), row.end());
    graph.offsets.push_back(static_cast<std::int64_t>(graph.sources.size()));
  }
  return graph;
}

std::vector<double> pagerank_on_host(const Graph& g, int iterations, double damping) {
  const std::size_t n = g.out_degrees.size();
  const auto count = static_cast<double>(n);
  std::vector<double> ranks(n, 1 / count);
  for (int i = 0; i < iterations; ++i) {
    double lost = 0;
    for (std::size_t v = 0; v < n; ++v) lost += g.out_degrees[v] == 0 ? ranks[v] : 0;
    std::vector<double> next(n);
    for (std::size_t v = 0; v < n; ++v) {
      double sum = 0;
      for (auto e = static_cast<std::size_t>(g.offsets[v]); e < static_cast<std::size_t>(g.offsets[v + 1]); ++e) {
        const auto u = static_cast<std::size_t>(g.sources[e]);
        sum += ranks[u] / g.out_degrees[u];
      }
      next[v] = (1 - damping) / count + damping * (sum + lost / count);
    }
    ranks.swap(next);
  }
  return ranks;
}

TEST_CASE("PageRank of a graph with rows of every length is the f64 one") {
  if (is_missing("cuda")) return;
  constexpr std::int32_t vertices = 5003;
  constexpr int iterations = 25;
  const Graph g = skewed_graph(vertices, 120000);
  const cuda::Pagerank pagerank(g.offsets, 0.85f);
  for (const std::int32_t rows : pagerank.classes()) CHECK(rows > 0);
  const OnDevice offsets(g.offsets);
  const OnDevice sources(g.sources), out_degrees(g.out_degrees);
  const OnDevice ranks(std::vector<float>(vertices, std::numeric_limits<float>::quiet_NaN()));
  const OnDevice change(std::vector<double>(1, -1.0));
  const OnDevice workspace(std::vector<char>(pagerank.workspace_bytes(), '\xff'));
  pagerank.prepare(workspace.get(), nullptr);
  pagerank.run({vertices, offsets.get(), sources.get(), out_degrees.get()}, iterations, ranks.get(), change.get(),
               workspace.get(), nullptr);
  const std::vector<float> result = ranks.read();
  const std::vector<double> expected = pagerank_on_host(g, iterations, 0.85);
  double worst = 0;
  for (std::size_t v = 0; v < expected.size(); ++v) {
    const double error = std::abs(result[v] - expected[v]) / expected[v];
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  CHECK(worst < 1e-5);
  CHECK(change.read()[0] < 1e-3);
}

}  // namespace
}  // namespace gable
