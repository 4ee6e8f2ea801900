// Registers: weights, 4 sums a channel and one row of inputs, which serves both output rows, so 128 threads x 2 blocks
// fill a multiprocessor. An empty asm statement hides the weights' origin from the compiler, which would otherwise read
// them again for each image.
#include "cuda/few_channels/one_channel.h"

#include <algorithm>
#include <cmath>

#include "cuda/common/async_copy.cuh"
#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/halo_tile.cuh"
#include "cuda/common/overlapped_launch.cuh"

namespace gable::cuda {

namespace {

struct ImageExtents {
  int h, w, k, pad_top, pad_left;
};

/// One image in shared memory. Counts are of elements.
struct SharedImage {
  int pitch;                      // of a row
  int in_elements, out_elements;  // the former in whole vectors of 16 bytes
};

/// A task is two neighbouring columns of two rows of the output.
struct ImageTasks {
  int columns, count;  // pairs of columns; tasks in all
  Divisor by_columns;
};

struct ImageFormat {
  bool nhwc, pool, flat;  // flat: an image lies in shared memory as it does in global memory
  Activation activation;
};

/// The kernel's parameter.
struct ImageTile {
  Tensors tensors;
  std::int64_t n;
  ImageExtents extents;
  HaloOutput output;
  SharedImage shared;
  ImageTasks tasks;
  ImageFormat format;
};

/// A register tile that is compiled, for one size of filter.
struct OneChannelVariant {
  int side, channels;  // of the filter; output channels at most
  void (*f32)(ImageTile);
  void (*f16)(ImageTile);
  void (*bf16)(ImageTile);
};

constexpr int kThreads = 128;
constexpr int kBlocks = 4;   // a multiprocessor
constexpr int kParts = 2;    // of the output channels
constexpr int kVector = 16;  // bytes

__device__ __forceinline__ float2 load_pair(const float* from) { return *reinterpret_cast<const float2*>(from); }
__device__ __forceinline__ float2 load_pair(const __half* from) {
  return __half22float2(*reinterpret_cast<const __half2*>(from));
}
__device__ __forceinline__ float2 load_pair(const __nv_bfloat16* from) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
}

/// Copies an image into shared memory, whose margins already hold zeros.
template <typename T>
__device__ __forceinline__ void load_image(const ImageTile& t, std::int64_t image, T* to) {
  const T* from = static_cast<const T*>(t.tensors.x) + image * t.extents.h * t.extents.w;
  if (t.format.flat) {
    constexpr int count = kVector / static_cast<int>(sizeof(T));
    for (int i = threadIdx.x * count; i < t.extents.h * t.extents.w; i += kThreads * count)
      copy_async<kVector>(to + i, from + i, true);
    return;
  }
  to += t.extents.pad_top * t.shared.pitch + t.extents.pad_left;
  for (int row = threadIdx.x / 32; row < t.extents.h; row += kThreads / 32) {
    for (int column = threadIdx.x % 32; column < t.extents.w; column += 32) {
      if constexpr (sizeof(T) == 4) {
        copy_async<4>(to + row * t.shared.pitch + column, from + row * t.extents.w + column, true);
      } else {
        to[row * t.shared.pitch + column] = from[row * t.extents.w + column];
      }
    }
  }
}

/// `window` is the first input of the thread's outputs.
template <typename T, int side, int channels>
__device__ __forceinline__ void convolve(const T* window, int pitch, const float (&weights)[side * side][channels],
                                         float (&sums)[2][2][channels]) {
#pragma unroll
  for (int row = 0; row <= side; ++row, window += pitch) {
    float inputs[side + 1];
#pragma unroll
    for (int i = 0; i <= side; i += 2) {
      const float2 pair = load_pair(window + i);
      inputs[i] = pair.x, inputs[i + 1] = pair.y;
    }
#pragma unroll
    for (int y = 0; y < 2; ++y) {
      const int kh = row - y;
      if (kh < 0 || kh >= side) continue;
#pragma unroll
      for (int kw = 0; kw < side; ++kw)
#pragma unroll
        for (int x = 0; x < 2; ++x)
#pragma unroll
          for (int k = 0; k < channels; ++k)
            sums[y][x][k] = fmaf(inputs[x + kw], weights[kh * side + kw][k], sums[y][x][k]);
    }
  }
}

/// Channels from `first` of one pixel of y in shared memory, which has y's order.
template <typename T, int channels>
__device__ __forceinline__ void put(const ImageTile& t, int row, int column, int first, const float (&values)[channels],
                                    T* to) {
  const int pixel = row * t.output.out_w + column;
  const int pixel_step = t.format.nhwc ? t.extents.k : 1;
  const int channel_step = t.format.nhwc ? 1 : t.output.out_h * t.output.out_w;
  to += pixel * pixel_step + first * channel_step;
#pragma unroll
  for (int k = 0; k < channels; ++k)
    if (first + k < t.extents.k) to[k * channel_step] = from_f32<T>(values[k]);
}

template <typename T, int channels>
__device__ __forceinline__ void finish(const ImageTile& t, int row, int column, int first,
                                       const float (&sums)[2][2][channels], const float (&bias)[channels], T* to) {
  if (t.format.pool) {
    float best[channels];
#pragma unroll
    for (int k = 0; k < channels; ++k)
      best[k] = max_or_nan(max_or_nan(sums[0][0][k], sums[0][1][k]), max_or_nan(sums[1][0][k], sums[1][1][k]));
    finish_all(best, bias, t.format.activation);
    put(t, row / 2, column / 2, first, best, to);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float values[channels];
#pragma unroll
    for (int k = 0; k < channels; ++k) values[k] = sums[i / 2][i % 2][k];
    finish_all(values, bias, t.format.activation);
    if (row + i / 2 < t.output.ho && column + i % 2 < t.output.wo)
      put(t, row + i / 2, column + i % 2, first, values, to);
  }
}

/// Copies the finished image to y.
template <typename T>
__device__ __forceinline__ void copy_out(const ImageTile& t, std::int64_t image, const T* from) {
  constexpr int count = kVector / static_cast<int>(sizeof(T));
  T* const to = static_cast<T*>(t.tensors.y) + image * t.shared.out_elements;
  if (t.shared.out_elements % count == 0) {
    for (int i = threadIdx.x * count; i < t.shared.out_elements; i += kThreads * count)
      *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from + i);
  } else {
    for (int i = threadIdx.x; i < t.shared.out_elements; i += kThreads) to[i] = from[i];
  }
}

