// See random_problem.h.
#include "bench/workloads/random_problem.h"

#include <gable/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "bench/workloads/cases.h"

namespace gable::bench {
namespace {

constexpr double kMaxFlop = 4e6;
constexpr double kMaxElements = 1e6;

/// Draws from the generator alone: the standard's distributions differ from library to library.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(0, 99) < percent; }
  template <typename T, std::size_t size>
  T any_of(const std::array<T, size>& values) {
    return values[random_() % size];
  }
  float unit() { return static_cast<float>(random_() >> 40) * 0x1p-23F - 1; }  // [-1, 1)

 private:
  std::mt19937_64 random_;
};

constexpr std::array kDTypes{DType::f32, DType::bf16, DType::f16};
constexpr std::array kInterpolations{Interpolation::nearest, Interpolation::bilinear,
                                     Interpolation::bilinear_align_corners};
constexpr std::array kLayouts{Layout::nhwc, Layout::nchw};
constexpr std::array kActivations{Activation::none, Activation::relu, Activation::tanh};

std::int64_t channels(Draw& draw) {
  // Around the vectors' and tiles' widths, where tails begin.
  static constexpr std::array<std::int64_t, 20> kEdges{1,  2,  3,  4,  7,  8,  9,  15,  16,  17,
                                                       31, 32, 33, 48, 63, 64, 65, 127, 128, 129};
  return draw.chance(70) ? draw.any_of(kEdges) : draw.between(1, 140);
}

void set_groups(Draw& draw, Conv2d& conv, std::int64_t images, Extent image, Extent window) {
  const int kind = static_cast<int>(draw.between(0, 9));
  std::int64_t groups = 1, in = channels(draw), out = channels(draw);
  if (kind >= 8) {  // depthwise
    groups = channels(draw);
    in = 1;
    out = draw.chance(75) ? 1 : draw.between(2, 3);
  } else if (kind >= 6) {
    groups = draw.between(2, 9);
    in = draw.between(1, 20);
    out = draw.between(1, 20);
  }
  conv.groups = groups;
  conv.input = {images, groups * in, image.h, image.w};
  conv.weights = {groups * out, in, window.h, window.w};
}

/// An image of one or two rows or columns, with any padding. A tap between two that read the image may then read
/// padding alone.
void narrow_image(Draw& draw, Conv2d& conv) {
  const std::int64_t h = (conv.weights[2] - 1) * conv.dilation.h, w = (conv.weights[3] - 1) * conv.dilation.w;
  conv.input[draw.chance(50) ? 2 : 3] = draw.between(1, 2);
  conv.padding = {draw.between(0, h), draw.between(0, w), draw.between(0, h), draw.between(0, w)};
}

Conv2d convolution(Draw& draw) {
  Conv2d conv;
  const std::int64_t square = draw.any_of(std::array<std::int64_t, 7>{1, 1, 3, 3, 3, 5, 7});
  const Extent window = draw.chance(70) ? Extent{square, square} : Extent{draw.between(1, 5), draw.between(1, 5)};
  set_groups(draw, conv, draw.between(1, 3), {draw.between(1, 20), draw.between(1, 20)}, window);
  if (draw.chance(35)) conv.stride = {draw.between(1, 3), draw.between(1, 3)};
  if (draw.chance(20)) conv.dilation = {draw.between(1, 3), draw.between(1, 3)};
  if (draw.chance(50)) {
    const std::int64_t h = window.h / 2 * conv.dilation.h, w = window.w / 2 * conv.dilation.w;
    conv.padding = {h, w};
  } else if (draw.chance(50)) {
    conv.padding = {draw.between(0, 3), draw.between(0, 3), draw.between(0, 3), draw.between(0, 3)};
  }
  conv.dtype = draw.any_of(kDTypes);
  conv.layout = draw.any_of(kLayouts);
  if (conv.dtype == DType::f32 && draw.chance(15))
    conv.math = draw.any_of(std::array{Math::tf32, Math::split3, Math::split6});
  conv.epilogue.bias = draw.chance(60);
  conv.epilogue.activation = draw.any_of(kActivations);
  if (draw.chance(30)) {
    const std::int64_t side = draw.between(2, 3);
    conv.epilogue.max_pool = draw.chance(60)
                                 ? PoolWindow(2, 2)
                                 : PoolWindow({side, draw.between(1, 3)}, {draw.between(1, 3), draw.between(1, 3)});
  }
  if (draw.chance(10)) narrow_image(draw, conv);
  return conv;
}

Op other_op(Draw& draw) {
  const DType dtype = draw.any_of(kDTypes);
  const Layout layout = draw.any_of(kLayouts);
  const Shape shape{draw.between(1, 3), channels(draw), draw.between(1, 20), draw.between(1, 20)};
  switch (draw.between(0, 9)) {
    case 0:
      return Matmul{.m = draw.between(1, 70),
                    .n = channels(draw),
                    .k = channels(draw),
                    .dtype = dtype,
                    .bias = draw.chance(50),
                    .activation = draw.any_of(kActivations)};
    case 1:
      return MaxPool{.input = shape,
                     .window = {draw.between(1, 4), draw.between(1, 4)},
                     .stride = {draw.between(1, 3), draw.between(1, 3)},
                     .padding = {draw.between(0, 1), draw.between(0, 1), draw.between(0, 1), draw.between(0, 1)},
                     .dtype = dtype,
                     .layout = layout};
    case 2:
      return Add{.shape = shape,
                 .dtype = dtype,
                 .layout = layout,
                 .activation = draw.chance(50) ? Activation::relu : Activation::none};
    case 3:
      return Transpose{.rows = draw.between(1, 150), .columns = draw.between(1, 150), .dtype = dtype};
    case 4:
      return Activate{.shape = shape,
                      .function = static_cast<Function>(draw.between(0, static_cast<int>(Function::leaky_relu))),
                      .dtype = dtype,
                      .layout = layout};
    case 5:
      return Concat{.a = shape, .b = {shape[0], channels(draw), shape[2], shape[3]}, .dtype = dtype, .layout = layout};
    case 6:
      return Upsample{.input = shape,
                      .scale = {draw.between(1, 4), draw.between(1, 4)},
                      .dtype = dtype,
                      .layout = layout,
                      .interpolation = draw.any_of(kInterpolations)};
    case 7:
      return Multiply{
          .a = shape, .b = draw.chance(30) ? shape : Shape{shape[0], shape[1], 1, 1}, .dtype = dtype, .layout = layout};
    case 8:
      return Softmax{.shape = shape, .axis = static_cast<int>(draw.between(-4, 3)), .dtype = dtype, .layout = layout};
    default:
      return Reorder{
          .shape = shape, .from = layout, .to = layout == Layout::nchw ? Layout::nhwc : Layout::nchw, .dtype = dtype};
  }
}

bool is_usable(const Op& op) {
  try {
    validate(op);
  } catch (const Error&) {
    return false;
  }
  return work(op).flop <= kMaxFlop && work(op).bytes() <= 4 * kMaxElements;
}

Values any_values(Draw& draw) {
  if (draw.chance(50)) return Values::uniform;
  return static_cast<Values>(draw.between(1, static_cast<int>(Values::odd_weights)));
}

double greatest(DType dtype) {
  return dtype == DType::f16 ? 65504.0 : dtype == DType::bf16 ? 0x1.FEp127 : 0x1.FFFFFEp127;
}

double least_normal(DType dtype) { return dtype == DType::f16 ? 0x1p-14 : 0x1p-126; }

void store(const Tensor& tensor, std::int64_t i, double value) {
  const auto number = static_cast<float>(value);
  switch (tensor.dtype()) {
    case DType::f32:
      static_cast<float*>(tensor.data())[i] = number;
      return;
    case DType::bf16:
      static_cast<std::uint16_t*>(tensor.data())[i] = bf16_from_float(number);
      return;
    case DType::f16:
      static_cast<std::uint16_t*>(tensor.data())[i] = f16_from_float(number);
      return;
  }
}

template <typename Value>
void fill(const Tensor& tensor, const Value& value) {
  const std::int64_t count = tensor.shape().elements();
  for (std::int64_t i = 0; i < count; ++i) store(tensor, i, value());
}

/// One in 64 elements, and one at least.
template <typename Value>
void sprinkle(Draw& draw, const Tensor& tensor, const Value& value) {
  const std::int64_t count = tensor.shape().elements();
  for (std::int64_t n = 0; n <= count / 64; ++n) store(tensor, draw.between(0, count - 1), value());
}

}  // namespace

