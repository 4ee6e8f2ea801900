// Validation of ops and the arithmetic of their shapes: outputs, FLOP, least bytes.
#include <gable/error.h>
#include <gable/ops.h>

#include <cmath>
#include <limits>

#include "api/src/tensor_check.h"
#include "common/number.h"

namespace gable {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;
constexpr std::int64_t kMaxDimension = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void refuse(std::string_view op, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, std::string(op) + ": " + what);
}

std::string number(std::int64_t value) { return std::to_string(value); }

bool is_dimension(std::int64_t value, std::int64_t low) { return low <= value && value <= kMaxDimension; }

/// `attribute` is followed by `part`. No text is made unless the value is refused: every choice validates its op.
void check_at_least(std::string_view op, std::string_view attribute, std::int64_t value, std::int64_t low,
                    std::string_view part = "") {
  if (is_dimension(value, low)) return;
  refuse(op, std::string(attribute).append(part) + " is " + number(value) + "; it must lie between " + number(low) +
                 " and " + number(kMaxDimension));
}

void check_extent(std::string_view op, std::string_view attribute, Extent extent) {
  check_at_least(op, attribute, extent.h, 1, ".h");
  check_at_least(op, attribute, extent.w, 1, ".w");
}

void check_padding(std::string_view op, const Padding& padding) {
  check_at_least(op, "padding.top", padding.top, 0);
  check_at_least(op, "padding.left", padding.left, 0);
  check_at_least(op, "padding.bottom", padding.bottom, 0);
  check_at_least(op, "padding.right", padding.right, 0);
}

void check_shape(std::string_view op, std::string_view tensor, const Shape& shape, std::size_t min_rank,
                 std::size_t max_rank) {
  if (shape.rank() < min_rank || shape.rank() > max_rank) {
    const std::string wanted = min_rank == max_rank ? number(static_cast<std::int64_t>(min_rank))
                                                    : number(static_cast<std::int64_t>(min_rank)) + " to " +
                                                          number(static_cast<std::int64_t>(max_rank));
    refuse(op, std::string(tensor) + " has " + number(static_cast<std::int64_t>(shape.rank())) + " dimensions (" +
                   to_string(shape) + "); it must have " + wanted);
  }
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    if (!is_dimension(shape[i], 1)) {
      const std::string at = "dimension " + number(static_cast<std::int64_t>(i)) + " of ";
      check_at_least(op, at + std::string(tensor) + " " + to_string(shape), shape[i], 1);
    }
    if (shape[i] > kMaxElements / elements) {
      refuse(op, std::string(tensor) + " " + to_string(shape) + " has more than 2^40 elements, the most gable takes");
    }
    elements *= shape[i];
  }
}

/// Positions of a window of `window` elements, `dilation` apart, over `size` padded elements.
std::int64_t positions(std::int64_t size, std::int64_t padding, std::int64_t window, std::int64_t dilation,
                       std::int64_t stride) {
  const std::int64_t reach = (window - 1) * dilation + 1;
  return size + padding < reach ? 0 : (size + padding - reach) / stride + 1;
}

Extent conv_output_extent(const Conv2d& c) {
  return {positions(c.input[2], c.padding.top + c.padding.bottom, c.weights[2], c.dilation.h, c.stride.h),
          positions(c.input[3], c.padding.left + c.padding.right, c.weights[3], c.dilation.w, c.stride.w)};
}

Extent pool_extent(Extent image, const PoolWindow& pool) {
  if (!pool) return image;
  return {positions(image.h, 0, pool.window.h, 1, pool.stride.h),
          positions(image.w, 0, pool.window.w, 1, pool.stride.w)};
}

std::string to_string(Extent extent) { return number(extent.h) + "x" + number(extent.w); }

