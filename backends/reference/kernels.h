// The oracle's arithmetic: every op in f64, written to be read. A convolution gathers the input patch of each output
// pixel into one row of doubles, so that an output is a dot product of that row with a row of weights.
//
// Results go to a callable store(index in the output's memory order, exact value, magnitude), where magnitude is the
// sum of |x||w| (plus |bias|) that error bounds are relative to.
#pragma once

#include <gable/error.h>
#include <gable/ops.h>

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace gable::reference {

inline double load(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::f16:
      return float_from_f16(static_cast<const std::uint16_t*>(data)[i]);
    case DType::bf16:
      return float_from_bf16(static_cast<const std::uint16_t*>(data)[i]);
    case DType::f32:
      break;
  }
  return static_cast<const float*>(data)[i];
}

/// Position of (n, c, h, w) in a tensor of `shape`.
inline std::int64_t offset(const Shape& shape, Layout layout, std::int64_t n, std::int64_t c, std::int64_t h,
                           std::int64_t w) {
  return layout == Layout::nchw ? ((n * shape[1] + c) * shape[2] + h) * shape[3] + w
                                : ((n * shape[2] + h) * shape[3] + w) * shape[1] + c;
}

inline double activate(double value, Activation activation) {
  switch (activation) {
    case Activation::relu:
      return value < 0 ? 0.0 : value;  // a NaN stays one
    case Activation::tanh:
      return std::tanh(value);
    case Activation::none:
      break;
  }
  return value;
}

inline double clamp(double value, double low, double high) { return value < low ? low : value > high ? high : value; }

inline double apply(double x, const Activate& op) {
  switch (op.function) {
    case Function::relu:
      return activate(x, Activation::relu);
    case Function::relu6:
      return clamp(x, 0, 6);
    case Function::tanh:
      return std::tanh(x);
    case Function::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Function::hard_sigmoid:
      return clamp(x + 3, 0, 6) / 6;
    case Function::silu:
      return x / (1 + std::exp(-x));
    case Function::hard_swish:
      return x * clamp(x + 3, 0, 6) / 6;
    case Function::leaky_relu:
      return x < 0 ? static_cast<double>(op.slope) * x : x;
    case Function::gelu:
      break;
  }
  return x * std::erfc(-x / std::sqrt(2.0)) / 2;  // erfc keeps the digits of a negative x's tail
}

/// The maximum in which a NaN wins.
inline double propagating_max(double a, double b) { return std::isnan(a) || a > b ? a : b; }

struct Sum {
  double value = 0;
  double magnitude = 0;
};

Sum dot(const double* a, const double* b, std::int64_t count);

/// Weights as doubles: (K, C/groups * R * S) for a convolution, (n, k) for a matmul.
void widen_weights(const Op& op, const void* weights, double* rows);

/// Pixels (or matrix rows) whose gathered inputs are held at once: each weight row then serves several from the cache.
inline constexpr std::int64_t kBlock = 8;

/// Doubles of scratch that one thread needs.
inline std::int64_t scratch_elements(const Op& op) {
  const std::int64_t outputs =
      std::holds_alternative<Conv2d>(op) ? std::get<Conv2d>(op).weights[0] / std::get<Conv2d>(op).groups : 0;
  return kBlock * (terms(op) + 2 * outputs);
}

/// What conv2d() and matmul() read. `rows` are widen_weights()'s; `bias` is null without one.
struct Operands {
  const void* x;
  const double* rows;
  const float* bias;
};

/// The threads of a run. `scratch` holds scratch_elements() doubles for each.
struct Workers {
  int threads;
  double* scratch;
};

/// A row of a group's output; p counts rows of the (pooled) output.
struct OutputRow {
  std::int64_t n, group, p;
};

/// The input patch of pixel (row.p, q) of the convolution, before a pool: zeros where a tap falls into the padding.
inline void gather(const Conv2d& conv, const void* x, const OutputRow& row, std::int64_t q, double* patch) {
  const std::int64_t channels = conv.weights[1];
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t r = 0; r < conv.weights[2]; ++r) {
      const std::int64_t h = row.p * conv.stride.h - conv.padding.top + r * conv.dilation.h;
      for (std::int64_t s = 0; s < conv.weights[3]; ++s) {
        const std::int64_t w = q * conv.stride.w - conv.padding.left + s * conv.dilation.w;
        const bool inside = h >= 0 && h < conv.input[2] && w >= 0 && w < conv.input[3];
        *patch++ =
            inside ? load(x, conv.dtype, offset(conv.input, conv.layout, row.n, row.group * channels + c, h, w)) : 0.0;
      }
    }
  }
}

