// A block computes a slab of up to 64 output channels for a tile of pixels. It loads the slab's weights and the tile's
// input with its halo into shared memory once: [image][row][column][channel], 16 bytes beside each pixel's channels so
// that eight neighbouring pixels lie in different banks. A warp has 16 output channels and the input channels of their
// groups; weights between different groups are zero, which costs products that the tensor cores have left: these layers
// are bound by memory. A product is 16 pixels x 8 output channels x 32 bytes of input channels. The 16 pixels are any
// of the tile, since ldmatrix takes an address for each. A warp's step, for each tap and 32 bytes of channels: one
// 16-byte word a lane of weights, 2 or 4 ldmatrix, 4 or 8 products. A thread ends with two or four neighbouring
// channels of a pixel, a quad with 32 bytes.
#include "cuda/grouped/grouped_mma.h"

#include <algorithm>
#include <stdexcept>

#include "cuda/common/async_copy.cuh"
#include "cuda/common/check.h"
#include "cuda/common/conv_dims.h"
#include "cuda/common/coverage.h"
#include "cuda/common/mma.cuh"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/common/vector_access.cuh"
#include "cuda/grouped/grouped_mma_tile.h"

namespace gable::cuda {
namespace {

constexpr int kMaxThreads = 256, kVectorBytes = 16, kProductPixels = 16;
constexpr int kStepWords = 32;  // 16-byte words of weights in one step of a warp

struct GroupedMmaArguments {
  ConvDims d;
  MmaChannels channels;
  MmaTile tile;
  int pixel_warps, pixel_bytes, weight_bytes;
  Activation activation;
};

/// Where a block's tile lies, in output pixels, and its channels.
struct TileCorner {
  int image, row, column;
  int output;  // first output channel
};

__device__ __forceinline__ TileCorner corner_of(const GroupedMmaArguments& a) {
  int tile = static_cast<int>(blockIdx.x);
  const int slab = tile % a.channels.slabs;  // the slabs of a pixel share its lines
  tile /= a.channels.slabs;
  TileCorner p;
  p.output = slab * a.channels.warps * kMmaOutputs;
  p.column = tile % a.tile.tiles_x * a.tile.columns;
  tile /= a.tile.tiles_x;
  p.row = tile % a.tile.tiles_y * a.tile.rows;
  p.image = tile / a.tile.tiles_y * a.tile.images;
  return p;
}

/// The slab's input channels of all pixels under the tile, `bytes` (4, 8 or 16) a copy; zeros for padding and past the
/// last channel.
template <typename T, int bytes>
__device__ __forceinline__ void load_input(const GroupedMmaArguments& a, const TileCorner& p, const T* x, char* to) {
  constexpr int kChannels = bytes / static_cast<int>(sizeof(T));
  const ConvDims& d = a.d;
  const MmaTile& t = a.tile;
  const int copies = a.channels.slab_vectors * (kVectorBytes / bytes);  // of a pixel
  const int step = static_cast<int>(blockDim.x) / copies;
  const int first = static_cast<int>(threadIdx.x) / copies, mine = static_cast<int>(threadIdx.x) % copies;
  if (first >= step) return;
  const int channel = a.channels.first_input(p.output) + mine * kChannels;
  const bool exists = channel < d.c;
  const int row = p.row * d.stride_h - d.pad_top, column = p.column * d.stride_w - d.pad_left;
  int line = first / t.in_columns, at = first % t.in_columns;  // line: row of an image, images one after the other
  const int lines = t.images * t.in_rows;
  for (int pixel = first; line < lines; pixel += step) {
    const int image = t.images == 1 ? 0 : line / t.in_rows;
    const int h = row + line - image * t.in_rows, w = column + at, n = p.image + image;
    const bool inside = exists && n < d.n && h >= 0 && h < d.h && w >= 0 && w < d.w;
    const T* const from = x + (static_cast<std::int64_t>(n * d.h + h) * d.w + w) * d.c + channel;
    copy_async<bytes>(to + pixel * a.pixel_bytes + mine * bytes, inside ? from : x, inside);
    at += step;
    while (at >= t.in_columns) {
      at -= t.in_columns;
      ++line;
    }
  }
}

__device__ __forceinline__ void load_weights(const GroupedMmaArguments& a, const TileCorner& p, const uint4* packed,
                                             uint4* to) {
  const int words = a.weight_bytes / kVectorBytes;
  const uint4* const from = packed + static_cast<std::int64_t>(p.output / kMmaOutputs / a.channels.warps) * words;
  for (int at = static_cast<int>(threadIdx.x); at < words; at += static_cast<int>(blockDim.x)) {
    copy_async<kVectorBytes>(to + at, from + at, true);
  }
}

/// Four 8x8 matrices of 16-bit elements, or 8x4 of f32; each lane gives the address of a row.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

template <typename T>
__device__ __forceinline__ void load_pixels(unsigned (&to)[4], std::uint32_t address) {
  load_matrices(to, address);
  if constexpr (sizeof(T) == 4) {  // weights are rounded when they are packed
#pragma unroll
    for (unsigned& value : to) value = __float_as_uint(round_to_tf32(__uint_as_float(value)));
  }
}

/// A lane's pixel of each product: where its input lies in shared memory, and its output, in pixels of y; -1: none.
template <int products>
struct LanePixels {
  int input[products], output[products];
};

template <int products>
__device__ __forceinline__ LanePixels<products> lane_pixels(const GroupedMmaArguments& a, const TileCorner& p,
                                                            int first) {
  const MmaTile& t = a.tile;
  LanePixels<products> pixels;
#pragma unroll
  for (int i = 0; i < products; ++i) {
    const int at = first + i * kProductPixels + static_cast<int>(threadIdx.x) % kProductPixels;
    const int line = at / t.columns, column = at - line * t.columns;
    const int image = t.images == 1 ? 0 : line / t.rows, row = line - image * t.rows;
    const bool exists = image < t.images && (t.images > 1 || row < t.rows) && p.image + image < a.d.n &&
                        p.row + row < a.d.out_h && p.column + column < a.d.out_w;
    pixels.input[i] =
        exists ? ((image * t.in_rows + row * a.d.stride_h) * t.in_columns + column * a.d.stride_w) * a.pixel_bytes : 0;
    pixels.output[i] = exists ? ((p.image + image) * a.d.out_h + p.row + row) * a.d.out_w + p.column + column : -1;
  }
  return pixels;
}

/// The output channel whose group's inputs the steps of a half of a warp's channels begin with.
__host__ __device__ constexpr int half_origin(const MmaChannels& c, int channels, int output, int half) {
  const int second = output + kMmaOutputs / 2;
  return c.halves && half == 1 && second < channels ? second : output;
}

/// The sums of a warp's 16 output channels. `input`: the lane's address of the channels' first vector in the tile's
/// first pixel, for each half of them; `weights`: the lane's first word.
template <typename T, int products, bool halves>
__device__ __forceinline__ void multiply_taps(const GroupedMmaArguments& a, const std::uint32_t (&input)[2],
                                              const int (&pixels)[products], const uint4* weights,
                                              float (&sums)[products][2][4]) {
  for (int r = 0; r < a.d.r; ++r) {
    int tap = r * a.d.dilation_h * a.tile.in_columns * a.pixel_bytes;
#pragma unroll 3
    for (int s = 0; s < a.d.s; ++s, tap += a.d.dilation_w * a.pixel_bytes) {
      for (int step = 0; step < a.channels.steps; ++step, weights += kStepWords) {
        const uint4 w = *weights;
        const int offset = tap + step * kMmaStepBytes;
#pragma unroll
        for (int i = 0; i < products; ++i) {
          unsigned x[4];
          load_pixels<T>(x, input[0] + pixels[i] + offset);
          multiply_add<T>(sums[i][0], x, w.x, w.y);
          if constexpr (halves) load_pixels<T>(x, input[1] + pixels[i] + offset);
          multiply_add<T>(sums[i][1], x, w.z, w.w);
        }
      }
    }
  }
}

/// `count` neighbouring channels of a pixel, those before `end`.
template <typename T, int count>
__device__ __forceinline__ void store_channels(T* pixel, int channel, int end, bool aligned,
                                               const float (&values)[count]) {
  if (aligned && channel + count <= end) {
    store_vector<T, count>(pixel + channel, values);
    return;
  }
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (channel + i < end) pixel[channel + i] = from_f32<T>(values[i]);
}

/// The channel of a warp's 16 that is column `column` of half `half`: a thread's four are neighbours, or two and two
/// where the halves have own input channels.
__host__ __device__ constexpr int channel_of(bool halves, int half, int column) {
  return halves ? half * 8 + column : column / 2 * 4 + half * 2 + column % 2;
}

template <typename T, int products, bool halves>
__device__ __forceinline__ void store_sums(const GroupedMmaArguments& a, const float* bias, T* y, int output,
                                           const int (&pixels)[products], const float (&sums)[products][2][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, end = a.d.k;
  const int first = output + channel_of(halves, 0, lane % 4 * 2), second = output + channel_of(halves, 1, lane % 4 * 2);
  float added[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int channel = (i < 2 ? first : second) + i % 2;
    added[i] = bias != nullptr && channel < end ? __ldg(bias + channel) : 0.0f;
  }
  const bool aligned = end % (halves ? 2 : 4) == 0;
#pragma unroll
  for (int i = 0; i < products; ++i) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int at = __shfl_sync(~0u, pixels[i], lane / 4 + row * 8);
      float mine[4] = {sums[i][0][2 * row], sums[i][0][2 * row + 1], sums[i][1][2 * row], sums[i][1][2 * row + 1]};
      finish_all(mine, added, a.activation);
      if (at < 0) continue;
      T* const pixel = y + static_cast<std::int64_t>(at) * end;
      if constexpr (halves) {
        store_channels<T, 2>(pixel, first, end, aligned, {mine[0], mine[1]});
        store_channels<T, 2>(pixel, second, end, aligned, {mine[2], mine[3]});
      } else {
        store_channels<T, 4>(pixel, first, end, aligned, mine);
      }
    }
  }
}

/// Grid: tiles of pixels with their slabs of channels.
template <typename T, int products, bool halves>
__global__ void __launch_bounds__(kMaxThreads, products == 4 ? 3 : 4)
    grouped_mma_kernel(const __grid_constant__ GroupedMmaArguments a, const T* __restrict__ x,
                       const uint4* __restrict__ packed, const float* __restrict__ bias, T* __restrict__ y) {
  extern __shared__ uint4 memory[];
  char* const input = reinterpret_cast<char*>(memory) + a.weight_bytes;
  const TileCorner corner = corner_of(a);
  wait_for_previous_kernel();
  load_weights(a, corner, packed, memory);
  const int pixel_bytes = a.d.c * static_cast<int>(sizeof(T));
  if (pixel_bytes % 16 == 0) {
    load_input<T, 16>(a, corner, x, input);
  } else if (pixel_bytes % 8 == 0) {
    load_input<T, 8>(a, corner, x, input);
  } else {
    load_input<T, 4>(a, corner, x, input);
  }
  commit_copies();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int channels = warp % a.channels.warps;
  const int output = corner.output + channels * kMmaOutputs, slab_input = a.channels.first_input(corner.output);
  const int pixels_of_round = products * kProductPixels;
  wait_copies<0>();
  __syncthreads();
  if (output >= a.d.k) return;
  const auto address = [&](int of) {
    const int skipped = a.channels.first_input(of) - slab_input;
    return shared_address(input) + skipped * static_cast<int>(sizeof(T)) + lane / 16 * kVectorBytes;
  };
  const std::uint32_t from[2] = {address(output), address(half_origin(a.channels, a.d.k, output, 1))};
  const int taps = a.d.r * a.d.s;
  const uint4* const weights = memory + channels * taps * a.channels.steps * kStepWords + lane;
  for (int first = warp / a.channels.warps * pixels_of_round; first < a.tile.pixels();
       first += a.pixel_warps * pixels_of_round) {
    const LanePixels<products> pixels = lane_pixels<products>(a, corner, first);
    float sums[products][2][4] = {};
    multiply_taps<T, products, halves>(a, from, pixels.input, weights, sums);
    store_sums<T, products, halves>(a, bias, y, output, pixels.output, sums);
  }
}

struct PackArguments {
  MmaChannels channels;
  WeightStrides strides;
  int k, s, taps;
  std::int64_t registers;
};

/// One thread a register of B: [16 output channels][tap][step][lane][half][register].
template <typename T>
__global__ void pack_grouped_mma(const __grid_constant__ PackArguments a, const T* weights, unsigned* packed) {
  constexpr int kInRegister = 4 / static_cast<int>(sizeof(T));
  const std::int64_t index = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= a.registers) return;
  const MmaChannels& m = a.channels;
  const int part = static_cast<int>(index % 2), half = static_cast<int>(index / 2 % 2);
  const int lane = static_cast<int>(index / 4 % 32);
  std::int64_t rest = index / 128;
  const int step = static_cast<int>(rest % m.steps);
  rest /= m.steps;
  const int tap = static_cast<int>(rest % a.taps), output = static_cast<int>(rest / a.taps) * kMmaOutputs;
  const int k = output + channel_of(m.halves, half, lane / 4);
  const int origin = half_origin(m, a.k, output, half);
  union {
    unsigned bits;
    T of[kInRegister];
  } value;
#pragma unroll
  for (int e = 0; e < kInRegister; ++e) {
    const int depth = (part * 4 + lane % 4) * kInRegister + e;
    const int c = m.first_input(origin) + step * 8 * kInRegister + depth - k / m.group_k * m.group_c;
    T element = from_f32<T>(0.0f);
    if (k < a.k && c >= 0 && c < m.group_c) {
      element =
          weights[k * a.strides.out + c * a.strides.in + tap / a.s * a.strides.row + tap % a.s * a.strides.column];
      if constexpr (sizeof(T) == 4) element = round_to_tf32(element);
    }
    value.of[e] = element;
  }
  packed[index] = value.bits;
}

