// A thread makes one vector of outputs from a window in registers: 16 bytes of channels (nhwc), or neighbouring columns
// (nchw, 2x2 with stride 2, and 3x3); one element where no vector divides the rows or the addresses. Windows that
// overlap find their shared inputs in the L1 cache.
#include "cuda/ops/pool.h"

#include <algorithm>

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/vector_access.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;

/// The rows or columns of a window that lie inside the input.
struct Range {
  int begin, end;
};

__device__ __forceinline__ Range window_range(int first, std::int64_t window, std::int64_t size) {
  return {max(first, 0), static_cast<int>(min(static_cast<std::int64_t>(first) + window, size))};
}

/// `lanes` channels of one output pixel (nhwc), or one element (nchw, as images of one channel).
template <typename T, int lanes>
__global__ __launch_bounds__(kThreads) void max_pool_pixels_kernel(MaxPoolProblem p, const T* x, T* y,
                                                                   std::int64_t threads) {
  std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= threads) return;
  T* const to = y + index * lanes;
  const auto vectors = static_cast<int>(p.c / lanes);
  const std::int64_t pixel = index / vectors;
  const int channel = static_cast<int>(index % vectors) * lanes;
  const int column = static_cast<int>(pixel % p.out_w);
  const std::int64_t line = pixel / p.out_w;
  const int row = static_cast<int>(line % p.out_h);
  x += line / p.out_h * p.h * p.w * p.c + channel;
  const Range rows = window_range(static_cast<int>(row * p.stride_h - p.pad_top), p.window_h, p.h);
  const Range columns = window_range(static_cast<int>(column * p.stride_w - p.pad_left), p.window_w, p.w);
  float best[lanes];
#pragma unroll
  for (int i = 0; i < lanes; ++i) best[i] = -INFINITY;
  for (int r = rows.begin; r < rows.end; ++r) {
#pragma unroll 3
    for (int c = columns.begin; c < columns.end; ++c) {
      float values[lanes];
      load_vector<T, lanes>(x + (r * p.w + c) * p.c, values);
#pragma unroll
      for (int i = 0; i < lanes; ++i) best[i] = max_or_nan(best[i], values[i]);
    }
  }
  store_vector<T, lanes>(to, best);
}

/// 2x2 with stride 2 without padding, nhwc: all four loads before the first use.
template <typename T, int lanes>
__global__ __launch_bounds__(kThreads) void max_pool_2x2_nhwc_kernel(MaxPoolProblem p, const T* x, T* y,
                                                                     std::int64_t threads) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= threads) return;
  const auto vectors = static_cast<unsigned>(p.c / lanes);
  const auto out_w = static_cast<unsigned>(p.out_w);
  const auto out_h = static_cast<unsigned>(p.out_h);
  const std::int64_t pixel = index / vectors;
  const int channel = static_cast<int>(index % vectors) * lanes;
  const int column = static_cast<int>(pixel % out_w);
  const std::int64_t line = pixel / out_w;
  const T* const from = x + ((line / out_h * p.h + line % out_h * 2) * p.w + 2 * column) * p.c + channel;
  float values[4][lanes];
#pragma unroll
  for (int i = 0; i < 4; ++i) load_vector<T, lanes>(from + (i / 2 * p.w + i % 2) * p.c, values[i]);
#pragma unroll
  for (int i = 0; i < lanes; ++i)
    values[0][i] = max_or_nan(max_or_nan(values[0][i], values[1][i]), max_or_nan(values[2][i], values[3][i]));
  store_vector<T, lanes>(y + index * lanes, values[0]);
}

/// The same in nchw: `lanes` outputs of a row.
template <typename T, int lanes>
__global__ __launch_bounds__(kThreads) void max_pool_2x2_nchw_kernel(MaxPoolProblem p, const T* x, T* y,
                                                                     std::int64_t threads) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= threads) return;
  const auto vectors = static_cast<unsigned>(p.out_w / lanes);
  const auto out_h = static_cast<unsigned>(p.out_h);
  const std::int64_t line = index / vectors;
  const int column = static_cast<int>(index % vectors) * lanes;
  const T* const from = x + (line / out_h * p.h + line % out_h * 2) * p.w + 2 * column;
  float upper[2 * lanes];
  float lower[2 * lanes];
  load_vector<T, 2 * lanes>(from, upper);
  load_vector<T, 2 * lanes>(from + p.w, lower);
  float best[lanes];
#pragma unroll
  for (int i = 0; i < lanes; ++i)
    best[i] = max_or_nan(max_or_nan(upper[2 * i], upper[2 * i + 1]), max_or_nan(lower[2 * i], lower[2 * i + 1]));
  store_vector<T, lanes>(y + line * p.out_w + column, best);
}

/// 3x3 padded by one, nchw: `lanes` outputs of a row. From each of the three input rows under their windows, it loads
/// the columns at the outputs' positions as one vector and the columns beside them as elements. A single lane reads
/// elements only, from rows of any width.
template <typename T, int stride, int lanes>
__global__ __launch_bounds__(kThreads) void max_pool_3x3_nchw_kernel(MaxPoolProblem p, const T* x, T* y,
                                                                     unsigned threads) {
  constexpr int inner = stride * lanes;
  constexpr int right = 2 - stride;  // columns; one on the left
  constexpr int all = 1 + inner + right;
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= threads) return;
  const auto vectors = static_cast<unsigned>(p.out_w) / lanes;
  const auto out_h = static_cast<unsigned>(p.out_h);
  const auto width = static_cast<int>(p.w);
  const unsigned line = index / vectors;
  const int column = static_cast<int>(index % vectors) * lanes;
  const int first = column * stride;
  const int top = static_cast<int>(line % out_h) * stride - static_cast<int>(p.pad_top);
  x += line / out_h * p.h * p.w + first;
  float columns[all];