/// One row of outputs of one group: for each pooled pixel, the maximum over its window of activation(conv + bias).
template <typename Store>
void conv2d_row(const Conv2d& conv, const Operands& operands, const OutputRow& row, double* scratch,
                const Store& store) {
  const Shape output = output_shape(conv);
  const std::int64_t count = terms(conv);
  const std::int64_t channels = conv.weights[0] / conv.groups;
  const PoolWindow one(1, 1);
  const PoolWindow& pool = conv.epilogue.max_pool ? conv.epilogue.max_pool : one;
  double* best = scratch + kBlock * count;
  double* magnitude = best + kBlock * channels;
  for (std::int64_t q0 = 0; q0 < output[3]; q0 += kBlock) {
    const std::int64_t pixels = std::min(kBlock, output[3] - q0);
    std::fill_n(best, pixels * channels, -std::numeric_limits<double>::infinity());
    std::fill_n(magnitude, pixels * channels, 0.0);
    for (std::int64_t tap = 0; tap < pool.window.h * pool.window.w; ++tap) {
      for (std::int64_t i = 0; i < pixels; ++i) {
        gather(conv, operands.x, {row.n, row.group, row.p * pool.stride.h + tap / pool.window.w},
               (q0 + i) * pool.stride.w + tap % pool.window.w, scratch + i * count);
      }
      for (std::int64_t k = 0; k < channels; ++k) {
        const std::int64_t channel = row.group * channels + k;
        const double shift = conv.epilogue.bias ? static_cast<double>(operands.bias[channel]) : 0.0;
        for (std::int64_t i = 0; i < pixels; ++i) {
          const Sum sum = dot(scratch + i * count, operands.rows + channel * count, count);
          double& b = best[i * channels + k];
          double& m = magnitude[i * channels + k];
          b = propagating_max(activate(sum.value + shift, conv.epilogue.activation), b);
          m = std::max(m, sum.magnitude + std::abs(shift));
        }
      }
    }
    for (std::int64_t i = 0; i < pixels * channels; ++i) {
      store(offset(output, conv.layout, row.n, row.group * channels + i % channels, row.p, q0 + i / channels), best[i],
            magnitude[i]);
    }
  }
}

/// Calls work(job, thread) for every job. One thread enters no parallel region: OpenMP's runtime would allocate a team
/// for each.
template <typename Work>
void spread(int threads, std::int64_t jobs, const Work& work) {
  if (threads <= 1) {
    for (std::int64_t job = 0; job < jobs; ++job) work(job, 0);
    return;
  }
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::int64_t job = 0; job < jobs; ++job) work(job, omp_get_thread_num());
}

template <typename Store>
void conv2d(const Conv2d& conv, const Operands& operands, const Workers& workers, const Store& store) {
  const Shape output = output_shape(conv);
  const std::int64_t per_thread = scratch_elements(conv);
  const std::int64_t jobs = output[0] * conv.groups * output[2];
  spread(workers.threads, jobs, [&](std::int64_t job, int thread) {
    const OutputRow row{job / (conv.groups * output[2]), job / output[2] % conv.groups, job % output[2]};
    conv2d_row(conv, operands, row, workers.scratch + thread * per_thread, store);
  });
}

template <typename Store>
void matmul(const Matmul& op, const Operands& operands, const Workers& workers, const Store& store) {
  const std::int64_t per_thread = scratch_elements(op);
  spread(workers.threads, (op.m + kBlock - 1) / kBlock, [&](std::int64_t job, int thread) {
    const std::int64_t m0 = job * kBlock;
    double* block = workers.scratch + thread * per_thread;
    const std::int64_t count = std::min(kBlock, op.m - m0);
    for (std::int64_t i = 0; i < count * op.k; ++i) block[i] = load(operands.x, op.dtype, m0 * op.k + i);
    for (std::int64_t n = 0; n < op.n; ++n) {
      const double shift = op.bias ? static_cast<double>(operands.bias[n]) : 0.0;
      for (std::int64_t i = 0; i < count; ++i) {
        const Sum sum = dot(block + i * op.k, operands.rows + n * op.k, op.k);
        store((m0 + i) * op.n + n, activate(sum.value + shift, op.activation), sum.magnitude + std::abs(shift));
      }
    }
  });
}

