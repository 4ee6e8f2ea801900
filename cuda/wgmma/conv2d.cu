// See wgmma_conv2d.h. Weights are packed as the kernel's shared memory holds them, swizzle included, so that a stage is
// one contiguous copy: [64 output channels][128 bytes of input channels][tap] of 8 KB, padded with zeros.
#include "cuda/wgmma/conv2d.h"

#include <cudaTypedefs.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "cuda/common/check.h"
#include "cuda/common/padded_nhwc.h"
#include "cuda/wgmma/bf16_parts.cuh"
#include "cuda/wgmma/bf16_parts.h"
#include "cuda/wgmma/kernel.cuh"
#include "cuda/wgmma/launch.h"

namespace gable::cuda {
namespace {

struct PackArguments {
  WeightStrides strides;
  int k, c, channel_blocks, taps;
  long long vectors;  // of 16 bytes in the packed weights
  WgmmaTap tap[kWgmmaMaxSteps];
};

/// f32 rounds to tf32 here, to nearest.
__device__ float round_to_tf32(float v) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return __uint_as_float(bits);
}
__device__ void pack_value(std::uint16_t v, int, std::uint16_t& packed) { packed = v; }
__device__ void pack_value(float v, int, float& packed) { packed = round_to_tf32(v); }
__device__ void pack_value(float v, int part, __nv_bfloat16& packed) {
  __nv_bfloat16 parts[3];
  cut(v, parts);
  packed = part == 0 ? parts[0] : part == 1 ? parts[1] : parts[2];
}

/// A thread makes 16 bytes. E: the element as stored, P: as packed.
template <typename E, typename P>
__global__ void pack_weights(const __grid_constant__ PackArguments a, const E* __restrict__ weights, uint4* packed) {
  constexpr int kVector = 16 / sizeof(P), kBlock = 128 / sizeof(P);
  const long long vector = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (vector >= a.vectors) return;
  const int slot = static_cast<int>(vector % 8), row = static_cast<int>(vector / 8 % kWgmmaChannels);
  const long long stage = vector / (8 * kWgmmaChannels);
  const int tap = static_cast<int>(stage % a.taps);
  const int block = static_cast<int>(stage / a.taps % a.channel_blocks);
  const long long k = stage / a.taps / a.channel_blocks * kWgmmaChannels + row;
  const int c = block * kBlock + (slot ^ (row % 8)) * kVector;
  alignas(16) P values[kVector] = {};
  for (int i = 0; i < kVector; ++i) {
    if (k < a.k && c + i < a.c) {
      pack_value(weights[k * a.strides.out + (c + i) * a.strides.in + a.tap[tap].r * a.strides.row +
                         a.tap[tap].s * a.strides.column],
                 a.tap[tap].part, values[i]);
    }
  }
  packed[vector] = *reinterpret_cast<const uint4*>(values);
}

template <typename Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  GABLE_CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) {
    throw std::runtime_error(std::string("the driver has no ") + name + "; a driver of CUDA 12 or later has");
  }
  return reinterpret_cast<Function>(function);
}

void check_map(CUresult result, const char* which) {
  if (result != CUDA_SUCCESS) {
    throw std::invalid_argument(std::string("tensor map of ") + which + " refused by the driver, CUresult " +
                                std::to_string(static_cast<int>(result)));
  }
}

