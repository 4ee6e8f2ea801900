// See conformance_cases.h.
#include "tests/conformance/conformance_cases.h"

#include <gable/error.h>

#include <array>
#include <random>
#include <utility>

namespace gable::conformance {
namespace {

constexpr std::array kDTypes{DType::f32, DType::f16, DType::bf16};
constexpr std::array kLayouts{Layout::nchw, Layout::nhwc};
constexpr std::array kActivations{Activation::none, Activation::relu, Activation::tanh};

/// Every tail, edge and attribute that a tiled convolution can get wrong.
std::vector<Conv2d> odd_convolutions() {
  return {
      {.input = {2, 16, 12, 13}, .weights = {32, 16, 3, 3}, .padding = {1, 1}},
      {.input = {1, 1, 9, 9}, .weights = {1, 1, 3, 3}},
      {.input = {1, 1, 1, 1}, .weights = {1, 1, 1, 1}},
      // one below, at and above a partition of 128 channels
      {.input = {1, 127, 7, 6}, .weights = {129, 127, 3, 3}, .padding = {1, 1}},
      {.input = {1, 128, 5, 9}, .weights = {127, 128, 3, 3}},
      {.input = {1, 129, 6, 7}, .weights = {128, 129, 1, 1}},
      {.input = {1, 8, 5, 5}, .weights = {257, 8, 3, 3}, .padding = {1, 1}},
      // pointwise, dense and strided
      {.input = {2, 64, 7, 9}, .weights = {48, 64, 1, 1}},
      {.input = {1, 32, 9, 8}, .weights = {17, 32, 1, 1}, .stride = {2, 2}},
      {.input = {1, 5, 6, 6}, .weights = {9, 5, 1, 1}, .padding = {1, 2}},
      // depthwise, with and without a multiplier, and groups of uneven size
      {.input = {2, 33, 11, 10}, .weights = {33, 1, 3, 3}, .padding = {1, 1}, .groups = 33},
      {.input = {1, 16, 9, 9}, .weights = {32, 1, 3, 3}, .stride = {2, 2}, .groups = 16},
      {.input = {1, 20, 8, 9}, .weights = {28, 5, 3, 3}, .padding = {1, 1}, .groups = 4},
      {.input = {2, 24, 9, 10}, .weights = {24, 4, 3, 3}, .padding = {1, 1}, .groups = 6},
      {.input = {1, 6, 9, 11}, .weights = {4, 3, 3, 2}, .padding = {1, 0, 2, 1}, .groups = 2},
      {.input = {1, 34, 6, 6}, .weights = {66, 17, 2, 3}, .groups = 2},
      // dilation
      {.input = {1, 12, 15, 17}, .weights = {20, 12, 3, 3}, .padding = {2, 3}, .dilation = {2, 3}},
      {.input = {1, 7, 20, 9}, .weights = {5, 7, 4, 2}, .stride = {3, 1}, .padding = {3, 0, 1, 2}, .dilation = {4, 1}},
      // stride and asymmetric padding
      {.input = {2, 10, 14, 15}, .weights = {18, 10, 3, 3}, .stride = {2, 3}, .padding = {0, 1, 2, 3}},
      {.input = {1, 3, 31, 30}, .weights = {64, 3, 7, 7}, .stride = {2, 2}, .padding = {3, 3}},
      {.input = {1, 4, 9, 9}, .weights = {8, 4, 2, 2}, .stride = {4, 4}},
      // windows that tile rows, with and without rows and pixels that no window reads
      {.input = {2, 3, 17, 24}, .weights = {20, 3, 8, 8}, .stride = {8, 8}},
      {.input = {1, 5, 9, 12}, .weights = {19, 5, 2, 3}, .stride = {1, 3}, .padding = {1, 0, 0, 0}},
      {.input = {3, 36, 8, 10}, .weights = {40, 36, 2, 2}, .stride = {2, 2}},
      {.input = {1, 4, 5, 26}, .weights = {70, 4, 3, 2}, .stride = {1, 2}, .dilation = {2, 1}},
      // images of one column
      {.input = {2, 18, 37, 1}, .weights = {30, 18, 3, 1}, .padding = {1, 0}},
      {.input = {1, 24, 31, 1}, .weights = {36, 6, 5, 1}, .stride = {2, 1}, .padding = {3, 0}, .groups = 4},
      {.input = {1, 20, 40, 1}, .weights = {20, 1, 7, 1}, .padding = {6, 0}, .dilation = {2, 1}, .groups = 20},
      // a kernel as large as, and larger than, the image; outputs made of padding alone
      {.input = {3, 64, 4, 4}, .weights = {10, 64, 4, 4}},
      {.input = {1, 4, 2, 3}, .weights = {8, 4, 5, 5}, .padding = {2, 2}},
      {.input = {1, 5, 4, 4}, .weights = {6, 5, 2, 2}, .padding = {3, 3}},
      {.input = {1, 12, 4, 1},
       .weights = {132, 6, 5, 2},
       .stride = {3, 2},
       .padding = {1, 1, 3, 3},
       .dilation = {1, 2},
       .groups = 2},
      // rows and columns of a window that read padding alone, before and after the image, with strides and dilation
      {.input = {1, 30, 4, 4}, .weights = {36, 30, 1, 21}, .padding = {0, 10}},
      {.input = {2, 12, 2, 3}, .weights = {40, 6, 7, 5}, .padding = {3, 4}, .groups = 2},
      {.input = {1, 18, 3, 5},
       .weights = {18, 1, 9, 7},
       .stride = {2, 3},
       .padding = {8, 3, 7, 4},
       .dilation = {2, 1},
       .groups = 18},
      {.input = {1, 3, 2, 40}, .weights = {33, 3, 5, 3}, .stride = {1, 2}, .padding = {6, 1}, .dilation = {3, 1}},
      // one output column with a horizontal stride, which oneDNN's brgemm gets wrong
      {.input = {1, 1, 10, 1}, .weights = {33, 1, 4, 4}, .stride = {1, 3}, .padding = {1, 2, 3, 2}, .dilation = {2, 1}},
      {.input = {2, 33, 19, 1},
       .weights = {31, 33, 5, 1},
       .stride = {1, 2},
       .padding = {0, 0, 1, 1},
       .dilation = {2, 2}},
      // a stride larger than the window, where it writes beyond its buffers
      {.input = {3, 128, 19, 14},
       .weights = {9, 128, 2, 2},
       .stride = {3, 1},
       .padding = {0, 2, 2, 2},
       .dilation = {3, 3}},
      // few channels and a wide window, whose 16-bit depthwise kernel it never ends making
      {.input = {1, 7, 3, 114}, .weights = {7, 1, 1, 15}, .padding = {0, 7}, .groups = 7},
      // thin images and kernels, even kernels, a long row
      {.input = {1, 8, 1, 40}, .weights = {16, 8, 1, 5}, .padding = {0, 2}},
      {.input = {1, 8, 37, 1}, .weights = {16, 8, 7, 1}, .padding = {3, 0}},
      {.input = {1, 9, 8, 9}, .weights = {11, 9, 2, 4}, .padding = {1, 1, 0, 2}},
      {.input = {1, 6, 4, 211}, .weights = {24, 6, 3, 3}, .padding = {1, 1}},
      {.input = {7, 13, 3, 3}, .weights = {13, 13, 3, 3}, .padding = {1, 1}},
      // depthwise as mobile networks have it
      {.input = {1, 64, 14, 14}, .weights = {64, 1, 3, 3}, .padding = {1, 1}, .groups = 64},
      {.input = {1, 24, 15, 13}, .weights = {24, 1, 3, 3}, .stride = {2, 2}, .padding = {1, 1}, .groups = 24},
  };
}

/// Every combination of bias, activation and pool. Windows overlap, leave gaps or drop incomplete ends.
std::vector<Epilogue> epilogues() {
  std::vector<Epilogue> all;
  const std::array pools{PoolWindow{}, PoolWindow(2, 2), PoolWindow({3, 3}, {2, 2}), PoolWindow({2, 1}, {1, 3})};
  for (const PoolWindow& pool : pools) {
    for (const Activation activation : kActivations) {
      for (const bool bias : {false, true}) all.push_back({.bias = bias, .activation = activation, .max_pool = pool});
    }
  }
  return all;
}

bool is_valid(const Op& op) {
  try {
    validate(op);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Each odd shape in each dtype and layout, with epilogues in turn; then one shape with every epilogue.
void add_convolutions(std::vector<Op>& all) {
  const std::vector<Epilogue> variants = epilogues();
  std::size_t turn = 0;
  const auto add = [&](Conv2d conv, DType dtype, Layout layout, const Epilogue& epilogue) {
    conv.dtype = dtype;
    conv.layout = layout;
    conv.epilogue = epilogue;
    if (!is_valid(conv)) conv.epilogue.max_pool = {};
    all.emplace_back(conv);
  };
  for (const Conv2d& conv : odd_convolutions()) {
    for (const DType dtype : kDTypes) {
      for (const Layout layout : kLayouts) {
        add(conv, dtype, layout, {});
        add(conv, dtype, layout, variants[turn++ % variants.size()]);
      }
    }
  }
  const Conv2d shape{.input = {1, 19, 10, 11}, .weights = {37, 19, 3, 3}, .padding = {1, 1}};
  for (const Epilogue& epilogue : variants) {
    for (const DType dtype : kDTypes) {
      for (const Layout layout : kLayouts) add(shape, dtype, layout, epilogue);
    }
  }
}

void add_math_modes(std::vector<Op>& all) {
  for (const Math math : {Math::tf32, Math::split3, Math::split6}) {
    for (const Layout layout : kLayouts) {
      all.emplace_back(Conv2d{.input = {1, 33, 9, 10},
                              .weights = {65, 33, 3, 3},
                              .padding = {1, 1},
                              .layout = layout,
                              .math = math,
                              .epilogue = {.bias = true, .activation = Activation::relu}});
    }
    // two blocks of 64 channels, a pool, a stride, more taps, no padding
    all.emplace_back(Conv2d{.input = {2, 70, 9, 8},
                            .weights = {40, 70, 3, 3},
                            .padding = {1, 1},
                            .layout = Layout::nhwc,
                            .math = math,
                            .epilogue = {.bias = true, .activation = Activation::tanh, .max_pool = {2, 2}}});
    all.emplace_back(Conv2d{
        .input = {3, 68, 13, 12}, .weights = {24, 68, 1, 1}, .stride = {2, 2}, .layout = Layout::nhwc, .math = math});
    all.emplace_back(Conv2d{.input = {1, 8, 15, 40}, .weights = {136, 8, 5, 5}, .layout = Layout::nhwc, .math = math});
    all.emplace_back(Matmul{.m = 33, .n = 65, .k = 130, .math = math});
  }
}

void add_matmuls(std::vector<Op>& all) {
  constexpr std::int64_t kShapes[][3] = {{1, 1, 1},    {1, 129, 64}, {127, 128, 129}, {5, 7, 3},
                                         {64, 64, 64}, {33, 1, 257}, {128, 16, 1},    {2, 300, 31}};
  std::size_t turn = 0;
  for (const auto& [m, n, k] : kShapes) {
    for (const DType dtype : kDTypes) {
      for (const bool bias : {false, true}) {
        all.emplace_back(
            Matmul{.m = m, .n = n, .k = k, .dtype = dtype, .bias = bias, .activation = kActivations[turn++ % 3]});
      }
    }
  }
}

void add_pools(std::vector<Op>& all) {
  const std::vector<MaxPool> shapes{
      {.input = {1, 1, 2, 2}},
      {.input = {2, 17, 9, 11}},
      {.input = {1, 128, 8, 8}, .window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}},
      {.input = {1, 129, 7, 5}, .window = {3, 2}, .stride = {1, 3}, .padding = {0, 1, 2, 0}},
      {.input = {3, 5, 6, 6}, .window = {6, 6}, .stride = {1, 1}},
      {.input = {1, 33, 5, 40}, .window = {1, 5}, .stride = {1, 2}, .padding = {0, 4}},
      {.input = {1, 8, 10, 10}, .window = {2, 2}, .stride = {3, 3}, .padding = {1, 1}},
  };
  for (MaxPool pool : shapes) {
    for (const DType dtype : kDTypes) {
      for (const Layout layout : kLayouts) {
        pool.dtype = dtype;
        pool.layout = layout;
        all.emplace_back(pool);
      }
    }
  }
}

void add_elementwise(std::vector<Op>& all) {
  for (const DType dtype : kDTypes) {
    for (const Shape& shape : {Shape{1}, Shape{1027}, Shape{3, 77}, Shape{2, 3, 65}, Shape{2, 17, 5, 9}}) {
      for (const Layout layout : kLayouts) all.emplace_back(Add{.shape = shape, .dtype = dtype, .layout = layout});
      all.emplace_back(Add{.shape = shape, .dtype = dtype, .activation = Activation::relu});
    }
    all.emplace_back(Add{.shape = {2, 3, 65}, .dtype = dtype, .tile = {3, 7}, .activation = Activation::relu});
    for (const Tile& tile : {Tile{1, 1}, Tile{3, 7}, Tile{128, 2}, Tile{128, 2000}}) {
      all.emplace_back(Add{.shape = {2, 3, 65}, .dtype = dtype, .tile = tile});
    }
    constexpr std::int64_t kMatrices[][2] = {{1, 1}, {1, 130}, {65, 1}, {33, 127}, {128, 64}};
    for (const auto& [rows, columns] : kMatrices) {
      all.emplace_back(Transpose{.rows = rows, .columns = columns, .dtype = dtype});
    }
    for (const Shape& shape : {Shape{1, 1, 3, 5}, Shape{2, 33, 7, 6}, Shape{1, 128, 4, 9}, Shape{3, 16, 1, 1}}) {
      for (const Layout from : kLayouts) {
        for (const Layout to : kLayouts) {
          all.emplace_back(Reorder{.shape = shape, .from = from, .to = to, .dtype = dtype});
        }
      }
    }
  }
}

/// What lies between convolutions: every function, and words of 2 to 16 bytes to place.
void add_between(std::vector<Op>& all) {
  for (const DType dtype : kDTypes) {
    for (int function = 0; function <= static_cast<int>(Function::leaky_relu); ++function) {
      for (const Shape& shape : {Shape{1027}, Shape{2, 17, 5, 9}}) {
        all.emplace_back(Activate{.shape = shape, .function = static_cast<Function>(function), .dtype = dtype});
      }
    }
    for (const Shape& shape : {Shape{1}, Shape{1027}, Shape{3, 77}, Shape{9, 1}, Shape{2, 2500}, Shape{4, 5, 65}}) {
      all.emplace_back(Softmax{.shape = shape, .dtype = dtype});
    }
    for (const Layout layout : kLayouts) {
      for (const int axis : {0, 1, -2, -1}) {
        all.emplace_back(Softmax{.shape = {3, 21, 5, 7}, .axis = axis, .dtype = dtype, .layout = layout});
      }
      all.emplace_back(
          Activate{.shape = {3, 41}, .function = Function::leaky_relu, .dtype = dtype, .layout = layout, .slope = -3});
      all.emplace_back(Activate{.shape = {1, 4, 8, 8}, .function = Function::silu, .dtype = dtype, .layout = layout});
      for (const auto& [a, b] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {16, 32}, {5, 3}, {4, 2}, {129, 8}}) {
        all.emplace_back(Concat{.a = {2, a, 5, 6}, .b = {2, b, 5, 6}, .dtype = dtype, .layout = layout});
      }
      for (const Shape& shape : {Shape{2, 3, 5, 7}, Shape{2, 40, 7, 7}, Shape{1, 8, 1, 1}, Shape{3, 1, 4, 4}}) {
        const Shape channels{shape[0], shape[1], 1, 1};
        all.emplace_back(Multiply{.a = shape, .b = channels, .dtype = dtype, .layout = layout});
        all.emplace_back(Multiply{.a = shape, .b = shape, .dtype = dtype, .layout = layout});
      }
      for (const Extent& scale : {Extent{1, 1}, Extent{2, 2}, Extent{3, 1}, Extent{1, 5}}) {
        for (const Shape& shape : {Shape{2, 3, 4, 7}, Shape{1, 16, 3, 8}, Shape{1, 1, 1, 1}}) {
          for (const Interpolation way :
               {Interpolation::nearest, Interpolation::bilinear, Interpolation::bilinear_align_corners}) {
            all.emplace_back(
                Upsample{.input = shape, .scale = scale, .dtype = dtype, .layout = layout, .interpolation = way});
          }
        }
      }
    }
  }
}

/// The standard's engine, but not its distributions: their results differ between libraries.
class Random {
 public:
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  template <typename T, std::size_t count>
  T any_of(const std::array<T, count>& values) {
    return values[static_cast<std::size_t>(between(0, count - 1))];
  }