void check_groups(const Conv2d& c) {
  check_at_least("conv2d", "groups", c.groups, 1);
  if (c.input[1] % c.groups != 0 || c.weights[0] % c.groups != 0) {
    refuse("conv2d", "groups is " + number(c.groups) + "; it must divide the input channels (" + number(c.input[1]) +
                         ") and the output channels (" + number(c.weights[0]) + ")");
  }
  if (c.weights[1] * c.groups != c.input[1]) {
    refuse("conv2d", "weights " + to_string(c.weights) + " take " + number(c.weights[1]) +
                         " input channels a group; an input of " + number(c.input[1]) + " channels in " +
                         number(c.groups) + " groups needs " + number(c.input[1] / c.groups));
  }
}

void check_epilogue_pool(const Conv2d& c, Extent image) {
  const PoolWindow& pool = c.epilogue.max_pool;
  if (!pool) return;
  check_extent("conv2d", "epilogue.max_pool.window", pool.window);
  check_extent("conv2d", "epilogue.max_pool.stride", pool.stride);
  const Extent pooled = pool_extent(image, pool);
  if (pooled.h < 1 || pooled.w < 1) {
    refuse("conv2d", "epilogue.max_pool.window " + to_string(pool.window) +
                         " does not fit into the convolution's output " + to_string(image));
  }
}

/// A binding of another language may have cast any number to an enumeration.
template <typename Enumeration>
void check_known(std::string_view op, std::string_view attribute, Enumeration value, Enumeration last) {
  if (value > last) {
    refuse(op, std::string(attribute) + " is number " + number(static_cast<std::int64_t>(value)) +
                   " of its enumeration, which ends at " + number(static_cast<std::int64_t>(last)));
  }
}
void check_known(std::string_view op, DType dtype) { check_known(op, "dtype", dtype, DType::bf16); }
void check_known(std::string_view op, Layout layout, const char* attribute = "layout") {
  check_known(op, attribute, layout, Layout::nhwc);
}
void check_known(std::string_view op, Activation activation, const char* attribute) {
  check_known(op, attribute, activation, Activation::tanh);
}

void check_math(std::string_view op, DType dtype, Math math) {
  check_known(op, "math", math, Math::split6);
  if (math != Math::strict && dtype != DType::f32) {
    refuse(op, "math " + std::string(to_string(math)) + " is for f32; with " + std::string(to_string(dtype)) +
                   " it must be strict");
  }
}

void check(const Conv2d& c) {
  check_known("conv2d", c.dtype);
  check_known("conv2d", c.layout);
  check_known("conv2d", c.epilogue.activation, "epilogue.activation");
  check_shape("conv2d", "input", c.input, 4, 4);
  check_shape("conv2d", "weights", c.weights, 4, 4);
  check_extent("conv2d", "stride", c.stride);
  check_extent("conv2d", "dilation", c.dilation);
  check_padding("conv2d", c.padding);
  check_groups(c);
  check_math("conv2d", c.dtype, c.math);
  const Extent image = conv_output_extent(c);
  if (image.h < 1 || image.w < 1) {
    refuse("conv2d", "the " + to_string(Extent{c.weights[2], c.weights[3]}) + " kernel with dilation " +
                         to_string(c.dilation) + " does not fit into the padded input of " +
                         to_string(Extent{c.input[2] + c.padding.top + c.padding.bottom,
                                          c.input[3] + c.padding.left + c.padding.right}));
  }
  check_epilogue_pool(c, image);
  check_shape("conv2d", "output", conv_output_shape(c), 4, 4);
}

void check(const Matmul& m) {
  check_known("matmul", m.dtype);
  check_known("matmul", m.activation, "activation");
  check_shape("matmul", "a", Shape{m.m, m.k}, 2, 2);
  check_shape("matmul", "b", Shape{m.k, m.n}, 2, 2);
  check_shape("matmul", "c", Shape{m.m, m.n}, 2, 2);
  check_math("matmul", m.dtype, m.math);
}