template <typename T, int side, int channels>
__global__ __launch_bounds__(kThreads, kBlocks) void one_channel_kernel(const ImageTile t) {
  extern __shared__ uint4 shared_image[];
  T* now = reinterpret_cast<T*>(shared_image);
  T* next = now + t.shared.in_elements;
  T* const out = next + t.shared.in_elements;
  const int first = static_cast<int>(threadIdx.x) / 32 % kParts * channels;  // of the thread's output channels
  const int thread = threadIdx.x / (32 * kParts) * 32 + threadIdx.x % 32;    // among those of the same channels
  float weights[side * side][channels];
  float bias[channels];
  wait_for_previous_kernel();
#pragma unroll
  for (int i = 0; i < side * side; ++i)
#pragma unroll
    for (int k = 0; k < channels; ++k) {
      weights[i][k] = __ldg(static_cast<const float*>(t.tensors.packed) + i * channels * kParts + first + k);
      asm volatile("" : "+f"(weights[i][k]));
    }
#pragma unroll
  for (int k = 0; k < channels; ++k)
    bias[k] = t.tensors.bias != nullptr && first + k < t.extents.k ? __ldg(t.tensors.bias + first + k) : 0.0f;
  for (int i = threadIdx.x; i < 2 * t.shared.in_elements; i += kThreads) now[i] = from_f32<T>(0.0f);
  __syncthreads();
  load_image(t, blockIdx.x, now);
  commit_copies();
  for (std::int64_t image = blockIdx.x; image < t.n; image += gridDim.x) {
    if (image + gridDim.x < t.n) load_image(t, image + gridDim.x, next);
    commit_copies();
    wait_copies<1>();
    __syncthreads();
#pragma unroll 1
    for (int task = thread; task < t.tasks.count; task += kThreads / kParts) {
      const int row = task / t.tasks.by_columns * 2;
      const int column = 2 * task - row * t.tasks.columns;
      float sums[2][2][channels] = {};
      convolve<T, side, channels>(now + row * t.shared.pitch + column, t.shared.pitch, weights, sums);
      finish(t, row, column, first, sums, bias, out);
    }
    __syncthreads();
    copy_out(t, image, out);
    T* const done = now;
    now = next;
    next = done;
  }
}

template <typename T>
__global__ void pack_one_channel(const T* weights, WeightStrides strides, float* packed, int k, int side,
                                 int channels) {
  for (int i = threadIdx.x; i < side * side * channels; i += blockDim.x) {
    const int out = i % channels;
    const int tap = i / channels;
    packed[i] =
        out < k ? to_f32(weights[out * strides.out + tap / side * strides.row + tap % side * strides.column]) : 0.0f;
  }
}