CUtensorMapDataType map_type(DType type) {
  switch (type) {
    case DType::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
}

/// A dense (n, h, w, c) tensor as the driver wants it, innermost first.
struct MapTensor {
  // Any aligned address will do: each run sets its own.
  void* address = reinterpret_cast<void*>(std::uintptr_t{1} << 20);
  std::array<cuuint64_t, 4> sizes;
  std::array<cuuint64_t, 3> pitches;  // in bytes

  MapTensor(DType type, std::int64_t c, std::int64_t w, std::int64_t h, std::int64_t n)
      : sizes{static_cast<cuuint64_t>(c), static_cast<cuuint64_t>(w), static_cast<cuuint64_t>(h),
              static_cast<cuuint64_t>(n)} {
    const auto bytes = static_cast<cuuint64_t>(size_of(type));
    pitches = {sizes[0] * bytes, sizes[0] * sizes[1] * bytes, sizes[0] * sizes[1] * sizes[2] * bytes};
  }
};

/// For copies of boxes, of which `step` takes each first, second, ... element.
CUtensorMap make_map(DType type, const MapTensor& t, const std::array<cuuint32_t, 4>& box,
                     const std::array<cuuint32_t, 4>& step, const char* which) {
  CUtensorMap map;
  static const auto encode = driver_function<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled");
  check_map(encode(&map, map_type(type), 4, t.address, t.sizes.data(), t.pitches.data(), box.data(), step.data(),
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            which);
  return map;
}

/// Channels of a pixel as the kernel reads it.
std::int64_t input_depth(const Conv2dProblem& p, const WgmmaGeometry& g) {
  return g.parts > 1 ? std::int64_t{g.channel_blocks} * g.parts * kPartChannels : p.c;
}

/// For boxes of consecutive output pixels: of each, the input pixel that one tap reads.
CUtensorMap gathering_map(const Conv2dProblem& p, const WgmmaGeometry& g) {
  const DType type = wgmma_operand(p);
  const MapTensor t(type, input_depth(p, g), p.w, p.h, p.n);
  const WgmmaCorners c = wgmma_corners(p);
  const std::array<int, 2> lower{c.left, c.top}, upper{c.right, c.bottom};
  const std::array<cuuint32_t, 4> step{1, static_cast<cuuint32_t>(p.stride_w), static_cast<cuuint32_t>(p.stride_h), 1};
  CUtensorMap map;
  static const auto encode = driver_function<PFN_cuTensorMapEncodeIm2col_v12000>("cuTensorMapEncodeIm2col");
  check_map(encode(&map, map_type(type), 4, t.address, t.sizes.data(), t.pitches.data(), lower.data(), upper.data(),
                   static_cast<cuuint32_t>(wgmma_channel_block(type)), static_cast<cuuint32_t>(g.pixels), step.data(),
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            "the input");
  return map;
}

cuuint32_t extent(int pixels, std::int64_t stride) {
  return static_cast<cuuint32_t>((pixels - 1) * static_cast<int>(stride) + 1);
}

CUtensorMap input_map(const Conv2dProblem& p, const WgmmaGeometry& g) {
  const DType type = wgmma_operand(p);
  const auto channels = static_cast<cuuint32_t>(wgmma_channel_block(type));
  const std::int64_t depth = input_depth(p, g);
  if (g.by_tap) return gathering_map(p, g);
  if (g.flat) {
    return make_map(type, MapTensor(type, depth, p.n * p.h * p.w, 1, 1),
                    {channels, static_cast<cuuint32_t>(g.pixels), 1, 1}, {1, 1, 1, 1}, "the input");
  }
  return make_map(
      type, MapTensor(type, depth, p.w, p.h, p.n),
      {channels, extent(g.box_w, p.stride_w), extent(g.box_h, p.stride_h), static_cast<cuuint32_t>(g.box_n)},
      {1, static_cast<cuuint32_t>(p.stride_w), static_cast<cuuint32_t>(p.stride_h), 1}, "the input");
}

CUtensorMap output_map(const Conv2dProblem& p, const WgmmaGeometry& g) {
  const auto channels = static_cast<cuuint32_t>(wgmma_channel_block(p.dtype));
  const auto chunk_w = static_cast<cuuint32_t>(std::min(g.row, kWgmmaChunk));
  const cuuint32_t chunk_h = kWgmmaChunk / chunk_w;
  if (g.flat) {
    return make_map(p.dtype, MapTensor(p.dtype, p.k, p.n * p.ho * p.wo, 1, 1), {channels, chunk_w, 1, 1}, {1, 1, 1, 1},
                    "the output");
  }
  const cuuint32_t pool = p.pool.none() ? 1 : 2;
  return make_map(p.dtype, MapTensor(p.dtype, p.k, p.out_w(), p.out_h(), p.n),
                  {channels, chunk_w / pool, chunk_h / pool, 1}, {1, 1, 1, 1}, "the output");
}

const void* kernel_of(DType type, const WgmmaGeometry& g) {
  const int pixels = g.pixels;
  if (g.schedule == WgmmaSchedule::promoted) return wgmma_kernel_promoted(pixels);
  if (g.parts > 1) return wgmma_kernel_parts(pixels);
  switch (type) {
    case DType::f16:
      return wgmma_kernel_f16(pixels);
    case DType::bf16:
      return wgmma_kernel_bf16(pixels);
    default:
      return wgmma_kernel_tf32(pixels);
  }
}

/// By one multiplication where that is right for all of 0 to `largest`; else `reciprocal` is 0.
Divisor divisor_up_to(std::int64_t largest, std::int64_t value) {
  Divisor d = divisor(static_cast<int>(value));
  if (largest * value >= std::int64_t{1} << 32) d.reciprocal = 0;
  return d;
}

WgmmaArguments arguments_of(const Conv2dProblem& p, const WgmmaGeometry& g) {
  WgmmaArguments a{};
  a.x = input_map(p, g);
  a.y = output_map(p, g);
  a.outputs = static_cast<int>(p.k);
  a.items = g.items;
  a.by_channel_tiles = divisor_up_to(g.items, g.channel_tiles);
  a.by_pixel_tiles = divisor_up_to(g.items, g.items / g.channel_tiles);
  a.by_tiles_x = divisor_up_to(g.items, g.tiles_x);
  a.by_tiles_y = divisor_up_to(g.items, g.tiles_y);
  const std::int64_t line = p.n * p.ho * p.wo + g.pixels;
  a.by_out_w = divisor_up_to(line, p.wo);
  a.by_out_h = divisor_up_to(line, p.ho);
  a.tile_w = g.tile_w;
  a.tile_h = g.tile_h;
  a.tile_n = g.tile_n;
  a.stride_w = static_cast<int>(p.stride_w);
  a.stride_h = static_cast<int>(p.stride_h);
  a.row = g.row;
  const int pool = p.pool.none() ? 1 : 2;
  a.chunk_x = g.row > kWgmmaChunk ? kWgmmaChunk : 0;
  a.chunk_y = g.row > kWgmmaChunk ? 0 : kWgmmaChunk / g.row / pool;
  a.chunks_per_image = g.row * g.rows_per_image / kWgmmaChunk;
  a.channel_blocks = g.channel_blocks;
  a.parts = g.parts;
  a.box_count = static_cast<int>(g.boxes.size());
  a.tap_count = static_cast<int>(g.taps.size());
  a.split = g.split;
  std::copy(g.share_ends.begin(), g.share_ends.end(), a.share_ends);
  a.box_stages = g.box_stages;
  a.box_stage_bytes = g.box_stage_bytes;
  a.box_bytes = g.box_w * g.box_h * g.box_n * 128;
  a.weight_stages = g.weight_stages;
  a.group_pitch = g.group_pitch;
  a.first_x = wgmma_corners(p).left;
  a.first_y = wgmma_corners(p).top;
  a.schedule = g.schedule;
  a.by_tap = g.by_tap;
  a.pixels_first = g.pixels_first;
  a.resident_weights = g.resident_weights;
  a.pool = !p.pool.none();
  a.activation = p.activation;
  std::copy(g.boxes.begin(), g.boxes.end(), a.boxes);
  std::transform(g.taps.begin(), g.taps.end(), a.shifts, [](const WgmmaTap& tap) { return tap.shift; });
  return a;
}

int shared_bytes_of(const cudaDeviceProp& device) { return static_cast<int>(device.sharedMemPerBlockOptin); }

/// Channels in whole vectors of 16 bytes, as tensor copies need them.
Conv2dProblem as_copied(const Conv2dProblem& p) {
  const std::int64_t vector = 16 / static_cast<std::int64_t>(size_of(p.dtype));
  Conv2dProblem copied = p;
  copied.c = round_up(p.c, vector);
  copied.k = round_up(p.k, vector);
  return copied;
}

/// Tensors whose channels are padded pass through the workspace; where they lie there.
struct Staging {
  bool stages_input = false, stages_output = false;
  std::size_t output_at = 0, partials_at = 0, bytes = 0;  // the input lies first
};

Staging staging_of(const Conv2dProblem& p, const Conv2dProblem& copied, const WgmmaGeometry& g) {
  const auto bytes = [&p](std::int64_t elements) {
    return static_cast<std::size_t>(round_up(elements * static_cast<std::int64_t>(size_of(p.dtype)), 256));
  };
  Staging s;
  s.stages_input = g.parts > 1 || copied.c != p.c;
  s.stages_output = copied.k != p.k;
  s.output_at = g.parts > 1      ? cut_bytes(p.n * p.h * p.w, p.c, g.parts)
                : s.stages_input ? bytes(copied.x_elements())
                                 : 0;
  s.partials_at = s.output_at + (s.stages_output ? bytes(copied.y_elements()) : 0);
  s.bytes = s.partials_at + wgmma_workspace_bytes(g);
  return s;
}

/// What split maths add to the description.
std::string parts_text(const Conv2dProblem& p, const WgmmaGeometry& g) {
  const std::size_t moved =
      static_cast<std::size_t>(p.x_elements()) * sizeof(float) + cut_bytes(p.n * p.h * p.w, p.c, g.parts);
  return "; x cut into " + std::to_string(g.parts) + " bf16 parts in the workspace (" +
         std::to_string((moved + 500000) / 1000000) + " MB moved), " + std::to_string(g.parts * (g.parts + 1) / 2) +
         " products a term" +
         (g.schedule == WgmmaSchedule::promoted ? ", summed by the matrix unit in short chunks" : "");
}

/// Tensor maps need the device's context, which a thread has only once it has used the device.
void bind_context() {
  int device = 0;
  GABLE_CUDA_CHECK(cudaGetDevice(&device));
  GABLE_CUDA_CHECK(cudaSetDevice(device));
}

}  // namespace

struct WgmmaConv2d::State {
  Conv2dProblem problem;  // the caller's
  Conv2dProblem copied;   // the kernel's
  Staging staging;
  WgmmaGeometry geometry;
  WgmmaArguments arguments;
  const void* kernel = nullptr;
  bool overlap_launches = true;
  PFN_cuTensorMapReplaceAddress_v12000 set_address = nullptr;

  void point(CUtensorMap& map, const void* address, const char* which) const {
    CUresult result = set_address(&map, const_cast<void*>(address));
    if (result == CUDA_ERROR_INVALID_CONTEXT) {
      bind_context();
      result = set_address(&map, const_cast<void*>(address));
    }
    check_map(result, which);
  }
};

std::string WgmmaConv2d::missing(const cudaDeviceProp& device) {
  if (device.major == 9 && device.minor == 0) return {};
  return "compute capability " + std::to_string(device.major) + "." + std::to_string(device.minor) +
         "; the warpgroup matrix product exists on 9.0 alone";
}

std::string WgmmaConv2d::refusal(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  const std::string reason = wgmma_refusal(problem);
  if (!reason.empty()) return reason;
  if (find_wgmma_geometry(as_copied(problem), device.multiProcessorCount, shared_bytes_of(device))) return {};
  return "filter " + std::to_string(problem.r) + "x" + std::to_string(problem.s) +
         ": the input that a tile's taps read does not fit shared memory";
}

WgmmaConv2d::WgmmaConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device, const WgmmaWishes& wishes)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.problem = problem;
  s.copied = as_copied(problem);
  const auto geometry = find_wgmma_geometry(s.copied, device.multiProcessorCount, shared_bytes_of(device), wishes);
  if (!geometry) throw std::invalid_argument("no tile of the wgmma kernel fits the problem");
  s.geometry = *geometry;
  bind_context();
  s.staging = staging_of(problem, s.copied, s.geometry);
  s.arguments = arguments_of(s.copied, s.geometry);
  s.arguments.outputs = static_cast<int>(problem.k);  // behind them there is no bias
  s.overlap_launches = wishes.overlap_launches;
  s.kernel = kernel_of(problem.dtype, s.geometry);
  s.set_address = driver_function<PFN_cuTensorMapReplaceAddress_v12000>("cuTensorMapReplaceAddress");
  GABLE_CUDA_CHECK(
      cudaFuncSetAttribute(s.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes_of(device)));
}

