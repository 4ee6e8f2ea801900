// The device half of halo_tile.h: which tile a block has, and loading it.
#pragma once

#include "cuda/common/device_code.cuh"
#include "cuda/common/halo_tile.h"

namespace gable::cuda {

__device__ __forceinline__ int operator/(int a, const Divisor& d) {
  return d.value == 1 ? a : static_cast<int>(__umulhi(static_cast<unsigned>(a), d.reciprocal));
}

struct TilePlace {
  std::int64_t image;  // the first
  int images, row, row_pairs, group;
};

/// `blocks` go over the tiles of each group and chunk of output channels.
inline dim3 tile_grid(const HaloTile& t, int blocks) {
  return {static_cast<unsigned>(blocks), static_cast<unsigned>((t.extents.k + t.chunk - 1) / t.chunk),
          static_cast<unsigned>(t.extents.groups)};
}

__device__ __forceinline__ TilePlace tile_place(const HaloTile& t, int tile) {
  const std::int64_t image = static_cast<std::int64_t>(tile / t.cut.bands) * t.cut.images;
  const int first_pair = tile % t.cut.bands * t.cut.row_pairs;
  return {image, static_cast<int>(min(static_cast<std::int64_t>(t.cut.images), t.n - image)), 2 * first_pair,
          min(t.cut.row_pairs, (t.output.ho + 1) / 2 - first_pair), static_cast<int>(blockIdx.z)};
}

/// Floats of the packed weights; both ends are aligned to 16 bytes where a whole number of vectors follows.
__device__ __forceinline__ void copy_to_shared(const float* from, float* to, int count) {
  if (reinterpret_cast<std::uintptr_t>(from) % 16 == 0 && count % 4 == 0) {
    for (int i = threadIdx.x; i < count / 4; i += blockDim.x)
      reinterpret_cast<float4*>(to)[i] = __ldg(reinterpret_cast<const float4*>(from) + i);
  } else {
    for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = __ldg(from + i);
  }
}

constexpr int kLinesAtOnce = 4;  // loads in flight together

/// A row of the input in the tile, of one channel or (nhwc, or all channels at once) of the pixels.
template <typename T>
struct Line {
  const T* from;  // null outside the image
  int image, row, plane;
};

/// Line `index` of the tile's images x planes (channels, or one) x rows.
template <typename T>
__device__ __forceinline__ Line<T> line_at(const HaloTile& t, const TilePlace& place, int index, bool planar) {
  const int part = index / t.by.rows;
  const int row = index - part * t.cut.in_rows;
  const int image = planar ? part / t.by.channels : part;
  const int plane = planar ? part - image * t.extents.c : 0;
  const int y = place.row * t.window.stride_h - t.window.pad_top + row;
  if (image >= place.images) return {nullptr, -1, 0, 0};
  if (y < 0 || y >= t.extents.h) return {nullptr, image, row, plane};
  const int all_channels = t.extents.c * t.extents.groups;
  const std::int64_t elements =
      (place.image + image) * (all_channels * t.extents.h * t.extents.w);  // an image has less than 2^31
  const int channel = place.group * t.extents.c + plane;
  const int at = t.format.nhwc ? y * t.extents.w * all_channels + channel : (channel * t.extents.h + y) * t.extents.w;
  return {static_cast<const T*>(t.tensors.x) + elements + at, image, row, plane};
}

/// Calls body(lines) for kLinesAtOnce lines at a time, by line_lanes lanes; the warp's other lanes take other lines.
template <typename T, typename Body>
__device__ __forceinline__ void for_lines(const HaloTile& t, const TilePlace& place, bool planar, const Body& body) {
  const int teams = blockDim.x / t.line.lanes;
  const int lines = place.images * (planar ? t.extents.c : 1) * t.cut.in_rows;
  for (int first = threadIdx.x / t.line.lanes; first < lines; first += kLinesAtOnce * teams) {
    Line<T> at_once[kLinesAtOnce];
#pragma unroll
    for (int i = 0; i < kLinesAtOnce; ++i) at_once[i] = line_at<T>(t, place, first + i * teams, planar);
    body(at_once);
  }
}

/// Waits for all copies into shared memory that were started before the last end_of_copies().
__device__ __forceinline__ void wait_for_former_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

__device__ __forceinline__ void end_of_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

}  // namespace gable::cuda