template <typename T>
using Kernel = void (*)(GroupedMmaArguments, const T*, const uint4*, const float*, T*);

template <typename T>
Kernel<T> kernel_of(const MmaCut& cut) {
  if constexpr (sizeof(T) == 4) {
    if (cut.channels.halves) return cut.products == 4 ? grouped_mma_kernel<T, 4, true> : grouped_mma_kernel<T, 2, true>;
  }
  return cut.products == 4 ? grouped_mma_kernel<T, 4, false> : grouped_mma_kernel<T, 2, false>;
}

std::optional<MmaCut> cut_of(const Conv2dProblem& p, const cudaDeviceProp& device) {
  return find_mma_cut(p, device.multiProcessorCount, static_cast<int>(device.sharedMemPerBlockOptin));
}

MmaCut checked_cut_of(const Conv2dProblem& p, const cudaDeviceProp& device) {
  const std::optional<MmaCut> cut = cut_of(p, device);
  if (!cut) throw std::invalid_argument("no tile of the grouped_mma kernel fits the problem");
  return *cut;
}

std::int64_t blocks_of(const MmaCut& cut) {
  const MmaTile& t = cut.tile;
  return std::int64_t{t.tiles_x} * t.tiles_y * t.tiles_n * cut.channels.slabs;
}