template <int side, int channels>
constexpr OneChannelVariant variant() {
  return {side, channels * kParts, one_channel_kernel<float, side, channels>,
          one_channel_kernel<__half, side, channels>, one_channel_kernel<__nv_bfloat16, side, channels>};
}

constexpr OneChannelVariant kVariants[] = {variant<5, 3>(), variant<3, 4>()};

const OneChannelVariant* find_variant(const Conv2dProblem& p) {
  for (const OneChannelVariant& v : kVariants)
    if (p.r == v.side && p.s == v.side && p.k <= v.channels) return &v;
  return nullptr;
}

void (*kernel_of(const OneChannelVariant& v, DType type))(ImageTile) {
  return type == DType::f32 ? v.f32 : type == DType::f16 ? v.f16 : v.bf16;
}

constexpr std::int64_t pad_to(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

/// Rows and columns of the convolution that are needed.
std::int64_t rows_of(const Conv2dProblem& p) { return p.pool.none() ? p.ho : 2 * p.out_h(); }
std::int64_t columns_of(const Conv2dProblem& p) { return p.pool.none() ? p.wo : 2 * p.out_w(); }

/// Row pitch of the image in shared memory, in elements. A row holds all inputs of the outputs, and the whole image
/// row.
std::int64_t pitch_of(const Conv2dProblem& p) {
  return pad_to(std::max(pad_to(columns_of(p), 2) + p.s - 1, p.pad_left + p.w), 2);
}
std::int64_t in_elements_of(const Conv2dProblem& p) {
  const std::int64_t rows = std::max(pad_to(rows_of(p), 2) + p.r - 1, p.pad_top + p.h);
  return pad_to(rows * pitch_of(p), kVector / static_cast<std::int64_t>(size_of(p.dtype)));
}

std::size_t shared_bytes_of(const Conv2dProblem& p) {
  const std::int64_t elements = 2 * in_elements_of(p) + p.k * p.out_h() * p.out_w();
  return static_cast<std::size_t>(elements) * size_of(p.dtype);
}

ImageTile tile_of(const Conv2dProblem& p) {
  ImageTile t{};
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  t.n = p.n;
  t.extents = {.h = narrow(p.h),
               .w = narrow(p.w),
               .k = narrow(p.k),
               .pad_top = narrow(p.pad_top),
               .pad_left = narrow(p.pad_left)};
  t.output = {
      .ho = narrow(rows_of(p)), .wo = narrow(columns_of(p)), .out_h = narrow(p.out_h()), .out_w = narrow(p.out_w())};
  t.shared = {.pitch = narrow(pitch_of(p)),
              .in_elements = narrow(in_elements_of(p)),
              .out_elements = narrow(p.k * p.out_h() * p.out_w())};
  const int columns = (t.output.wo + 1) / 2;
  t.tasks = {.columns = columns, .count = columns * ((t.output.ho + 1) / 2), .by_columns = divisor(columns)};
  const std::int64_t image_bytes = p.h * p.w * static_cast<std::int64_t>(size_of(p.dtype));
  t.format = {.nhwc = p.nhwc,
              .pool = p.pool.is_2x2(),
              .flat = p.pad_top == 0 && p.pad_left == 0 && pitch_of(p) == p.w && image_bytes % kVector == 0,
              .activation = p.activation};
  return t;
}

class OneChannelPlan final : public Conv2dPlan {
 public:
  OneChannelPlan(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const override;
  Packing packing() const override { return packing_of(problem_, "one_channel", {variant_->channels}); }
  std::size_t packed_bytes() const override;
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  Conv2dProblem problem_;
  const OneChannelVariant* variant_;
  ImageTile tile_;
  std::size_t shared_bytes_;
  unsigned blocks_;
  bool overlaps_;
};

/// Blocks of a multiprocessor for the problem.
std::int64_t resident_blocks_of(const Conv2dProblem& p, const cudaDeviceProp& device) {
  const auto* const kernel = reinterpret_cast<const void*>(kernel_of(*find_variant(p), p.dtype));
  const std::size_t bytes = shared_bytes_of(p);
  GABLE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(device.sharedMemPerBlockOptin)));
  int resident = 0;
  GABLE_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, bytes));
  return std::max(1, resident);
}

OneChannelPlan::OneChannelPlan(const Conv2dProblem& problem, const cudaDeviceProp& device)
    : problem_(problem),
      variant_(find_variant(problem)),
      tile_(tile_of(problem)),
      shared_bytes_(shared_bytes_of(problem)),
      overlaps_(device.major >= 9 && problem.n <= device.multiProcessorCount) {
  const std::int64_t places = resident_blocks_of(problem, device) * device.multiProcessorCount;
  blocks_ = static_cast<unsigned>(std::min(places, problem.n));
}

