// Registers of a thread: 9 weights, the accumulators of two (stride 2) or three (stride 1) output rows and two rows of
// input, all times `columns` and `lanes`. One input row is loaded while the other one is multiplied.
#include "cuda/depthwise/depthwise.h"

#include <algorithm>
#include <stdexcept>

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/vector_access.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 128;

struct DepthwiseStrips {
  const void* x;
  const float* packed;
  const float* bias;
  void* y;
  std::int64_t threads;  // of work, over (image, strip, column group, vector), or (image, vector, strip, column group)
  int c, h, w, ho, wo, pad_top, pad_left;
  int vectors, column_groups, strips, rows;  // rows of the output a strip
  bool nhwc;
  Activation activation;
};

using DepthwiseKernel = void (*)(DepthwiseStrips);

template <typename T, int lanes>
struct Lanes {
  using Access = typename AccessOf<lanes* static_cast<int>(sizeof(T))>::Type;
  static constexpr int kAccesses = lanes * static_cast<int>(sizeof(T)) / static_cast<int>(sizeof(Access));
  union {
    Access accesses[kAccesses];
    T elements[lanes];
  };

  __device__ __forceinline__ Lanes() {}
  __device__ __forceinline__ void load(const T* from) {
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) accesses[i] = __ldg(reinterpret_cast<const Access*>(from) + i);
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) accesses[i] = Access{};
  }
  __device__ __forceinline__ float operator[](int i) const { return to_f32(elements[i]); }
};

/// The strip that a thread works on.
struct Strip {
  std::int64_t image;
  int vector, column, row, rows;
};

__device__ __forceinline__ Strip strip_of(const DepthwiseStrips& d, std::int64_t index, int columns) {
  Strip s;
  int strip;
  if (d.nhwc) {
    s.vector = static_cast<int>(index % d.vectors), index /= d.vectors;
    s.column = static_cast<int>(index % d.column_groups) * columns, index /= d.column_groups;
    strip = static_cast<int>(index % d.strips), index /= d.strips;
  } else {
    s.column = static_cast<int>(index % d.column_groups) * columns, index /= d.column_groups;
    strip = static_cast<int>(index % d.strips), index /= d.strips;
    s.vector = static_cast<int>(index % d.vectors), index /= d.vectors;
  }
  s.image = index;
  s.row = strip * d.rows;
  s.rows = min(d.rows, d.ho - s.row);
  return s;
}