void check(const MaxPool& p) {
  check_known("max_pool", p.dtype);
  check_known("max_pool", p.layout);
  check_shape("max_pool", "input", p.input, 4, 4);
  check_extent("max_pool", "window", p.window);
  check_extent("max_pool", "stride", p.stride);
  check_padding("max_pool", p.padding);
  // A wider padding would make windows that hold no element at all.
  const auto check_side = [&](const std::string& side, std::int64_t padding, std::int64_t window) {
    if (padding >= window) {
      refuse("max_pool",
             "padding." + side + " is " + number(padding) + "; it must be below the window's " + number(window));
    }
  };
  check_side("top", p.padding.top, p.window.h);
  check_side("bottom", p.padding.bottom, p.window.h);
  check_side("left", p.padding.left, p.window.w);
  check_side("right", p.padding.right, p.window.w);
  const Shape output = output_shape(p);
  if (output[2] < 1 || output[3] < 1) {
    refuse("max_pool",
           "the window " + to_string(p.window) + " does not fit into the padded input " + to_string(p.input));
  }
}

void check(const Add& a) {
  check_known("add", a.dtype);
  check_known("add", a.layout);
  check_shape("add", "shape", a.shape, 1, 4);
  check_known("add", a.activation, "activation");
  if (a.activation == Activation::tanh) refuse("add", "activation is tanh; it must be none or relu");
  if (!a.tile) return;
  constexpr std::int64_t kPartitions = 128;
  if (a.tile.row_chunk < 1 || a.tile.row_chunk > kPartitions) {
    refuse("add", "tile.row_chunk is " + number(a.tile.row_chunk) + "; a tile has 1 to " + number(kPartitions) +
                      " partition lanes");
  }
  if (a.tile.free_dim < 1 || a.tile.free_dim > kMaxElements) {
    refuse("add", "tile.free_dim is " + number(a.tile.free_dim) + "; it must be from 1 to 2^40");
  }
}
void check(const Transpose& t) {
  check_known("transpose", t.dtype);
  check_shape("transpose", "x", Shape{t.rows, t.columns}, 2, 2);
}
void check(const Reorder& r) {
  check_known("reorder", r.dtype);
  check_known("reorder", r.from, "from");
  check_known("reorder", r.to, "to");
  check_shape("reorder", "shape", r.shape, 4, 4);
}
void check(const Activate& a) {
  check_known("activate", a.dtype);
  check_known("activate", a.layout);
  check_known("activate", "function", a.function, Function::leaky_relu);
  if (a.function == Function::leaky_relu && (!std::isfinite(a.slope) || a.slope == 0)) {
    refuse("activate", "slope of leaky_relu is " + short_number(static_cast<double>(a.slope), 6) +
                           "; it must be a finite number other than 0, such as 0.01, PyTorch's (with 0 it is relu)");
  }
  check_shape("activate", "shape", a.shape, 1, 4);
}
void check(const Concat& c) {
  check_known("concat", c.dtype);
  check_known("concat", c.layout);
  check_shape("concat", "a", c.a, 4, 4);
  check_shape("concat", "b", c.b, 4, 4);
  if (c.a[0] != c.b[0] || c.a[2] != c.b[2] || c.a[3] != c.b[3]) {
    refuse("concat", "a is " + to_string(c.a) + " and b is " + to_string(c.b) +
                         "; they may differ in channels alone (N, C, H, W)");
  }
  check_shape("concat", "output", output_shape(c), 4, 4);
}
void check(const Upsample& u) {
  check_known("upsample", u.dtype);
  check_known("upsample", u.layout);
  check_shape("upsample", "input", u.input, 4, 4);
  check_extent("upsample", "scale", u.scale);
  check_known("upsample", "interpolation", u.interpolation, Interpolation::bilinear_align_corners);
  check_shape("upsample", "output", output_shape(u), 4, 4);
}
void check(const Multiply& m) {
  check_known("multiply", m.dtype);
  check_known("multiply", m.layout);
  check_shape("multiply", "a", m.a, 1, 4);
  check_shape("multiply", "b", m.b, 1, 4);
  if (m.b == m.a) return;
  const bool has_channels = m.a.rank() == 4;
  const std::string factors = has_channels ? to_string(Shape{m.a[0], m.a[1], 1, 1}) : "";
  if (has_channels && m.b == Shape{m.a[0], m.a[1], 1, 1}) return;
  refuse("multiply", "a is " + to_string(m.a) + " and b is " + to_string(m.b) + "; b must have a's shape" +
                         (has_channels ? ", or be " + factors + ": a factor for each channel of each image"
                                       : " (or a be (N, C, H, W) and b (N, C, 1, 1))"));
}
void check(const Softmax& s) {
  check_known("softmax", s.dtype);
  check_known("softmax", s.layout);
  check_shape("softmax", "shape", s.shape, 1, 4);
  const auto rank = static_cast<std::int64_t>(s.shape.rank());
  if (s.axis < -rank || s.axis >= rank) {
    refuse("softmax", "axis is " + number(s.axis) + "; of " + to_string(s.shape) + " it must lie between " +
                          number(-rank) + " and " + number(rank - 1));
  }
}