Conv2dDescription OneChannelPlan::description() const {
  return {.kernel = "one_channel",
          .tile = "2x2 pixels x " + std::to_string(variant_->channels) + " channels for " + std::to_string(kParts) +
                  " threads, weights in registers",
          .staging = "block of " + std::to_string(kThreads) +
                     " threads, one image and the next: " + std::to_string(shared_bytes_) + " bytes of shared memory",
          .fusion = "bias, activation and pool in registers"};
}

std::size_t OneChannelPlan::packed_bytes() const {
  return sizeof(float) * static_cast<std::size_t>(variant_->side * variant_->side * variant_->channels);
}

void OneChannelPlan::pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const {
  with_type(problem_.dtype, [&](auto zero) {
    pack_one_channel<<<1, 256, 0, stream>>>(static_cast<const decltype(zero)*>(weights), strides,
                                            static_cast<float*>(packed), tile_.extents.k, variant_->side,
                                            variant_->channels);
  });
  check_launch("pack_one_channel");
}

void OneChannelPlan::run(const void* x, const void* packed, const float* bias, void* y, void*,
                         cudaStream_t stream) const {
  ImageTile t = tile_;
  t.tensors = {x, packed, bias, y};
  launch(kernel_of(*variant_, problem_.dtype), {dim3(blocks_), kThreads, static_cast<int>(shared_bytes_), overlaps_},
         stream, t);
  note_path(variant_->side == 5 ? Path::one_channel_5x5 : Path::one_channel_3x3);
  note_path(tile_.format.flat ? Path::one_channel_flat : Path::one_channel_margins);
}

}  // namespace

std::string OneChannel::refusal(const Conv2dProblem& p, const cudaDeviceProp& device) {
  if (p.c != 1) return std::to_string(p.c) + " input channels; it takes 1";
  if (find_variant(p) == nullptr) {
    return "a kernel of " + std::to_string(p.r) + "x" + std::to_string(p.s) + " with " + std::to_string(p.k) +
           " output channels; it takes 5x5 with at most 6 and 3x3 with at most 8";
  }
  if (p.stride_h != 1 || p.stride_w != 1 || p.dilation_h != 1 || p.dilation_w != 1) {
    return "its stride and dilation are 1";
  }
  if (!p.pool.none() && !p.pool.is_2x2()) return "its max-pool is 2x2 with stride 2";
  const std::size_t bytes = shared_bytes_of(p);
  if (bytes <= device.sharedMemPerBlockOptin) return "";
  return "an image needs " + std::to_string(bytes) + " bytes of shared memory; a block of the device has " +
         std::to_string(device.sharedMemPerBlockOptin);
}

double OneChannel::seconds(const Conv2dProblem& p, const cudaDeviceProp& device) {
  // Cycles where nothing else is said. Fitted to 60 layers on an H200; on 30 others it errs by 20 % (root mean square).
  constexpr double kHertz = 1.755e9, kLaunch = 1.86e-6, kDeviceBytes = 3.6e12, kOverlap = 1.37;
  constexpr double kWarpTask = 301, kProduct = 2.7;               // of all blocks; latency of one in a thread
  constexpr double kElement = 22.6, kHalf = 108, kOutput = 42.4;  // latencies: of a thread's loads with margins, more
                                                                  // of 16 bits, and of its stores
  const ImageTile t = tile_of(p);
  const OneChannelVariant& v = *find_variant(p);
  const std::int64_t multiprocessors = device.multiProcessorCount, resident = resident_blocks_of(p, device);
  const auto images = static_cast<double>(ceil_div(p.n, resident * multiprocessors));
  const auto together = static_cast<double>(std::min(resident, ceil_div(p.n, multiprocessors)));
  const double work = together * t.tasks.count / 32.0 * kWarpTask;
  const double loads = t.format.flat ? 0 : kElement + (p.dtype == DType::f32 ? 0 : kHalf);
  const double latency =
      static_cast<double>(ceil_div(t.tasks.count, kThreads / kParts)) * 4 * v.side * v.side * v.channels * kProduct +
      (static_cast<double>(p.h * p.w) * loads + t.shared.out_elements * kOutput) / kThreads;
  const double computing = images * std::max(work, latency) / kHertz;
  const double moving =
      static_cast<double>((p.x_elements() + p.y_elements()) * static_cast<std::int64_t>(size_of(p.dtype))) /
      kDeviceBytes;
  return kLaunch + std::pow(std::pow(computing, kOverlap) + std::pow(moving, kOverlap), 1 / kOverlap);
}

std::unique_ptr<Conv2dPlan> OneChannel::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<OneChannelPlan>(problem, device);
}

}  // namespace gable::cuda