std::string_view to_string(Values values) {
  constexpr std::array<std::string_view, 7> kNames{"uniform",  "scaled", "tiny",       "overflowing",
                                                   "infinite", "nan",    "odd weights"};
  return kNames[static_cast<std::size_t>(values)];
}

RandomProblem random_problem(std::uint64_t seed) {
  Draw draw(seed);
  const Values values = any_values(draw);
  const bool convolves = values == Values::odd_weights || draw.chance(85);
  while (true) {
    Op op = convolves ? Op(convolution(draw)) : other_op(draw);
    if (auto* conv = std::get_if<Conv2d>(&op); conv != nullptr && values == Values::odd_weights) conv->padding = {};
    if (is_usable(op)) return {op, values};
  }
}

OpData data_of(const RandomProblem& problem, std::uint64_t seed) {
  Draw draw(seed ^ 0x9e3779b97f4a7c15U);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto infinity = [&] { return draw.chance(50) ? kInfinity : -kInfinity; };
  const DType dtype = dtype_of(problem.op);
  OpData data = random_data(problem.op, seed);
  switch (problem.values) {
    case Values::uniform:
      break;
    case Values::scaled: {
      // The greatest product and its sums stay finite, the least ones normal.
      const std::int64_t most = dtype == DType::f16 ? 3 : 45;
      const double x = std::ldexp(1.0, static_cast<int>(draw.between(-most, most)));
      const double w = std::ldexp(1.0, static_cast<int>(draw.between(-most, most)));
      fill(data.x, [&] { return x * draw.unit(); });
      if (data.weights.data() != nullptr) fill(data.weights, [&] { return w * draw.unit(); });
      break;
    }
    case Values::tiny:
      fill(data.x, [&] {
        const double least = least_normal(dtype);
        return draw.any_of(std::array{0.0, -0.0, least, -least, least * draw.unit(), least * draw.unit(),
                                      least * draw.unit(), 0x1p-20 * least * draw.unit()});
      });
      break;
    case Values::overflowing:
      fill(data.x, [&] { return greatest(dtype) * draw.unit(); });
      break;
    case Values::infinite:
      sprinkle(draw, data.x, infinity);
      break;
    case Values::nan:
      sprinkle(draw, data.x, [] { return std::numeric_limits<double>::quiet_NaN(); });
      break;
    case Values::odd_weights:
      sprinkle(draw, data.weights,
               [&] { return draw.chance(50) ? std::numeric_limits<double>::quiet_NaN() : infinity(); });
      break;
  }
  return data;
}

}  // namespace gable::bench