Shape output_of(const Conv2d& c) {
  const Extent pooled = pool_extent(conv_output_extent(c), c.epilogue.max_pool);
  return {c.input[0], c.weights[0], pooled.h, pooled.w};
}
Shape output_of(const Matmul& m) { return {m.m, m.n}; }
Shape output_of(const MaxPool& p) {
  return {p.input[0], p.input[1], positions(p.input[2], p.padding.top + p.padding.bottom, p.window.h, 1, p.stride.h),
          positions(p.input[3], p.padding.left + p.padding.right, p.window.w, 1, p.stride.w)};
}
Shape output_of(const Add& a) { return a.shape; }
Shape output_of(const Transpose& t) { return {t.columns, t.rows}; }
Shape output_of(const Reorder& r) { return r.shape; }
Shape output_of(const Activate& a) { return a.shape; }
Shape output_of(const Concat& c) { return {c.a[0], c.a[1] + c.b[1], c.a[2], c.a[3]}; }
Shape output_of(const Upsample& u) { return {u.input[0], u.input[1], u.input[2] * u.scale.h, u.input[3] * u.scale.w}; }
Shape output_of(const Multiply& m) { return m.a; }
Shape output_of(const Softmax& s) { return s.shape; }

double bytes_of(std::int64_t elements, DType dtype) {
  return static_cast<double>(elements) * static_cast<double>(size_of(dtype));
}

