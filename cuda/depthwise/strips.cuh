// One thread's strip. Registers: the sums of the window / stride output rows that an input row contributes to, one
// input row as f32 and, for 3x3, the weights, which otherwise are read from shared memory: a pair of weights serves 2 x
// columns FMA. A thread copies its own input pixels into a ring of rows in shared memory that no other thread reads, so
// that stages - 1 rows are in flight without registers or barriers. Pixels left and right of the image stay zero
// there; rows above and below it are skipped, and so are kernel rows that belong to another strip.
#pragma once

#include "cuda/common/async_copy.cuh"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/common/vector_access.cuh"
#include "cuda/depthwise/sliding_sums.cuh"
#include "cuda/depthwise/strips.h"

namespace gable::cuda {

/// Two neighbouring channels of a pixel.
template <typename T>
struct ChannelPair {
  using Access = typename AccessOf<2 * static_cast<int>(sizeof(T))>::Type;
  static constexpr int kBytes = sizeof(Access);

  static __device__ __forceinline__ float2 to_floats(Access bits) {
    union {
      Access access;
      T elements[2];
    } pair{bits};
    return {to_f32(pair.elements[0]), to_f32(pair.elements[1])};
  }
};

/// Hides the value from the compiler, so that its multiples are computed where they are used. The compiler would
/// otherwise keep all of them in registers.
__device__ __forceinline__ int opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

/// The sizes that a kernel is compiled for.
template <typename T, int window_, int stride_, int columns_>
struct StripShape {
  static constexpr int window = window_, stride = stride_, columns = columns_;
  static constexpr int slots = (window + stride - 1) / stride;    // output rows that one input row contributes to
  static constexpr int pixels = (columns - 1) * stride + window;  // of an input row
  static constexpr int stages = (stride == 1 ? 4 : 6) - (sizeof(T) == 4 ? stride : 0);  // rows of the ring
  static constexpr bool weights_in_registers = window == 3;
  static constexpr int ring = stages * pixels * kDepthwiseThreads * ChannelPair<T>::kBytes;
  static constexpr int shared_bytes =
      ring + (weights_in_registers ? 0 : window * window * kDepthwisePairs * static_cast<int>(sizeof(float2)));
  // What fits into 65,536 registers.
  static constexpr int blocks = slots * columns > 40 ? 3 : slots* columns > 22 ? 4 : slots* columns > 12 ? 5 : 6;
};

/// Where a thread's strip lies. Coordinates of the output and of the input may lie outside of the image.
struct StripPlace {
  std::int64_t image;
  int row, column, rows;  // of the output: the first, and how many rows
  int in_row, in_column;  // of the input: the first
};

template <typename Shape>
__device__ __forceinline__ StripPlace strip_place(const DepthwiseStrips& d, int position) {
  const int group = position % d.column_groups;
  position /= d.column_groups;
  const int phase_w = position % d.step_w;
  position /= d.step_w;
  const int strip = position % d.strips;
  position /= d.strips;
  const int phase_h = position % d.step_h;
  StripPlace p;
  p.image = position / d.step_h;
  p.row = phase_h + strip * d.rows * d.step_h;
  p.column = phase_w + group * Shape::columns * d.step_w;
  p.rows = min(d.rows, (d.ho - p.row + d.step_h - 1) / d.step_h);
  p.in_row = p.row * Shape::stride - d.pad_top;
  p.in_column = p.column * Shape::stride - d.pad_left;
  return p;
}

/// The ring of input rows of one thread, in shared memory.
template <typename T, typename Shape>
class StripRing {
 public:
  using Pair = ChannelPair<T>;
  using Access = typename Pair::Access;