WgmmaConv2d::~WgmmaConv2d() = default;
WgmmaConv2d::WgmmaConv2d(WgmmaConv2d&&) noexcept = default;
WgmmaConv2d& WgmmaConv2d::operator=(WgmmaConv2d&&) noexcept = default;

const WgmmaGeometry& WgmmaConv2d::geometry() const { return state_->geometry; }

Conv2dDescription WgmmaConv2d::description() const {
  const WgmmaGeometry& g = state_->geometry;
  const Staging& s = state_->staging;
  const std::string input = g.parts > 1      ? parts_text(state_->problem, g)
                            : s.stages_input ? "; channels of x padded in a copy"
                                             : "";
  const std::string output = s.stages_output ? "; channels of y padded in a copy" : "";
  return {.kernel = "wgmma",
          .tile = g.tile_description(),
          .staging = g.staging_description() + input + output,
          .fusion = std::string("bias, activation and max-pool on the sums in registers") +
                    (g.schedule == WgmmaSchedule::promoted ? "" : ", while the other consumer multiplies"),
          .fused = true};
}

std::size_t WgmmaConv2d::packed_bytes() const {
  const WgmmaGeometry& g = state_->geometry;
  const auto slices = static_cast<std::size_t>(g.channel_tiles) * (g.schedule == WgmmaSchedule::one_tile ? 2 : 1);
  return slices * static_cast<std::size_t>(state_->geometry.steps_per_item()) * kWgmmaWeightBytes;
}