double seconds_of(const MmaCut& cut) {
  constexpr double kClock = 1.7e9;  // of an H200 under load
  return cut.cycles / kClock;
}

class GroupedMmaPlan final : public Conv2dPlan {
 public:
  GroupedMmaPlan(const Conv2dProblem& problem, const MmaCut& cut, const cudaDeviceProp& device)
      : problem_(problem), cut_(cut), overlaps_(pays_to_overlap(blocks_of(cut), seconds_of(cut), device)) {
    with_type(problem.dtype, [&](auto zero) {
      // All plans of a kernel share this attribute: the most that any of them may take.
      GABLE_CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_of<decltype(zero)>(cut_)),
                                            cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(device.sharedMemPerBlockOptin)));
    });
  }

  Conv2dDescription description() const override;
  Packing packing() const override {
    const MmaChannels& c = cut_.channels;
    return packing_of(problem_, "grouped_mma", {c.steps, c.halves ? 1 : 0, c.warps, c.slabs});
  }
  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(cut_.channels.slabs) * static_cast<std::size_t>(cut_.weight_bytes);
  }
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  Conv2dProblem problem_;
  MmaCut cut_;
  bool overlaps_;
};

Conv2dDescription GroupedMmaPlan::description() const {
  const MmaTile& t = cut_.tile;
  const int outputs = cut_.channels.warps * kMmaOutputs;
  return {.kernel = "grouped_mma",
          .tile = "tiles of " + std::to_string(t.rows) + "x" + std::to_string(t.columns) + " pixels" +
                  (t.images > 1 ? " of " + std::to_string(t.images) + " images" : "") + " x " +
                  std::to_string(outputs) + " channels, " + std::to_string(cut_.products * kProductPixels) +
                  " pixels x 16 channels a warp" + (cut_.channels.halves ? ", in halves" : ""),
          .staging = "input and weights in " + std::to_string(cut_.shared_bytes()) + " bytes of shared memory",
          .fusion = "bias and activation in registers"};
}