#pragma unroll
  for (float& column_max : columns) column_max = -INFINITY;
#pragma unroll
  for (int r = 0; r < 3; ++r) {
    if (top + r < 0 || top + r >= p.h) continue;
    const T* const from = x + (top + r) * p.w;
    float row[inner];
    if constexpr (lanes > 1) {
      load_vector<T, inner>(from, row);
    } else {
#pragma unroll
      for (int i = 0; i < inner; ++i) row[i] = first + i < width ? to_f32(__ldg(from + i)) : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < inner; ++i) columns[1 + i] = max_or_nan(columns[1 + i], row[i]);
    if (first > 0) columns[0] = max_or_nan(columns[0], to_f32(__ldg(from - 1)));
    if (right > 0 && first + inner < width)
      columns[all - 1] = max_or_nan(columns[all - 1], to_f32(__ldg(from + inner)));
  }
  float best[lanes];
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    const float* const window = columns + lane * stride;
    best[lane] = max_or_nan(max_or_nan(window[0], window[1]), window[2]);
  }
  store_vector<T, lanes>(y + std::int64_t{line} * p.out_w + column, best);
}

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

/// False where this many lanes don't fit the rows.
template <typename T, int stride, int lanes>
bool launch_3x3(const MaxPoolProblem& p, const T* x, T* y, cudaStream_t stream) {
  constexpr int access = std::min(16, stride * lanes * static_cast<int>(sizeof(T)));
  const std::int64_t threads = p.n * p.out_h * p.out_w / lanes;
  const bool fits = lanes == 1 || (aligned(x) && aligned(y) && p.out_w % lanes == 0 && p.out_w * stride <= p.w &&
                                   p.w * static_cast<std::int64_t>(sizeof(T)) % access == 0);
  if (!fits || threads > 0x7fffffff) return false;
  const auto blocks = static_cast<unsigned>(ceil_div(threads, kThreads));
  max_pool_3x3_nchw_kernel<T, stride, lanes><<<blocks, kThreads, 0, stream>>>(p, x, y, static_cast<unsigned>(threads));
  note_path(lanes == 1   ? Path::max_pool_3x3_nchw_1
            : lanes == 2 ? Path::max_pool_3x3_nchw_2
            : lanes == 4 ? Path::max_pool_3x3_nchw_4
                         : Path::max_pool_3x3_nchw_8);
  return true;
}

/// The widest vectors of outputs that fit, down to one output; false for another window.
template <typename T, int stride>
bool launch_3x3(const MaxPoolProblem& p, const T* x, T* y, cudaStream_t stream) {
  if (p.window_h != 3 || p.window_w != 3 || p.stride_h != stride || p.stride_w != stride || p.pad_left != 1)
    return false;
  constexpr int widest = 16 / static_cast<int>(sizeof(T));
  return launch_3x3<T, stride, widest>(p, x, y, stream) || launch_3x3<T, stride, 4>(p, x, y, stream) ||
         launch_3x3<T, stride, 2>(p, x, y, stream) || launch_3x3<T, stride, 1>(p, x, y, stream);
}

template <typename T>
void launch(const MaxPoolProblem& problem, const T* x, T* y, cudaStream_t stream) {
  constexpr int lanes = 16 / static_cast<int>(sizeof(T));
  MaxPoolProblem p = problem;
  const bool plain = p.window_h == 2 && p.window_w == 2 && p.stride_h == 2 && p.stride_w == 2 && p.pad_top == 0 &&
                     p.pad_left == 0 && 2 * p.out_h <= p.h && 2 * p.out_w <= p.w;
  const std::int64_t outputs = p.n * p.c * p.out_h * p.out_w;
  const auto blocks = [](std::int64_t threads) { return static_cast<unsigned>(ceil_div(threads, kThreads)); };
  if (!p.nhwc) {
    p.n *= p.c;
    p.c = 1;
    constexpr int half = lanes / 2;
    if (plain && p.w % lanes == 0 && p.out_w % half == 0 && aligned(x) && aligned(y)) {
      max_pool_2x2_nchw_kernel<T, half><<<blocks(outputs / half), kThreads, 0, stream>>>(p, x, y, outputs / half);
      note_path(Path::max_pool_2x2_nchw);
      return;
    }
    if (launch_3x3<T, 1>(p, x, y, stream) || launch_3x3<T, 2>(p, x, y, stream)) return;
  }
  if (p.c % lanes != 0 || !aligned(x) || !aligned(y)) {
    max_pool_pixels_kernel<T, 1><<<blocks(outputs), kThreads, 0, stream>>>(p, x, y, outputs);
    note_path(Path::max_pool_elements);
  } else if (plain) {
    max_pool_2x2_nhwc_kernel<T, lanes><<<blocks(outputs / lanes), kThreads, 0, stream>>>(p, x, y, outputs / lanes);
    note_path(Path::max_pool_2x2_nhwc);
  } else {
    max_pool_pixels_kernel<T, lanes><<<blocks(outputs / lanes), kThreads, 0, stream>>>(p, x, y, outputs / lanes);
    note_path(Path::max_pool_vectors);
  }
}

}  // namespace

void max_pool(const MaxPoolProblem& problem, const void* x, void* y, cudaStream_t stream) {
  with_type(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch<T>(problem, static_cast<const T*>(x), static_cast<T*>(y), stream);
  });
  check_launch("max_pool");
}

}  // namespace gable::cuda