std::size_t WgmmaConv2d::workspace_bytes() const { return state_->staging.bytes; }

void WgmmaConv2d::pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const {
  const State& s = *state_;
  PackArguments a{};
  a.strides = strides;
  a.k = static_cast<int>(s.problem.k);
  a.c = static_cast<int>(s.problem.c);
  a.channel_blocks = s.geometry.channel_blocks;
  a.taps = static_cast<int>(s.geometry.taps.size());
  a.vectors = static_cast<long long>(packed_bytes() / 16);
  std::copy(s.geometry.taps.begin(), s.geometry.taps.end(), a.tap);
  constexpr unsigned kBlock = 256;
  const auto blocks = static_cast<unsigned>(ceil_div(a.vectors, kBlock));
  auto* const to = static_cast<uint4*>(packed);
  if (s.geometry.parts > 1) {
    pack_weights<float, __nv_bfloat16><<<blocks, kBlock, 0, stream>>>(a, static_cast<const float*>(weights), to);
  } else if (s.problem.dtype == DType::f32) {
    pack_weights<float, float><<<blocks, kBlock, 0, stream>>>(a, static_cast<const float*>(weights), to);
  } else {
    using Half = std::uint16_t;
    pack_weights<Half, Half><<<blocks, kBlock, 0, stream>>>(a, static_cast<const Half*>(weights), to);
  }
  check_launch("pack_weights");
}