void GroupedMmaPlan::pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const {
  constexpr unsigned kThreads = 256;
  const PackArguments a{.channels = cut_.channels,
                        .strides = strides,
                        .k = static_cast<int>(problem_.k),
                        .s = static_cast<int>(problem_.s),
                        .taps = static_cast<int>(problem_.r * problem_.s),
                        .registers = static_cast<std::int64_t>(packed_bytes() / 4)};
  const auto blocks = static_cast<unsigned>(ceil_div(a.registers, kThreads));
  with_type(problem_.dtype, [&](auto zero) {
    pack_grouped_mma<<<blocks, kThreads, 0, stream>>>(a, static_cast<const decltype(zero)*>(weights),
                                                      static_cast<unsigned*>(packed));
  });
  check_launch("pack_grouped_mma");
}

void GroupedMmaPlan::run(const void* x, const void* packed, const float* bias, void* y, void*,
                         cudaStream_t stream) const {
  const GroupedMmaArguments a{.d = conv_dims(problem_),
                              .channels = cut_.channels,
                              .tile = cut_.tile,
                              .pixel_warps = cut_.pixel_warps,
                              .pixel_bytes = cut_.pixel_bytes,
                              .weight_bytes = cut_.weight_bytes,
                              .activation = problem_.activation};
  const auto blocks = static_cast<unsigned>(blocks_of(cut_));
  with_type(problem_.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(kernel_of<T>(cut_), {dim3(blocks), cut_.threads(), cut_.shared_bytes(), overlaps_}, stream, a,
           static_cast<const T*>(x), static_cast<const uint4*>(packed), bias, static_cast<T*>(y));
  });
  note_path(cut_.products == 4 ? Path::grouped_mma_64_pixels : Path::grouped_mma_32_pixels);
  note_path(problem_.dtype == DType::f32
                ? (cut_.channels.halves ? Path::grouped_mma_tf32_halves : Path::grouped_mma_tf32)
            : problem_.dtype == DType::f16 ? Path::grouped_mma_f16
                                           : Path::grouped_mma_bf16);
}

}  // namespace

