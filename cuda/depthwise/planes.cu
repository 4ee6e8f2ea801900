// Registers of a thread: the weights of its plane, the sums of window / stride outputs below each other and one row of
// inputs. Per input row a thread reads and converts `window` elements of shared memory for window x window / stride
// FMA.
#include "cuda/common/async_copy.cuh"
#include "cuda/common/device_code.cuh"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/depthwise/planes.h"
#include "cuda/depthwise/sliding_sums.cuh"

namespace gable::cuda {
namespace {

/// Copies the elements [begin, end) of `x` into shared memory in aligned runs of 16 bytes. The first and the last run
/// may include further elements, but none beyond `all`. Returns the address of element `begin`.
template <typename T>
__device__ __forceinline__ const T* copy_run(uint4* shared, const T* x, std::int64_t begin, std::int64_t end,
                                             std::int64_t all) {
  constexpr int run = 16 / sizeof(T);
  const std::int64_t first = begin / run * run;
  const int runs = static_cast<int>((end - first + run - 1) / run);
  for (int i = threadIdx.x; i < runs; i += kDepthwisePlanesThreads) {
    const std::int64_t at = first + static_cast<std::int64_t>(i) * run;
    if (at + run <= all) {
      copy_async<16>(shared + i, x + at, true);
    } else {
      for (int k = 0; k < all - at; ++k) reinterpret_cast<T*>(shared + i)[k] = x[at + k];
    }
  }
  commit_copies();
  return reinterpret_cast<const T*>(shared) + (begin - first);
}

/// What a thread computes next: rows of one column of the output, in a plane of the block.
template <typename T, int window>
struct PlaneColumn {
  float weights[window * window];
  float bias;
  int plane, column, row, rows;

  /// `item` counts columns, planes and strips, columns fastest.
  __device__ __forceinline__ void load(const DepthwisePlanes& d, int item, int first_plane, int planes, int first_row) {
    column = item % d.wo;
    plane = item / d.wo % planes;
    row = first_row + item / d.wo / planes * d.rows;
    rows = min(d.rows, d.ho - row);
    const int channel = (first_plane + plane) % d.c;
#pragma unroll
    for (int tap = 0; tap < window * window; ++tap)
      weights[tap] = to_f32(static_cast<const T*>(d.tensors.packed)[static_cast<std::int64_t>(tap) * d.c + channel]);
    bias = d.tensors.bias == nullptr ? 0.0f : __ldg(d.tensors.bias + channel);
  }
};

template <int window, int stride>
constexpr int blocks_of() {
  return window < 7 ? 8 : 5;
}

template <typename T, int window, int stride>
__global__ __launch_bounds__(kDepthwisePlanesThreads,
                             blocks_of<window, stride>()) void depthwise_planes(const DepthwisePlanes d) {
  using Sums = SlidingSums<float, window, stride, 1>;
  extern __shared__ uint4 shared[];
  const int row_block = static_cast<int>(blockIdx.x) % d.row_blocks;
  const int plane = static_cast<int>(blockIdx.x) / d.row_blocks * d.block_planes;
  const int planes = min(d.block_planes, d.planes - plane);
  const int first_row = row_block * d.block_strips * d.rows;  // of the output
  const int last_row = min(first_row + d.block_strips * d.rows, d.ho) - 1;
  const int in_begin = d.block_planes > 1 ? 0 : max(0, first_row * stride - d.pad_top);
  const int in_end = d.block_planes > 1 ? d.h : max(in_begin, min(d.h, last_row * stride - d.pad_top + window));
  const std::int64_t plane_elements = static_cast<std::int64_t>(d.h) * d.w;
  const std::int64_t begin = plane * plane_elements + static_cast<std::int64_t>(in_begin) * d.w;
  wait_for_previous_kernel();
  const T* const tile =
      copy_run(shared, static_cast<const T*>(d.tensors.x), begin,
               begin + (planes - 1) * plane_elements + static_cast<std::int64_t>(in_end - in_begin) * d.w,
               d.planes * plane_elements);
  // The weights come while the input does.
  const int items = d.wo * planes * d.block_strips;
  PlaneColumn<T, window> own;
  if (static_cast<int>(threadIdx.x) < items) own.load(d, threadIdx.x, plane, planes, first_row);
  wait_copies<0>();
  __syncthreads();

  for (int item = threadIdx.x; item < items; item += kDepthwisePlanesThreads) {
    if (item >= kDepthwisePlanesThreads) own.load(d, item, plane, planes, first_row);
    const int in_column = own.column * stride - d.pad_left;
    int in_row = own.row * stride - d.pad_top;
    const T* from = tile + own.plane * static_cast<int>(plane_elements) + (in_row - in_begin) * d.w + in_column;
    T* to = static_cast<T*>(d.tensors.y) + ((static_cast<std::int64_t>(plane) + own.plane) * d.ho + own.row) * d.wo +
            own.column;
    Sums sums;
#pragma unroll 1
    for (int step = 0; step < own.rows + Sums::kSlots - 1; ++step) {
#pragma unroll
      for (int phase = 0; phase < stride; ++phase) {
        const bool inside = in_row >= in_begin && in_row < in_end;
        float in[window];
        if (inside) {
#pragma unroll
          for (int kw = 0; kw < window; ++kw)
            in[kw] = static_cast<unsigned>(in_column + kw) < static_cast<unsigned>(d.w) ? to_f32(from[kw]) : 0.0f;
        }
        sums.add_row(
            phase, in, own.bias, inside, [&](int tap) { return own.weights[tap]; },
            [&](int slot) {
              return window == 3 || static_cast<unsigned>(step - slot) < static_cast<unsigned>(own.rows);
            });
        ++in_row;
        from += d.w;
      }
      if (step < Sums::kSlots - 1) continue;
      *to = from_f32<T>(activate(sums.finished()[0], d.activation));
      to += d.wo;
    }
  }
}

template <typename T, int window, int stride>
constexpr DepthwisePlanesVariant variant(Path path) {
  return {window, stride, blocks_of<window, stride>(), path, depthwise_planes<T, window, stride>};
}

template <typename T>
constexpr DepthwisePlanesVariant kVariants[] = {
    variant<T, 3, 1>(Path::depthwise_planes_3_stride1), variant<T, 3, 2>(Path::depthwise_planes_3_stride2),
    variant<T, 5, 1>(Path::depthwise_planes_5_stride1), variant<T, 5, 2>(Path::depthwise_planes_5_stride2),
    variant<T, 7, 1>(Path::depthwise_planes_7_stride1), variant<T, 7, 2>(Path::depthwise_planes_7_stride2),
};

}  // namespace

std::span<const DepthwisePlanesVariant> depthwise_planes_variants(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kVariants<float>;
    case DType::f16:
      return kVariants<__half>;
    case DType::bf16:
      return kVariants<__nv_bfloat16>;
  }
  return {};
}

}  // namespace gable::cuda