  __device__ __forceinline__ StripRing(const DepthwiseStrips& d, const StripPlace& place, int channel, Access* memory)
      : next_(memory), memory_(memory), row_(place.in_row), step_(d.step_h), height_(d.h) {
    pixel_ = d.step_w * d.c;
    pitch_ = static_cast<std::int64_t>(d.step_h) * d.w * d.c;
    from_ = static_cast<const T*>(d.tensors.x) + ((place.image * d.h + place.in_row) * d.w + place.in_column) * d.c +
            channel;
    left_ = (place.rows - 1) * Shape::stride + Shape::window;
    columns_ = 0;
#pragma unroll
    for (int i = 0; i < Shape::pixels; ++i) {
      const int column = place.in_column + i * d.step_w;
      if (column >= 0 && column < d.w) columns_ |= 1 << i;
    }
    if (columns_ + 1 != 1 << Shape::pixels) {
#pragma unroll
      for (int i = 0; i < Shape::stages * Shape::pixels; ++i) memory[i * kDepthwiseThreads] = Access{};
    }
  }

  /// Starts to copy the next row, if there is one inside the image.
  __device__ __forceinline__ void fetch() {
    if (left_ > 0 && row_ >= 0 && row_ < height_) {
      const int pixel = opaque(pixel_), columns = opaque(columns_);
#pragma unroll
      for (int i = 0; i < Shape::pixels; ++i) {
        if (columns >> i & 1)
          copy_async<Pair::kBytes>(next_ + i * kDepthwiseThreads, from_ + static_cast<std::int64_t>(i) * pixel, true);
      }
    }
    commit_copies();
    --left_, row_ += step_, from_ += pitch_;
    next_ = after(next_);
  }

  static constexpr int kRow = Shape::pixels * kDepthwiseThreads;
  __device__ __forceinline__ Access* after(Access* row) const {
    return row == memory_ + (Shape::stages - 1) * kRow ? memory_ : row + kRow;
  }

 private:
  Access* next_;
  Access* memory_;
  const T* from_;
  std::int64_t pitch_;
  int pixel_, row_, step_, height_, left_;
  int columns_;
};

/// The weights of a thread's two channels: in its registers, or in shared memory, which the threads of a block fill
/// together.
template <typename T, typename Shape>
class StripWeights {
 public:
  using Access = typename ChannelPair<T>::Access;

  /// `shared` holds the weights of the block's pairs, where they are not in registers.
  __device__ __forceinline__ StripWeights(char* shared, int pair) : shared_(reinterpret_cast<float2*>(shared) + pair) {}

  __device__ __forceinline__ void load(const T* packed, int channels) {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) kept_[tap] = loaded(packed + tap * channels);
  }
  /// Every `step`-th tap from `first` on.
  __device__ __forceinline__ void fill(const T* packed, int channels, int first, int step) {
    for (int tap = first; tap < kTaps; tap += step) shared_[tap * kDepthwisePairs] = loaded(packed + tap * channels);
  }
  __device__ __forceinline__ float2 of(int tap) const {
    return Shape::weights_in_registers ? kept_[tap] : shared_[tap * kDepthwisePairs];
  }

 private:
  static constexpr int kTaps = Shape::window * Shape::window;

  static __device__ __forceinline__ float2 loaded(const T* from) {
    return ChannelPair<T>::to_floats(__ldg(reinterpret_cast<const Access*>(from)));
  }

  float2 kept_[Shape::weights_in_registers ? kTaps : 1];
  float2* shared_;
};

/// Stores the first `count` pixels of a finished row.
template <typename T, int columns>
__device__ __forceinline__ void store_row(T* to, int pixel, int count, const float2 (&sums)[columns],
                                          Activation activation) {
  float values[columns][2];
#pragma unroll
  for (int i = 0; i < columns; ++i) values[i][0] = sums[i].x, values[i][1] = sums[i].y;
  if (activation == Activation::relu) {
#pragma unroll
    for (int i = 0; i < columns; ++i)
      values[i][0] = max_or_nan(values[i][0], 0.0f), values[i][1] = max_or_nan(values[i][1], 0.0f);
  } else if (activation == Activation::tanh) {
#pragma unroll
    for (int i = 0; i < columns; ++i) values[i][0] = tanh_f32(values[i][0]), values[i][1] = tanh_f32(values[i][1]);
  }
#pragma unroll
  for (int i = 0; i < columns; ++i)
    if (i < count) store_vector<T, 2>(to + static_cast<std::int64_t>(i) * pixel, values[i]);
}