Work work_of(const Conv2d& c) {
  const Shape image = conv_output_shape(c);
  const double macs = static_cast<double>(image.elements()) * static_cast<double>(terms(c));
  const double bias = c.epilogue.bias ? 4.0 * static_cast<double>(c.weights[0]) : 0.0;
  return {.flop = 2 * macs,
          .bytes_read = bytes_of(c.input.elements(), c.dtype) + bytes_of(c.weights.elements(), c.dtype) + bias,
          .bytes_written = bytes_of(output_of(c).elements(), c.dtype)};
}
Work work_of(const Matmul& m) {
  const double bias = m.bias ? 4.0 * static_cast<double>(m.n) : 0.0;
  return {.flop = 2.0 * static_cast<double>(m.m) * static_cast<double>(m.n) * static_cast<double>(m.k),
          .bytes_read = bytes_of(m.m * m.k, m.dtype) + bytes_of(m.k * m.n, m.dtype) + bias,
          .bytes_written = bytes_of(m.m * m.n, m.dtype)};
}
Work work_of(const MaxPool& p) {
  return {.flop = 0,
          .bytes_read = bytes_of(p.input.elements(), p.dtype),
          .bytes_written = bytes_of(output_of(p).elements(), p.dtype)};
}
Work work_of(const Add& a) {
  const double tensor = bytes_of(a.shape.elements(), a.dtype);
  return {.flop = static_cast<double>(a.shape.elements()), .bytes_read = 2 * tensor, .bytes_written = tensor};
}
Work work_of(const Transpose& t) {
  const double tensor = bytes_of(t.rows * t.columns, t.dtype);
  return {.flop = 0, .bytes_read = tensor, .bytes_written = tensor};
}
Work work_of(const Reorder& r) {
  const double tensor = bytes_of(r.shape.elements(), r.dtype);
  return {.flop = 0, .bytes_read = tensor, .bytes_written = tensor};
}
Work work_of(const Activate& a) {
  const double tensor = bytes_of(a.shape.elements(), a.dtype);
  return {.flop = 0, .bytes_read = tensor, .bytes_written = tensor};
}
Work work_of(const Concat& c) {
  const double tensor = bytes_of(output_of(c).elements(), c.dtype);
  return {.flop = 0, .bytes_read = tensor, .bytes_written = tensor};
}
Work work_of(const Upsample& u) {
  constexpr double kFlopOfMean = 7;  // of four pixels: four products, three sums
  const double outputs = static_cast<double>(output_of(u).elements());
  return {.flop = u.interpolation == Interpolation::nearest ? 0 : kFlopOfMean * outputs,
          .bytes_read = bytes_of(u.input.elements(), u.dtype),
          .bytes_written = bytes_of(output_of(u).elements(), u.dtype)};
}
Work work_of(const Multiply& m) {
  const double tensor = bytes_of(m.a.elements(), m.dtype);
  return {.flop = static_cast<double>(m.a.elements()),
          .bytes_read = tensor + bytes_of(m.b.elements(), m.dtype),
          .bytes_written = tensor};
}
Work work_of(const Softmax& s) {
  const double tensor = bytes_of(s.shape.elements(), s.dtype);
  return {.flop = 0, .bytes_read = tensor, .bytes_written = tensor};
}

std::string text(const Padding& p) {
  if (p.top == p.bottom && p.left == p.right) return to_string(Extent{p.top, p.left});
  return number(p.top) + "," + number(p.left) + "," + number(p.bottom) + "," + number(p.right);
}

std::string text(const PoolWindow& pool) {
  return to_string(pool.window) + (pool.stride == pool.window ? "" : " stride " + to_string(pool.stride));
}

