// See tiled.h.
#include "cuda/ladder/tiled.h"

#include <algorithm>

#include "cuda/common/async_copy.cuh"
#include "cuda/common/check.h"
#include "cuda/common/conv_dims.h"
#include "cuda/common/coverage.h"
#include "cuda/common/device_code.cuh"
#include "cuda/common/packed_weights.h"

namespace gable::cuda {
namespace {

constexpr int kTile = 16;  // convolution pixels of a block, each way
constexpr int kThreads = kTile * kTile;
constexpr int kChannels = 8;                     // output channels of a block
constexpr int kMaxInputs = 8;                    // input channels of a stage
constexpr std::size_t kSharedBytes = 48 * 1024;  // available to a block without opting in
constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;

/// Sizes of a block's work, of shared memory in elements of f32.
struct Tiling {
  int pooled_h = 1, pooled_w = 1;  // outputs of a block after the pool
  int halo_h = 1, halo_w = 1;      // input pixels of a block
  int channels = 1;                // input channels of a pipeline stage
  int stage = 1;                   // floats of a pipeline stage: input tile and weights
  int stages = 1;

  std::size_t bytes() const;
};

struct Dims : ConvDims {
  explicit Dims(const ConvDims& conv) : ConvDims(conv) {}

  int pool_h, pool_w, pool_stride_h, pool_stride_w;
  int padded_k, chunks;  // of a group: packed channels, and groups of kChannels
  int tiles_h, tiles_w;
  bool nhwc, bias;
  Activation activation;
  Tiling tiling;
};

Dims dims_of(const Conv2dProblem& p, const PackedOrder& order, const Tiling& tiling) {
  const auto i = [](std::int64_t value) { return static_cast<int>(value); };
  Dims d(conv_dims(p));
  d.pool_h = i(p.pool.h);
  d.pool_w = i(p.pool.w);
  d.pool_stride_h = i(p.pool.stride_h);
  d.pool_stride_w = i(p.pool.stride_w);
  d.padded_k = i(order.k);
  d.chunks = i(order.k / kChannels);
  d.tiles_h = i(ceil_div(p.out_h(), tiling.pooled_h));
  d.tiles_w = i(ceil_div(p.out_w(), tiling.pooled_w));
  d.nhwc = p.nhwc;
  d.bias = p.bias;
  d.activation = p.activation;
  d.tiling = tiling;
  return d;
}

/// Inputs that a row of `kTile` convolution pixels reads.
int halo(std::int64_t stride, std::int64_t taps, std::int64_t dilation) {
  return static_cast<int>((kTile - 1) * stride + (taps - 1) * dilation + 1);
}

/// refusal() has checked that the pool's windows fit.
Tiling tiling_of(const Conv2dProblem& p, int stages) {
  Tiling t{.pooled_h = static_cast<int>((kTile - p.pool.h) / p.pool.stride_h + 1),
           .pooled_w = static_cast<int>((kTile - p.pool.w) / p.pool.stride_w + 1),
           .halo_h = halo(p.stride_h, p.r, p.dilation_h),
           .halo_w = halo(p.stride_w, p.s, p.dilation_w),
           .stages = stages};
  const auto stage_of = [&](int channels) {
    return static_cast<int>(round_up(std::int64_t{channels} * t.halo_h * t.halo_w, 4)) +
           static_cast<int>(p.r * p.s) * channels * kChannels;
  };
  t.channels = static_cast<int>(std::min<std::int64_t>(kMaxInputs, p.group_c()));
  while (t.channels > 1 && std::size_t(stage_of(t.channels)) * stages * sizeof(float) > kSharedBytes) --t.channels;
  t.stage = stage_of(t.channels);
  return t;
}

/// What a block works on.
struct Block {
  int image, group, chunk;
  int row, column;  // the first convolution pixel
};

__device__ Block block_of(const Dims& d) {
  const int tile = static_cast<int>(blockIdx.x);
  const int tile_row = tile / d.tiles_w % d.tiles_h, tile_column = tile % d.tiles_w;
  return {.image = tile / (d.tiles_w * d.tiles_h),
          .group = static_cast<int>(blockIdx.y) / d.chunks,
          .chunk = static_cast<int>(blockIdx.y) % d.chunks,
          .row = tile_row * d.tiling.pooled_h * d.pool_stride_h,
          .column = tile_column * d.tiling.pooled_w * d.pool_stride_w};
}

/// Copies f32 by cp.async if `async`; converts other types through registers.
template <typename T, bool async>
__device__ __forceinline__ void fetch(float* to, const T* from, bool valid) {
  if constexpr (async) {
    copy_async<4>(to, from, valid);
  } else {
    *to = valid ? to_f32(*from) : 0.0f;
  }
}

/// Input channels [first, first + channels) of the block's halo tile and their weights: shared memory holds
/// [channel][row][column] and then [tap][channel][output channel].
template <typename T, bool async>
__device__ void load_stage(const Dims& d, const Block& b, int first, const T* x, const T* packed, float* stage) {
  const Tiling& t = d.tiling;
  const int pixels = t.halo_h * t.halo_w;
  const T* image = x + std::int64_t{b.image} * d.c * d.h * d.w;
  const int top = b.row * d.stride_h - d.pad_top, left = b.column * d.stride_w - d.pad_left;
  for (int i = static_cast<int>(threadIdx.x); i < t.channels * pixels; i += kThreads) {
    const int c = d.nhwc ? i % t.channels : i / pixels;  // along what is contiguous in memory
    const int pixel = d.nhwc ? i / t.channels : i % pixels;
    const int row = top + pixel / t.halo_w, column = left + pixel % t.halo_w;
    const bool valid = static_cast<unsigned>(row) < static_cast<unsigned>(d.h) &&
                       static_cast<unsigned>(column) < static_cast<unsigned>(d.w) && first + c < d.group_c;
    const int channel = b.group * d.group_c + first + c;
    const int at = d.nhwc ? (row * d.w + column) * d.c + channel : (channel * d.h + row) * d.w + column;
    fetch<T, async>(stage + c * pixels + pixel, valid ? image + at : x, valid);
  }
  float* weights = stage + (t.channels * pixels + 3) / 4 * 4;
  for (int i = static_cast<int>(threadIdx.x); i < d.r * d.s * t.channels * kChannels; i += kThreads) {
    const int k = i % kChannels, c = i / kChannels % t.channels, tap = i / (kChannels * t.channels);
    const bool valid = first + c < d.group_c;
    const int at = ((b.group * d.r * d.s + tap) * d.group_c + first + c) * d.padded_k + b.chunk * kChannels + k;
    fetch<T, async>(weights + i, valid ? packed + at : packed, valid);
  }
}

__device__ void multiply_stage(const Dims& d, const float* stage, float (&sums)[kChannels]) {
  const Tiling& t = d.tiling;
  const int row = static_cast<int>(threadIdx.x) / kTile * d.stride_h;
  const int column = static_cast<int>(threadIdx.x) % kTile * d.stride_w;
  const int pixels = t.halo_h * t.halo_w;
  const auto* weights = reinterpret_cast<const float4*>(stage + (t.channels * pixels + 3) / 4 * 4);
  for (int r = 0; r < d.r; ++r) {
    for (int s = 0; s < d.s; ++s) {
      const float* input = stage + (row + r * d.dilation_h) * t.halo_w + column + s * d.dilation_w;
      for (int c = 0; c < t.channels; ++c, weights += 2) {
        const float value = input[c * pixels];
        const float4 low = weights[0], high = weights[1];
        sums[0] = fmaf(value, low.x, sums[0]);
        sums[1] = fmaf(value, low.y, sums[1]);
        sums[2] = fmaf(value, low.z, sums[2]);
        sums[3] = fmaf(value, low.w, sums[3]);
        sums[4] = fmaf(value, high.x, sums[4]);
        sums[5] = fmaf(value, high.y, sums[5]);
        sums[6] = fmaf(value, high.z, sums[6]);
        sums[7] = fmaf(value, high.w, sums[7]);
      }
    }
  }
}

/// Pools the block's sums through shared memory, [channel][row][column], and stores.
template <typename T>
__device__ void finish(const Dims& d, const Block& b, const float (&sums)[kChannels], float* shared, const float* bias,
                       T* y) {
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kChannels; ++k) shared[k * kThreads + static_cast<int>(threadIdx.x)] = sums[k];
  __syncthreads();
  const Tiling& t = d.tiling;
  const int outputs = t.pooled_h * t.pooled_w;
  for (int i = static_cast<int>(threadIdx.x); i < outputs * kChannels; i += kThreads) {
    const int k = d.nhwc ? i % kChannels : i / outputs;
    const int pixel = d.nhwc ? i / kChannels : i % outputs;
    const int row = pixel / t.pooled_w, column = pixel % t.pooled_w;
    const int out_row = b.row / d.pool_stride_h + row, out_column = b.column / d.pool_stride_w + column;
    if (b.chunk * kChannels + k >= d.group_k || out_row >= d.out_h || out_column >= d.out_w) continue;
    const float* window = shared + k * kThreads + row * d.pool_stride_h * kTile + column * d.pool_stride_w;
    float best = window[0];
    for (int u = 0; u < d.pool_h; ++u) {
      for (int v = 0; v < d.pool_w; ++v) best = max_or_nan(best, window[u * kTile + v]);
    }
    const int channel = b.group * d.group_k + b.chunk * kChannels + k;
    T* image = y + std::int64_t{b.image} * d.k * d.out_h * d.out_w;
    const int at = d.nhwc ? (out_row * d.out_w + out_column) * d.k + channel
                          : (channel * d.out_h + out_row) * d.out_w + out_column;
    image[at] = from_f32<T>(activate(d.bias ? best + bias[channel] : best, d.activation));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    shared_kernel(Dims d, const T* x, const T* packed, const float* bias, T* y) {
  extern __shared__ float4 memory[];
  auto* stage = reinterpret_cast<float*>(memory);
  const Block b = block_of(d);
  float sums[kChannels] = {};
  for (int first = 0; first < d.group_c; first += d.tiling.channels) {
    load_stage<T, false>(d, b, first, x, packed, stage);
    __syncthreads();
    multiply_stage(d, stage, sums);
    __syncthreads();
  }
  finish(d, b, sums, stage, bias, y);
}

__global__ void __launch_bounds__(kThreads)
    double_buffer_kernel(Dims d, const float* x, const float* packed, const float* bias, float* y) {
  extern __shared__ float4 memory[];
  auto* stages = reinterpret_cast<float*>(memory);
  const Block b = block_of(d);
  const int step = d.tiling.channels;
  float sums[kChannels] = {};
  load_stage<float, true>(d, b, 0, x, packed, stages);
  commit_copies();
  for (int first = 0, now = 0; first < d.group_c; first += step, now ^= 1) {
    if (first + step < d.group_c) {
      load_stage<float, true>(d, b, first + step, x, packed, stages + (now ^ 1) * d.tiling.stage);
    }
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    multiply_stage(d, stages + now * d.tiling.stage, sums);
    __syncthreads();
  }
  finish(d, b, sums, stages, bias, y);
}

/// Empty, or why the kernel with this many stages can't run the problem.
std::string tiled_refusal(const Conv2dProblem& p, int stages) {
  if (p.math != Math::strict) return "its arithmetic is strict";
  if (stages > 1 && p.dtype != DType::f32) {
    return std::string(name_of(p.dtype)) + ": its asynchronous copies move 4 bytes, so it takes f32";
  }
  if (p.pool.h > kTile || p.pool.w > kTile) {
    return "the pool's window is " + std::to_string(p.pool.h) + "x" + std::to_string(p.pool.w) +
           "; it must fit into a block's " + std::to_string(kTile) + "x" + std::to_string(kTile) + " pixels";
  }
  if (p.c * p.h * p.w >= kMaxElements || p.k * p.ho * p.wo >= kMaxElements) {
    return "an image has 2^31 elements or more; its indices have 32 bits";
  }
  constexpr std::int64_t kMaxBlocks = 65535;  // of a grid's y
  if (const std::int64_t blocks = p.groups * ceil_div(p.group_k(), kChannels); blocks > kMaxBlocks) {
    return std::to_string(p.k) + " output channels take " + std::to_string(blocks) + " blocks; a grid has " +
           std::to_string(kMaxBlocks);
  }
  const Tiling tiling = tiling_of(p, stages);
  if (tiling.bytes() > kSharedBytes) {
    return "the inputs of 16x16 pixels, " + std::to_string(tiling.halo_h) + "x" + std::to_string(tiling.halo_w) +
           ", and their weights take " + std::to_string(tiling.bytes()) + " bytes of shared memory; it has " +
           std::to_string(kSharedBytes);
  }
  return "";
}

class TiledPlan final : public PackedOrderPlan {
 public:
  TiledPlan(const Conv2dProblem& problem, int stages);

  Conv2dDescription description() const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  Tiling tiling_;
};

std::size_t Tiling::bytes() const {
  const std::size_t pooling = std::size_t{kThreads} * kChannels;
  return std::max(static_cast<std::size_t>(stage) * static_cast<std::size_t>(stages), pooling) * sizeof(float);
}

TiledPlan::TiledPlan(const Conv2dProblem& problem, int stages)
    : PackedOrderPlan(problem, packed_order(problem, 1, kChannels)), tiling_(tiling_of(problem, stages)) {}

Conv2dDescription TiledPlan::description() const {
  const std::string tile = std::to_string(tiling_.halo_h) + "x" + std::to_string(tiling_.halo_w);
  return {.kernel = tiling_.stages == 1 ? "shared" : "double_buffer",
          .tile = "16x16 pixels of 8 output channels a block",
          .staging = std::string(problem().nhwc ? "nhwc" : "nchw") + " input tiles of " + tile + " pixels and " +
                     std::to_string(tiling_.channels) + " channels in shared memory, " +
                     std::to_string(tiling_.stages) + (tiling_.stages == 1 ? " buffer" : " buffers"),
          .fusion = "pool in the block, bias and activation before the store"};
}

void TiledPlan::run(const void* x, const void* packed, const float* bias, void* y, void*, cudaStream_t stream) const {
  const Dims dims = dims_of(problem(), order(), tiling_);
  const dim3 grid(static_cast<unsigned>(problem().n * dims.tiles_h * dims.tiles_w),
                  static_cast<unsigned>(problem().groups * dims.chunks));
  if (tiling_.stages > 1) {
    double_buffer_kernel<<<grid, kThreads, tiling_.bytes(), stream>>>(
        dims, static_cast<const float*>(x), static_cast<const float*>(packed), bias, static_cast<float*>(y));
  } else {
    with_type(problem().dtype, [&](auto zero) {
      using T = decltype(zero);
      shared_kernel<T><<<grid, kThreads, tiling_.bytes(), stream>>>(
          dims, static_cast<const T*>(x), static_cast<const T*>(packed), bias, static_cast<T*>(y));
    });
  }
  check_launch(tiling_.stages == 1 ? "shared" : "double_buffer");
  note_path(tiling_.stages == 1 ? Path::shared : Path::double_buffer);
}

}  // namespace

std::string Shared::refusal(const Conv2dProblem& problem, const cudaDeviceProp&) { return tiled_refusal(problem, 1); }
std::unique_ptr<Conv2dPlan> Shared::make(const Conv2dProblem& problem, const cudaDeviceProp&) {
  return std::make_unique<TiledPlan>(problem, 1);
}

std::string DoubleBuffer::refusal(const Conv2dProblem& problem, const cudaDeviceProp&) {
  return tiled_refusal(problem, 2);
}
std::unique_ptr<Conv2dPlan> DoubleBuffer::make(const Conv2dProblem& problem, const cudaDeviceProp&) {
  return std::make_unique<TiledPlan>(problem, 2);
}

}  // namespace gable::cuda