template <typename T, int lanes, int columns, int stride>
__global__ __launch_bounds__(kThreads) void depthwise_kernel(const DepthwiseStrips d) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= d.threads) return;
  constexpr int window = (columns - 1) * stride + 3;
  const Strip s = strip_of(d, index, columns);
  const int channel = s.vector * lanes;
  const int pixel = d.nhwc ? d.c : 1;
  const T* const x = static_cast<const T*>(d.x) +
                     (d.nhwc ? s.image * d.h * d.w * d.c + channel : (s.image * d.c + channel) * d.h * d.w);
  T* const y =
      static_cast<T*>(d.y) + (d.nhwc ? s.image * d.ho * d.wo * d.c + channel : (s.image * d.c + channel) * d.ho * d.wo);

  float weights[9][lanes];
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) load_vector<float, lanes>(d.packed + tap * d.c + channel, weights[tap]);
  float bias[lanes] = {};
  if (d.bias != nullptr) {
#pragma unroll
    for (int i = 0; i < lanes; ++i) bias[i] = __ldg(d.bias + channel + i);
  }

  const int first_column = s.column * stride - d.pad_left;
  using Row = Lanes<T, lanes>[window];
  const auto load = [&](int at, Row& row) {
    const int in_row = s.row * stride - d.pad_top + at;
    const bool inside = in_row >= 0 && in_row < d.h;
#pragma unroll
    for (int i = 0; i < window; ++i) {
      const int column = first_column + i;
      if (inside && column >= 0 && column < d.w) {
        row[i].load(x + (static_cast<std::int64_t>(in_row) * d.w + column) * pixel);
      } else {
        row[i].clear();
      }
    }
  };
  using RowSums = float[columns][lanes];
  const auto add = [&](RowSums& sums, const Row& row, int kh) {
#pragma unroll
    for (int i = 0; i < columns; ++i)
#pragma unroll
      for (int kw = 0; kw < 3; ++kw)
#pragma unroll
        for (int k = 0; k < lanes; ++k) sums[i][k] = fmaf(row[i * stride + kw][k], weights[kh * 3 + kw][k], sums[i][k]);
  };
  const auto start = [&](RowSums& sums) {
#pragma unroll
    for (int i = 0; i < columns; ++i)
#pragma unroll
      for (int k = 0; k < lanes; ++k) sums[i][k] = 0.0f;
  };
  const auto move = [&](RowSums& to, const RowSums& from) {
#pragma unroll
    for (int i = 0; i < columns; ++i)
#pragma unroll
      for (int k = 0; k < lanes; ++k) to[i][k] = from[i][k];
  };
  const bool whole_columns = lanes == 1 && !d.nhwc && columns % 4 == 0 && d.wo % columns == 0;
  const auto store = [&](RowSums& sums, int row) {
#pragma unroll
    for (int i = 0; i < columns; ++i)
#pragma unroll
      for (int k = 0; k < lanes; ++k) sums[i][k] = activate(sums[i][k] + bias[k], d.activation);
    T* to = y + (static_cast<std::int64_t>(s.row + row) * d.wo + s.column) * pixel;
    if (whole_columns) {
      float run[columns];
#pragma unroll
      for (int i = 0; i < columns; ++i) run[i] = sums[i][0];
      store_vector<T, columns>(to, run);
      return;
    }
#pragma unroll
    for (int i = 0; i < columns; ++i)
      if (s.column + i < d.wo) store_vector<T, lanes>(to + static_cast<std::int64_t>(i) * pixel, sums[i]);
  };

  if constexpr (stride == 1) {
    RowSums done, middle, fresh;
    start(done);
    start(middle);
    Row row, next;
    load(0, row);
    const int in_rows = s.rows + 2;
#pragma unroll 3
    for (int at = 0; at < in_rows; ++at) {
      if (at + 1 < in_rows) load(at + 1, next);
      start(fresh);
      add(done, row, 2);
      add(middle, row, 1);
      add(fresh, row, 0);
      if (at >= 2) store(done, at - 2);
      move(done, middle);
      move(middle, fresh);
#pragma unroll
      for (int i = 0; i < window; ++i) row[i] = next[i];
    }
  } else {
    RowSums sums, fresh;
    Row row, middle, next_middle;
    start(sums);
    load(0, row);
    add(sums, row, 0);
    load(1, middle);
    load(2, row);
#pragma unroll 2
    for (int at = 0; at < s.rows; ++at) {
      Row next;
      if (at + 1 < s.rows) {
        load(2 * at + 3, next_middle);
        load(2 * at + 4, next);
      }
      start(fresh);
      add(sums, middle, 1);
      add(sums, row, 2);
      add(fresh, row, 0);
      store(sums, at);
      move(sums, fresh);
#pragma unroll
      for (int i = 0; i < window; ++i) row[i] = next[i], middle[i] = next_middle[i];
    }
  }
}

template <typename T>
__global__ void pack_depthwise(const T* weights, WeightStrides strides, float* packed, int channels) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 9 * channels)
    packed[i] = to_f32(
        weights[i % channels * strides.out + i / channels / 3 * strides.row + i / channels % 3 * strides.column]);
}

template <typename T, int lanes, int columns>
DepthwiseKernel kernel_of_stride(const Conv2dProblem& p) {
  return p.stride_w == 1 ? depthwise_kernel<T, lanes, columns, 1> : depthwise_kernel<T, lanes, columns, 2>;
}

constexpr int kVector = 4;
constexpr int kNhwcColumns = 2;
constexpr int kNchwColumns = 4;

template <typename T>
DepthwiseKernel kernel_of_lanes(const Conv2dProblem& p, int lanes) {
  return lanes == kVector ? kernel_of_stride<T, kVector, kNhwcColumns>(p) : kernel_of_stride<T, 1, kNchwColumns>(p);
}

