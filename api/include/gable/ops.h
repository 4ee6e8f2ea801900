// Descriptions of the operations: plain structs for designated initialisers, no behaviour but their own arithmetic.
#pragma once

#include <gable/dtype.h>
#include <gable/export.h>
#include <gable/function.h>
#include <gable/interpolation.h>
#include <gable/shape.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace gable {

/// What follows the convolution, applied as max_pool(activation(conv + bias)).
struct Epilogue {
  bool bias = false;  ///< one f32 a channel of the output, whatever the dtype
  Activation activation = Activation::none;
  PoolWindow max_pool{};  ///< {0, 0}: none
  bool operator==(const Epilogue&) const = default;
};

/// y[n,k,p,q] = epilogue( sum over c,r,s of x[n, c, p*stride.h - padding.top + r*dilation.h, ...] * w[k,c,r,s] ),
/// a cross-correlation as in every deep-learning library. dilation 1 means adjacent taps.
struct Conv2d {
  Shape input{};    ///< (N, C, H, W)
  Shape weights{};  ///< (K, C / groups, R, S), row-major
  Extent stride{1, 1};
  Padding padding{};             ///< zeros
  Extent dilation{1, 1};         ///< distance of taps
  std::int64_t groups = 1;       ///< divides C and K
  DType dtype = DType::f32;      ///< of x, weights and y
  Layout layout = Layout::nchw;  ///< of x and y
  Math math = Math::strict;
  Epilogue epilogue{};

  bool operator==(const Conv2d&) const = default;
};

/// c[m,n] = activation( sum over k of a[m,k] * b[k,n] + bias[n] ), all row-major; b is packed like weights.
struct Matmul {
  std::int64_t m = 1, n = 1, k = 1;
  DType dtype = DType::f32;  ///< of a, b and c
  Math math = Math::strict;
  bool bias = false;  ///< n values of f32
  Activation activation = Activation::none;
  bool operator==(const Matmul&) const = default;
};

/// Maximum over each window; padding counts as minus infinity, incomplete windows are dropped.
struct MaxPool {
  Shape input{};  ///< (N, C, H, W)
  Extent window{2, 2};
  Extent stride{2, 2};
  Padding padding{};
  DType dtype = DType::f32;
  Layout layout = Layout::nchw;
  bool operator==(const MaxPool&) const = default;
};

/// A tile of row_chunk x free_dim neighbouring elements, as an accelerator with 128 partitions cuts a vector: row_chunk
/// elements (the lanes in use) are computed at once, in free_dim consecutive steps.
struct Tile {
  std::int64_t row_chunk = 0;                                                 ///< 1 ... 128
  std::int64_t free_dim = 0;                                                  ///< at least 1
  explicit operator bool() const { return row_chunk != 0 || free_dim != 0; }  ///< a tile was given
  bool operator==(const Tile&) const = default;
};

/// c = activation(a + b), element by element: with relu, the end of a residual block. `tile` is for studying the cost
/// of a tile shape; without it the device chooses.
struct Add {
  Shape shape{};
  DType dtype = DType::f32;
  Layout layout = Layout::nchw;
  Tile tile{};
  Activation activation = Activation::none;  ///< none or relu
  bool operator==(const Add&) const = default;
};

/// y[j,i] = x[i,j].
struct Transpose {
  std::int64_t rows = 1, columns = 1;  ///< of x
  DType dtype = DType::f32;
  bool operator==(const Transpose&) const = default;
};

/// The same (N, C, H, W) tensor in another memory order.
struct Reorder {
  Shape shape{};
  Layout from = Layout::nchw;
  Layout to = Layout::nhwc;
  DType dtype = DType::f32;
  bool operator==(const Reorder&) const = default;
};

/// y = function(x), element by element: what no kernel fuses. y may be x.
struct Activate {
  Shape shape{};
  Function function = Function::relu;
  DType dtype = DType::f32;
  Layout layout = Layout::nchw;
  float slope = 0.01f;  ///< of leaky_relu alone; the default is PyTorch's
  bool operator==(const Activate&) const = default;
};

/// The channels of a, then those of b: (N, C of a + C of b, H, W). Both have the same N, H and W.
struct Concat {
  Shape a{}, b{};  ///< (N, C, H, W)
  DType dtype = DType::f32;
  Layout layout = Layout::nchw;  ///< of all three tensors
  bool operator==(const Concat&) const = default;
};

/// Each pixel becomes scale.h x scale.w: equal ones, y[n,c,h,w] = x[n, c, h / scale.h, w / scale.w], which other
/// libraries call nearest, or interpolated ones.
struct Upsample {
  Shape input{};  ///< (N, C, H, W)
  Extent scale{2, 2};
  DType dtype = DType::f32;
  Layout layout = Layout::nchw;
  Interpolation interpolation = Interpolation::nearest;
  bool operator==(const Upsample&) const = default;
};

/// y = a * b, element by element: a gate, or with b of (N, C, 1, 1) a factor for each channel of each image of a, as
/// squeeze-and-excitation has them. y may be a, or b where that has a's shape.
struct Multiply {
  Shape a{};  ///< (N, C, H, W), and of y
  Shape b{};  ///< a's, or (N, C, 1, 1)
  DType dtype = DType::f32;
  Layout layout = Layout::nchw;  ///< of all three tensors
  bool operator==(const Multiply&) const = default;
};

/// y = exp(x) / sum of exp(x) along one dimension, which so sums to 1: of classes in a row, of channels in a pixel. y
/// may be x.
struct Softmax {
  Shape shape{};
  int axis = -1;  ///< of shape; -1 is the last, -2 the one before, as in Python
  DType dtype = DType::f32;
  Layout layout = Layout::nchw;
  bool operator==(const Softmax&) const = default;
};

using Op =
    std::variant<Conv2d, Matmul, MaxPool, Add, Transpose, Reorder, Activate, Concat, Upsample, Multiply, Softmax>;

/// Work of an op from its shapes. FLOP: a multiply and an add are 2; taps in the padding count, as is usual:
/// 2*N*K*Ho*Wo*(C/groups)*R*S. Bytes: each tensor once, the least that any implementation can move.
struct Work {
  double flop = 0;
  double bytes_read = 0;                                       ///< inputs, weights and bias
  double bytes_written = 0;                                    ///< the (pooled) output
  double bytes() const { return bytes_read + bytes_written; }  ///< Q, the least possible
};

/// "conv2d", "matmul", "max_pool", "add", "transpose", "reorder", "activate", "concat", "upsample",
/// "multiply", "softmax".
GABLE_API std::string_view name(const Op& op);
/// One line with every attribute that is not at its default.
GABLE_API std::string describe(const Op& op);

/// Throws Error(invalid_argument) naming the first attribute that is wrong and what would be right. Shapes of more than
/// 2^40 elements a tensor, or a dimension above 2^31 - 1, are refused.
GABLE_API void validate(const Op& op);

/// Shapes below are of validated ops.
GABLE_API Shape conv_output_shape(const Conv2d& conv);  ///< (N, K, Ho, Wo) before the fused pool
GABLE_API Shape output_shape(const Op& op);             ///< (N, K, Ho, Wo) after the fused pool; of a matmul (m, n)
GABLE_API Work work(const Op& op);
/// Products summed into one output element: (C/groups)*R*S, or k; 1 for ops without sums.
GABLE_API std::int64_t terms(const Op& op);
GABLE_API DType dtype_of(const Op& op);  ///< of the op's tensors, except the bias

}  // namespace gable
