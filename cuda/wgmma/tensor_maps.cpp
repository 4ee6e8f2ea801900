// See tensor_maps.h.
#include "cuda/wgmma/tensor_maps.h"

#include <cudaTypedefs.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "cuda/common/check.h"
#include "cuda/wgmma/bf16_parts.h"

namespace gable::cuda {
namespace {

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

/// A dense (n, h, w, c) tensor as the driver describes it, innermost dimension first.
struct MapTensor {
  // Any aligned address: each run sets its own.
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

/// The map for copies of boxes; `step` is the distance of the copied elements in each dimension.
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
  return g.steps.parts > 1 ? round_up(p.c, kPartChannels) * g.steps.parts : p.c;
}

/// The map for copies that gather, for consecutive output pixels, the input pixels that one tap reads.
CUtensorMap gathering_map(const Conv2dProblem& p, const WgmmaGeometry& g) {
  const DType type = wgmma_operand(p);
  const MapTensor t(type, input_depth(p, g), p.w, p.h, p.n);
  const WgmmaCorners c = wgmma_corners(p);
  const std::array<int, 2> lower{c.left, c.top}, upper{c.right, c.bottom};
  const std::array<cuuint32_t, 4> step{1, static_cast<cuuint32_t>(p.stride_w), static_cast<cuuint32_t>(p.stride_h), 1};
  CUtensorMap map;
  static const auto encode = driver_function<PFN_cuTensorMapEncodeIm2col_v12000>("cuTensorMapEncodeIm2col");
  check_map(encode(&map, map_type(type), 4, t.address, t.sizes.data(), t.pitches.data(), lower.data(), upper.data(),
                   static_cast<cuuint32_t>(wgmma_channel_block(type)), static_cast<cuuint32_t>(g.box.width),
                   step.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            "the input");
  return map;
}

/// The map for stores of slices that are narrower than a box: all windows of `width` channels that begin at a vector of
/// 16 bytes, so that a store can't touch the channels beside its window. `chunk`: pixels of a box.
CUtensorMap window_map(DType type, const MapTensor& t, int width, cuuint32_t chunk_w, cuuint32_t chunk_h) {
  const auto bytes = static_cast<cuuint64_t>(size_of(type));
  const auto channels = static_cast<cuuint64_t>(width);
  const std::array<cuuint64_t, 5> sizes{channels, (t.sizes[0] - channels) * bytes / 16 + 1, t.sizes[1], t.sizes[2],
                                        t.sizes[3]};
  const std::array<cuuint64_t, 4> pitches{16, t.pitches[0], t.pitches[1], t.pitches[2]};
  const std::array<cuuint32_t, 5> box{static_cast<cuuint32_t>(wgmma_channel_block(type)), 1, chunk_w, chunk_h, 1};
  const std::array<cuuint32_t, 5> step{1, 1, 1, 1, 1};
  CUtensorMap map;
  static const auto encode = driver_function<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled");
  check_map(encode(&map, map_type(type), 5, t.address, sizes.data(), pitches.data(), box.data(), step.data(),
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            "the output");
  return map;
}

cuuint32_t extent(int pixels, std::int64_t stride) {
  return static_cast<cuuint32_t>((pixels - 1) * static_cast<int>(stride) + 1);
}

}  // namespace

CUtensorMap wgmma_input_map(const Conv2dProblem& p, const WgmmaGeometry& g) {
  const DType type = wgmma_operand(p);
  const auto channels = static_cast<cuuint32_t>(wgmma_channel_block(type));
  const std::int64_t depth = input_depth(p, g);
  if (g.tile.by_tap) return gathering_map(p, g);
  if (g.tile.flat) {
    return make_map(type, MapTensor(type, depth, p.n * p.h * p.w, 1, 1),
                    {channels, static_cast<cuuint32_t>(g.box.width), 1, 1}, {1, 1, 1, 1}, "the input");
  }
  return make_map(type, MapTensor(type, depth, p.w, p.h, p.n),
                  {channels, extent(g.box.width, p.stride_w), extent(g.box.height, p.stride_h),
                   static_cast<cuuint32_t>(g.box.images)},
                  {1, static_cast<cuuint32_t>(p.stride_w), static_cast<cuuint32_t>(p.stride_h), 1}, "the input");
}

CUtensorMap wgmma_output_map(const Conv2dProblem& p, const WgmmaGeometry& g) {
  const auto channels = static_cast<cuuint32_t>(wgmma_channel_block(p.dtype));
  const auto chunk_w = static_cast<cuuint32_t>(std::min(g.tile.row, kWgmmaChunk));
  const cuuint32_t chunk_h = kWgmmaChunk / chunk_w;
  const cuuint32_t pool = p.pool.none() ? 1 : 2;
  const MapTensor y = g.tile.flat ? MapTensor(p.dtype, p.k, p.n * p.ho * p.wo, 1, 1)
                                  : MapTensor(p.dtype, p.k, p.out_w(), p.out_h(), p.n);
  if (g.slices.windows) return window_map(p.dtype, y, g.slices.width, chunk_w / pool, chunk_h / pool);
  return make_map(p.dtype, y, {channels, chunk_w / pool, chunk_h / pool, 1}, {1, 1, 1, 1}, "the output");
}

CUtensorMap planes_map(DType type, const MapPlanes& planes, const PlanesBox& box, const char* which) {
  return make_map(type, MapTensor(type, planes.plane, planes.channels, planes.n, 1),
                  {static_cast<cuuint32_t>(box.pixels), static_cast<cuuint32_t>(box.channels), 1, 1}, {1, 1, 1, 1},
                  which);
}

void set_map_address(CUtensorMap& map, const void* address, const char* which) {
  static const auto replace = driver_function<PFN_cuTensorMapReplaceAddress_v12000>("cuTensorMapReplaceAddress");
  CUresult result = replace(&map, const_cast<void*>(address));
  if (result == CUDA_ERROR_INVALID_CONTEXT) {
    bind_context();
    result = replace(&map, const_cast<void*>(address));
  }
  check_map(result, which);
}

void bind_context() {
  int device = 0;
  GABLE_CUDA_CHECK(cudaGetDevice(&device));
  GABLE_CUDA_CHECK(cudaSetDevice(device));
}

}  // namespace gable::cuda