template <typename Store>
void max_pool(const MaxPool& pool, const void* x, const Store& store) {
  const Shape output = output_shape(pool);
  for (std::int64_t i = 0; i < output.elements(); ++i) {
    const std::int64_t q = i % output[3];
    const std::int64_t p = i / output[3] % output[2];
    const std::int64_t c = i / (output[3] * output[2]) % output[1];
    const std::int64_t n = i / (output[3] * output[2] * output[1]);
    double best = -std::numeric_limits<double>::infinity();
    for (std::int64_t r = 0; r < pool.window.h; ++r) {
      const std::int64_t h = p * pool.stride.h - pool.padding.top + r;
      for (std::int64_t s = 0; s < pool.window.w; ++s) {
        const std::int64_t w = q * pool.stride.w - pool.padding.left + s;
        if (h < 0 || h >= pool.input[2] || w < 0 || w >= pool.input[3]) continue;
        best = propagating_max(load(x, pool.dtype, offset(pool.input, pool.layout, n, c, h, w)), best);
      }
    }
    store(offset(output, pool.layout, n, c, p, q), best, 0.0);
  }
}

template <typename Store>
void add(const Add& op, const void* a, const void* b, const Store& store) {
  for (std::int64_t i = 0; i < op.shape.elements(); ++i) {
    const double left = load(a, op.dtype, i);
    const double right = load(b, op.dtype, i);
    store(i, activate(left + right, op.activation), std::abs(left) + std::abs(right));
  }
}

template <typename Store>
void transpose(const Transpose& op, const void* x, const Store& store) {
  for (std::int64_t i = 0; i < op.rows * op.columns; ++i) {
    store(i % op.columns * op.rows + i / op.columns, load(x, op.dtype, i), 0.0);
  }
}

template <typename Store>
void reorder(const Reorder& op, const void* x, const Store& store) {
  const Shape& s = op.shape;
  for (std::int64_t i = 0; i < s.elements(); ++i) {
    const std::int64_t w = i % s[3];
    const std::int64_t h = i / s[3] % s[2];
    const std::int64_t c = i / (s[3] * s[2]) % s[1];
    const std::int64_t n = i / (s[3] * s[2] * s[1]);
    store(offset(s, op.to, n, c, h, w), load(x, op.dtype, offset(s, op.from, n, c, h, w)), 0.0);
  }
}

template <typename Store>
void activate(const Activate& op, const void* x, const Store& store) {
  for (std::int64_t i = 0; i < op.shape.elements(); ++i) {
    const double value = load(x, op.dtype, i);
    const double exact = apply(value, op);
    const bool may_grow = op.function == Function::leaky_relu;
    store(i, exact, may_grow ? std::max(std::abs(value), std::abs(exact)) : std::abs(value));
  }
}

/// Calls visit(n, c, h, w) for each element of a tensor.
template <typename Visit>
void for_each_element(const Shape& shape, const Visit& visit) {
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      for (std::int64_t h = 0; h < shape[2]; ++h) {
        for (std::int64_t w = 0; w < shape[3]; ++w) visit(n, c, h, w);
      }
    }
  }
}

template <typename Store>
void concat(const Concat& op, const void* a, const void* b, const Store& store) {
  const Shape output = output_shape(op);
  for_each_element(output, [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    const bool first = c < op.a[1];
    const std::int64_t at = first ? offset(op.a, op.layout, n, c, h, w) : offset(op.b, op.layout, n, c - op.a[1], h, w);
    store(offset(output, op.layout, n, c, h, w), load(first ? a : b, op.dtype, at), 0.0);
  });
}

/// Where pixel `at` of a row of output lies: behind pixel `first` of the input by a part of a pixel, exactly 0 on it.
struct Place {
  std::int64_t first;
  double behind;
};
inline Place place_of(std::int64_t at, std::int64_t size, std::int64_t scale, Interpolation interpolation) {
  const bool corners = interpolation == Interpolation::bilinear_align_corners;
  const std::int64_t parts = corners ? std::max<std::int64_t>(1, size * scale - 1) : 2 * scale;
  const std::int64_t place =
      corners ? at * (size - 1) : std::clamp<std::int64_t>(2 * at + 1 - scale, 0, (size - 1) * parts);
  return {place / parts, static_cast<double>(place % parts) / static_cast<double>(parts)};
}