 private:
  std::mt19937_64 engine_{20240607};
};

Conv2d random_convolution(Random& random) {
  constexpr std::array<std::int64_t, 14> kChannels{1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 100};
  const std::int64_t groups = random.any_of(std::array<std::int64_t, 6>{1, 1, 1, 1, 2, 3});
  const std::int64_t in = random.any_of(kChannels);
  const std::int64_t out = random.any_of(kChannels);
  Conv2d conv{
      .input = {random.between(1, 3), groups * in, random.between(1, 24), random.between(1, 24)},
      .weights = {groups * out, in, random.between(1, 5), random.between(1, 5)},
      .stride = {random.between(1, 3), random.between(1, 3)},
      .padding = {random.between(0, 3), random.between(0, 3), random.between(0, 3), random.between(0, 3)},
      .dilation = {random.between(1, 3), random.between(1, 3)},
      .groups = groups,
      .dtype = random.any_of(kDTypes),
      .layout = random.any_of(kLayouts),
      .epilogue = {.bias = random.between(0, 1) == 1, .activation = random.any_of(kActivations)},
  };
  if (random.between(0, 2) == 0) {
    conv.epilogue.max_pool =
        PoolWindow({random.between(1, 3), random.between(1, 3)}, {random.between(1, 3), random.between(1, 3)});
  }
  return conv;
}

void add_random_convolutions(std::vector<Op>& all, int count) {
  constexpr double kMaxFlop = 8e6;  // the oracle's time
  Random random;
  while (count > 0) {
    const Conv2d conv = random_convolution(random);
    if (!is_valid(conv) || work(conv).flop > kMaxFlop) continue;
    all.emplace_back(conv);
    --count;
  }
}

}  // namespace

std::vector<Op> cases(bool fast) {
  constexpr int kRandom = 400;
  constexpr std::size_t kFastStep = 7;  // coprime to the number of dtypes, layouts and activations
  std::vector<Op> all;
  add_convolutions(all);
  add_math_modes(all);
  add_matmuls(all);
  add_pools(all);
  add_elementwise(all);
  add_between(all);
  add_random_convolutions(all, kRandom);
  if (!fast) return all;
  std::vector<Op> some;
  for (std::size_t i = 0; i < all.size(); i += kFastStep) some.push_back(all[i]);
  return some;
}

}  // namespace gable::conformance