void WgmmaConv2d::run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
                      cudaStream_t stream) const {
  const State& s = *state_;
  WgmmaArguments a = s.arguments;
  auto* const scratch = static_cast<unsigned char*>(workspace);
  const Conv2dProblem& p = s.problem;
  const int element = static_cast<int>(size_of(p.dtype));
  if (s.geometry.parts > 1) {
    cut_rows(static_cast<const float*>(x), scratch, p.n * p.h * p.w, p.c, s.geometry.parts, stream);
  } else if (s.staging.stages_input) {
    copy_rows(x, scratch, p.n * p.h * p.w, p.c, p.c, s.copied.c, element, stream);
  }
  void* const copied_y = s.staging.stages_output ? scratch + s.staging.output_at : y;
  s.point(a.x, s.staging.stages_input ? scratch : x, "the input");
  s.point(a.y, copied_y, "the output");
  a.weights = static_cast<const unsigned char*>(packed);
  a.bias = bias;
  a.partials = reinterpret_cast<float4*>(scratch + s.staging.partials_at);
  // The kernel before may still be running while this one sets up its barriers; it waits before it reads.
  std::array<cudaLaunchAttribute, 2> attributes{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = s.overlap_launches ? 1 : 0;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(s.geometry.split), 1, 1};
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(s.geometry.ctas));
  launch.blockDim = dim3(wgmma::kThreads);
  launch.dynamicSmemBytes = static_cast<std::size_t>(wgmma_shared_bytes(s.geometry));
  launch.stream = stream;
  launch.attrs = attributes.data();
  launch.numAttrs = s.geometry.split > 1 ? 2 : 1;
  void* arguments[] = {&a};
  GABLE_CUDA_CHECK(cudaLaunchKernelExC(&launch, s.kernel, arguments));
  if (s.staging.stages_output) {
    copy_rows(copied_y, y, p.n * p.out_h() * p.out_w(), p.k, s.copied.k, p.k, element, stream);
  }
}

}  // namespace gable::cuda