template <typename T, int window, int stride, int columns>
__global__ __launch_bounds__(kDepthwiseThreads, StripShape<T, window, stride, columns>::blocks) void depthwise_strips(
    const DepthwiseStrips d) {
  using Shape = StripShape<T, window, stride, columns>;
  using Pair = ChannelPair<T>;
  using Access = typename Pair::Access;
  constexpr int slots = Shape::slots, pixels = Shape::pixels;
  extern __shared__ uint4 shared[];

  // Blocks beside each other have the same pixels and neighbouring channels.
  const int first_pair = static_cast<int>(blockIdx.x % d.channel_blocks) * d.block_pairs;
  const int block_places = kDepthwiseThreads / d.block_pairs;
  const int pair = static_cast<int>(threadIdx.x) % d.block_pairs;
  const int place_in_block = static_cast<int>(threadIdx.x) / d.block_pairs;
  const int position = static_cast<int>(blockIdx.x / d.channel_blocks) * block_places + place_in_block;
  const int channel = 2 * (first_pair + pair);
  const bool idle = place_in_block >= block_places || position >= d.positions || channel >= d.c;
  const StripPlace place = strip_place<Shape>(d, position);
  if (Shape::weights_in_registers && (idle || place.rows <= 0)) return;

  wait_for_previous_kernel();
  Access* const memory = reinterpret_cast<Access*>(shared) + threadIdx.x;
  StripRing<T, Shape> ring(d, place, channel, memory);
  const bool works = !idle && place.rows > 0;
  if (works) {
#pragma unroll
    for (int i = 0; i < Shape::stages - 1; ++i) ring.fetch();
  }

  StripWeights<T, Shape> weights(reinterpret_cast<char*>(shared) + Shape::ring, pair);
  const T* const packed = static_cast<const T*>(d.tensors.packed) + channel;
  if constexpr (Shape::weights_in_registers) {
    weights.load(packed, d.c);
  } else {
    if (place_in_block < block_places && channel < d.c) weights.fill(packed, d.c, place_in_block, block_places);
    __syncthreads();
    if (!works) return;
  }
  const float2 bias =
      d.tensors.bias == nullptr ? float2{} : __ldg(reinterpret_cast<const float2*>(d.tensors.bias + channel));

  SlidingSums<float2, window, stride, columns> sums;
  const Access* row = memory;
  int in_row = place.in_row;
  T* to = static_cast<T*>(d.tensors.y) + ((place.image * d.ho + place.row) * d.wo + place.column) * d.c + channel;
  const std::int64_t out_pitch = static_cast<std::int64_t>(d.step_h) * d.wo * d.c;
  const int out_columns = (d.wo - place.column + d.step_w - 1) / d.step_w;

#pragma unroll 1
  for (int step = 0; step < place.rows + slots - 1; ++step) {
#pragma unroll
    for (int phase = 0; phase < stride; ++phase) {
      wait_copies<Shape::stages - 2>();
      const bool inside = in_row >= 0 && in_row < d.h;
      float2 in[pixels];
      if (inside) {
#pragma unroll
        for (int i = 0; i < pixels; ++i) in[i] = Pair::to_floats(row[i * kDepthwiseThreads]);
      }
      row = ring.after(const_cast<Access*>(row));
      in_row += d.step_h;
      ring.fetch();
      sums.add_row(
          phase, in, bias, inside, [&](int tap) { return weights.of(tap); },
          [&](int slot) {
            return window == 3 || static_cast<unsigned>(step - slot) < static_cast<unsigned>(place.rows);
          });
    }
    if (step < slots - 1) continue;
    store_row<T>(to, opaque(d.step_w * d.c), out_columns, sums.finished(), d.activation);
    to += out_pitch;
  }
}

}  // namespace gable::cuda