class DepthwisePlan final : public Conv2dPlan {
 public:
  DepthwisePlan(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const override;
  Packing packing() const override { return packing_of(problem_, "depthwise", {}); }
  std::size_t packed_bytes() const override;
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  Conv2dProblem problem_;
  DepthwiseStrips strips_;
  DepthwiseKernel kernel_;
  int lanes_, columns_;
};

DepthwisePlan::DepthwisePlan(const Conv2dProblem& p, const cudaDeviceProp& device) : problem_(p), strips_{} {
  lanes_ = p.nhwc && p.c % kVector == 0 ? kVector : 1;
  columns_ = lanes_ == 1 ? kNchwColumns : kNhwcColumns;
  kernel_ = p.dtype == DType::f32   ? kernel_of_lanes<float>(p, lanes_)
            : p.dtype == DType::f16 ? kernel_of_lanes<__half>(p, lanes_)
                                    : kernel_of_lanes<__nv_bfloat16>(p, lanes_);
  DepthwiseStrips& d = strips_;
  d.c = static_cast<int>(p.c), d.h = static_cast<int>(p.h), d.w = static_cast<int>(p.w);
  d.ho = static_cast<int>(p.ho), d.wo = static_cast<int>(p.wo);
  d.pad_top = static_cast<int>(p.pad_top), d.pad_left = static_cast<int>(p.pad_left);
  d.nhwc = p.nhwc;
  d.activation = p.activation;
  d.vectors = d.c / lanes_;
  d.column_groups = (d.wo + columns_ - 1) / columns_;
  // Strips as long as they leave a thousand threads for each multiprocessor: each begins with two rows of its
  // neighbour.
  const std::int64_t columns = p.n * d.vectors * d.column_groups;
  const std::int64_t wanted = 1024 * static_cast<std::int64_t>(device.multiProcessorCount);
  const std::int64_t strips = std::clamp<std::int64_t>((wanted + columns - 1) / columns, 1, (p.ho + 3) / 4);
  d.rows = static_cast<int>((p.ho + strips - 1) / strips);
  d.strips = (d.ho + d.rows - 1) / d.rows;
  d.threads = columns * d.strips;
}

Conv2dDescription DepthwisePlan::description() const {
  return {.kernel = "depthwise",
          .tile = std::to_string(lanes_) + (lanes_ == 1 ? " channel x " : " channels x ") + std::to_string(columns_) +
                  " columns a thread, strips of " + std::to_string(strips_.rows) + " rows",
          .staging = "input rows through registers, once for all outputs of the strip",
          .fusion = "bias and activation in registers"};
}

std::size_t DepthwisePlan::packed_bytes() const { return static_cast<std::size_t>(9 * problem_.c) * sizeof(float); }

void DepthwisePlan::pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const {
  constexpr int threads = 256;
  const int channels = strips_.c;
  const auto blocks = static_cast<unsigned>(ceil_div(9 * channels, threads));
  with_type(problem_.dtype, [&](auto zero) {
    pack_depthwise<<<blocks, threads, 0, stream>>>(static_cast<const decltype(zero)*>(weights), strides,
                                                   static_cast<float*>(packed), channels);
  });
  check_launch("pack_depthwise");
}

void DepthwisePlan::run(const void* x, const void* packed, const float* bias, void* y, void*,
                        cudaStream_t stream) const {
  DepthwiseStrips d = strips_;
  d.x = x, d.packed = static_cast<const float*>(packed), d.bias = bias, d.y = y;
  kernel_<<<static_cast<unsigned>((d.threads + kThreads - 1) / kThreads), kThreads, 0, stream>>>(d);
  check_launch("depthwise");
  if (lanes_ == kVector) {
    note_path(problem_.stride_w == 1 ? Path::depthwise_vectors_stride1 : Path::depthwise_vectors_stride2);
  } else {
    note_path(problem_.stride_w == 1 ? Path::depthwise_columns_stride1 : Path::depthwise_columns_stride2);
  }
}

}  // namespace

std::string Depthwise::refusal(const Conv2dProblem& p, const cudaDeviceProp&) {
  if (p.groups == 1 || p.c != p.groups || p.k != p.groups) {
    return std::to_string(p.groups) + (p.groups == 1 ? " group of " : " groups of ") + std::to_string(p.c / p.groups) +
           " input and " + std::to_string(p.k / p.groups) + " output channels; it takes several groups of one each";
  }
  if (p.r != 3 || p.s != 3) {
    return "kernel " + std::to_string(p.r) + "x" + std::to_string(p.s) + "; it takes 3x3";
  }
  if (p.dilation_h != 1 || p.dilation_w != 1) {
    return "dilation " + std::to_string(p.dilation_h) + "x" + std::to_string(p.dilation_w) + "; it takes 1x1";
  }
  if (p.stride_h != p.stride_w || p.stride_h > 2) {
    return "stride " + std::to_string(p.stride_h) + "x" + std::to_string(p.stride_w) + "; it takes 1x1 and 2x2";
  }
  if (!p.pool.none()) return "a max-pool; it fuses none";
  const std::int64_t most = 0x7fffffff / 9;
  if (std::max({p.c, p.h, p.w}) > most) return "a dimension of more than " + std::to_string(most);
  return "";
}

std::unique_ptr<Conv2dPlan> Depthwise::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<DepthwisePlan>(problem, device);
}

}  // namespace gable::cuda