std::string GroupedMma::missing(const cudaDeviceProp& device) { return mma_missing(device); }

std::string GroupedMma::refusal(const Conv2dProblem& p, const cudaDeviceProp& device) {
  const bool tensor = p.dtype == DType::f32 ? p.math == Math::tf32 : p.math == Math::strict;
  if (!tensor) {
    return p.dtype == DType::f32 ? "f32: it multiplies f16, bf16, and f32 as tf32 (math tf32)"
                                 : "math other than strict";
  }
  if (p.groups == 1 || p.group_c() == 1) {
    return std::to_string(p.group_c()) + " input channels in " + (p.groups == 1 ? "one group" : "each group") +
           "; it takes several groups of several channels";
  }
  if (!p.pool.none()) return "max-pool 2x2; it takes none";
  if (p.dtype != DType::f32 && p.c % 2 != 0) {
    return std::to_string(p.c) + " input channels; it takes an even number of 16-bit values";
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (std::max(p.n * p.h, p.n * p.ho * p.wo) >= kMost) return "2^31 pixels or more; its indices have 32 bits";
  if (cut_of(p, device)) return "";
  return "groups of " + std::to_string(p.group_c()) + " channels with a filter of " + std::to_string(p.r) + "x" +
         std::to_string(p.s) + " do not fit shared memory";
}

std::unique_ptr<Conv2dPlan> GroupedMma::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<GroupedMmaPlan>(problem, checked_cut_of(problem, device), device);
}

double GroupedMma::seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return seconds_of(checked_cut_of(problem, device));
}

}  // namespace gable::cuda