std::string attributes(const Conv2d& c) {
  std::string s;
  s.reserve(128);
  s.append(to_string(c.input)).append(" * ").append(to_string(c.weights));
  s.append(" ").append(to_string(c.dtype)).append(" ").append(to_string(c.layout));
  if (c.stride != Extent{1, 1}) s += ", stride " + to_string(c.stride);
  if (c.padding != Padding{}) s += ", padding " + text(c.padding);
  if (c.dilation != Extent{1, 1}) s += ", dilation " + to_string(c.dilation);
  if (c.groups != 1) s += ", groups " + number(c.groups);
  if (c.math != Math::strict) s += ", math " + std::string(to_string(c.math));
  if (c.epilogue.bias) s += ", bias";
  if (c.epilogue.activation != Activation::none) s += ", " + std::string(to_string(c.epilogue.activation));
  if (c.epilogue.max_pool) s += ", max-pool " + text(c.epilogue.max_pool);
  return s;
}
std::string attributes(const Matmul& m) {
  std::string s =
      to_string(Shape{m.m, m.k}) + " * " + to_string(Shape{m.k, m.n}) + " " + std::string(to_string(m.dtype));
  if (m.math != Math::strict) s += ", math " + std::string(to_string(m.math));
  if (m.bias) s += ", bias";
  if (m.activation != Activation::none) s += ", " + std::string(to_string(m.activation));
  return s;
}
std::string attributes(const MaxPool& p) {
  std::string s = to_string(p.input) + " " + std::string(to_string(p.dtype)) + " " + std::string(to_string(p.layout)) +
                  ", window " + text(PoolWindow(p.window, p.stride));
  if (p.padding != Padding{}) s += ", padding " + text(p.padding);
  return s;
}
std::string attributes(const Add& a) {
  std::string s = to_string(a.shape) + " " + std::string(to_string(a.dtype)) + " " + std::string(to_string(a.layout));
  if (a.activation != Activation::none) s += ", " + std::string(to_string(a.activation));
  if (a.tile) s += ", tile " + number(a.tile.row_chunk) + "x" + number(a.tile.free_dim);
  return s;
}
std::string attributes(const Transpose& t) {
  return to_string(Shape{t.rows, t.columns}) + " " + std::string(to_string(t.dtype));
}
std::string attributes(const Reorder& r) {
  return to_string(r.shape) + " " + std::string(to_string(r.dtype)) + ", " + std::string(to_string(r.from)) + " to " +
         std::string(to_string(r.to));
}
std::string attributes(const Activate& a) {
  std::string function(to_string(a.function));
  if (a.function == Function::leaky_relu) function += " (slope " + short_number(static_cast<double>(a.slope), 6) + ")";
  return function + " of " + to_string(a.shape) + " " + std::string(to_string(a.dtype)) + " " +
         std::string(to_string(a.layout));
}
std::string attributes(const Concat& c) {
  return to_string(c.a) + " and " + to_string(c.b) + " " + std::string(to_string(c.dtype)) + " " +
         std::string(to_string(c.layout));
}
std::string attributes(const Upsample& u) {
  return to_string(u.input) + " " + std::string(to_string(u.dtype)) + " " + std::string(to_string(u.layout)) +
         ", scale " + to_string(u.scale) +
         (u.interpolation == Interpolation::nearest ? "" : ", " + std::string(to_string(u.interpolation)));
}
std::string attributes(const Multiply& m) {
  return to_string(m.a) + " by " + to_string(m.b) + " " + std::string(to_string(m.dtype)) + " " +
         std::string(to_string(m.layout));
}
std::string attributes(const Softmax& s) {
  return to_string(s.shape) + " " + std::string(to_string(s.dtype)) + " " + std::string(to_string(s.layout)) +
         ", axis " + number(s.axis);
}

}  // namespace

std::string_view name(const Op& op) {
  constexpr std::string_view kNames[] = {"conv2d",   "matmul", "max_pool", "add",      "transpose", "reorder",
                                         "activate", "concat", "upsample", "multiply", "softmax"};
  return kNames[op.index()];
}

std::string describe(const Op& op) {
  std::string text = std::visit([](const auto& o) { return attributes(o); }, op);
  return text.insert(0, " ").insert(0, name(op));
}

void validate_tensor(DType dtype, const Shape& shape, Layout layout) {
  check_known("tensor", dtype);
  check_known("tensor", layout);
  check_shape("tensor", "shape", shape, 1, 4);
}

void validate(const Op& op) {
  std::visit([](const auto& o) { check(o); }, op);
}

Shape conv_output_shape(const Conv2d& conv) {
  const Extent image = conv_output_extent(conv);
  return {conv.input[0], conv.weights[0], image.h, image.w};
}

Shape output_shape(const Op& op) {
  return std::visit([](const auto& o) { return output_of(o); }, op);
}

Work work(const Op& op) {
  return std::visit([](const auto& o) { return work_of(o); }, op);
}

std::int64_t terms(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) return conv->weights[1] * conv->weights[2] * conv->weights[3];
  if (const auto* matmul = std::get_if<Matmul>(&op)) return matmul->k;
  return 1;
}

DType dtype_of(const Op& op) {
  return std::visit([](const auto& o) { return o.dtype; }, op);
}

}  // namespace gable