template <typename Store>
void interpolate(const Upsample& op, const void* x, const Store& store) {
  const Shape output = output_shape(op);
  for_each_element(output, [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    const Place row = place_of(h, op.input[2], op.scale.h, op.interpolation);
    const Place column = place_of(w, op.input[3], op.scale.w, op.interpolation);
    double value = 0, magnitude = 0;
    for (const std::int64_t i : {std::int64_t{0}, std::int64_t{1}}) {
      for (const std::int64_t j : {std::int64_t{0}, std::int64_t{1}}) {
        const double share = (i == 1 ? row.behind : 1 - row.behind) * (j == 1 ? column.behind : 1 - column.behind);
        if (share == 0) continue;
        const std::int64_t from = offset(op.input, op.layout, n, c, row.first + i, column.first + j);
        const double part = share * load(x, op.dtype, from);
        value += part;
        magnitude += std::abs(part);
      }
    }
    store(offset(output, op.layout, n, c, h, w), value, magnitude);
  });
}

template <typename Store>
void upsample(const Upsample& op, const void* x, const Store& store) {
  if (op.interpolation != Interpolation::nearest) return interpolate(op, x, store);
  const Shape output = output_shape(op);
  for_each_element(output, [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    const std::int64_t at = offset(op.input, op.layout, n, c, h / op.scale.h, w / op.scale.w);
    store(offset(output, op.layout, n, c, h, w), load(x, op.dtype, at), 0.0);
  });
}

template <typename Store>
void multiply(const Multiply& op, const void* a, const void* b, const Store& store) {
  const auto product = [&](std::int64_t i, std::int64_t factor) {
    const double value = load(a, op.dtype, i) * load(b, op.dtype, factor);
    store(i, value, std::abs(value));
  };
  if (op.a == op.b) {
    for (std::int64_t i = 0; i < op.a.elements(); ++i) product(i, i);
    return;
  }
  for_each_element(op.a, [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    product(offset(op.a, op.layout, n, c, h, w), offset(op.b, op.layout, n, c, 0, 0));
  });
}

/// Of `count` elements that lie `step` apart. An error of x's rounding grows with the distance from the maximum.
template <typename Store>
void softmax_vector(DType dtype, const void* x, std::int64_t first, std::int64_t count, std::int64_t step,
                    const Store& store) {
  double greatest = load(x, dtype, first), sum = 0;
  for (std::int64_t i = 1; i < count; ++i) greatest = propagating_max(load(x, dtype, first + i * step), greatest);
  for (std::int64_t i = 0; i < count; ++i) sum += std::exp(load(x, dtype, first + i * step) - greatest);
  // In place: an element is stored when it was read for the last time.
  for (std::int64_t i = 0; i < count; ++i) {
    const double below = load(x, dtype, first + i * step) - greatest, exact = std::exp(below) / sum;
    store(first + i * step, exact, std::isinf(below) ? exact : exact * (1 - below));
  }
}

template <typename Store>
void softmax(const Softmax& op, const void* x, const Store& store) {
  Shape ends = op.shape;
  const std::size_t axis =
      static_cast<std::size_t>(op.axis < 0 ? op.axis + static_cast<int>(op.shape.rank()) : op.axis);
  if (op.shape.rank() == 4) {
    ends[axis] = 1;
    const std::int64_t step = offset(op.shape, op.layout, axis == 0, axis == 1, axis == 2, axis == 3);
    for_each_element(ends, [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
      softmax_vector(op.dtype, x, offset(op.shape, op.layout, n, c, h, w), op.shape[axis], step, store);
    });
    return;
  }
  std::int64_t rows = 1, columns = 1;
  for (std::size_t i = 0; i < op.shape.rank(); ++i) (i < axis ? rows : columns) *= i == axis ? 1 : op.shape[i];
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    softmax_vector(op.dtype, x, i / columns * op.shape[axis] * columns + i % columns, op.shape[axis], columns, store);
  }
}

/// An op without weights. `b` is null for ops with one input.
template <typename Store>
void unweighted(const Op& op, const void* a, const void* b, const Store& store) {
  if (const auto* pool = std::get_if<MaxPool>(&op)) return max_pool(*pool, a, store);
  if (const auto* sum = std::get_if<Add>(&op)) return add(*sum, a, b, store);
  if (const auto* turned = std::get_if<Transpose>(&op)) return transpose(*turned, a, store);
  if (const auto* reordered = std::get_if<Reorder>(&op)) return reorder(*reordered, a, store);
  if (const auto* activated = std::get_if<Activate>(&op)) return activate(*activated, a, store);
  if (const auto* both = std::get_if<Concat>(&op)) return concat(*both, a, b, store);
  if (const auto* product = std::get_if<Multiply>(&op)) return multiply(*product, a, b, store);
  if (const auto* exponents = std::get_if<Softmax>(&op)) return softmax(*exponents, a, store);
  upsample(std::get<Upsample>(op), a, store);
}

}  // namespace gable::reference
