// Reorders between planes and pixels with padded channels: see reorder.h. A block moves a tile of 2048 elements, of up
// to 32 channels and the more pixels the fewer these are, through shared memory, whose rows are channels. Planes are
// read and written in accesses of 16 bytes where these divide them, pixels always.
#include "cuda/ops/reorder.h"

#include <gable/problem.h>
#include "cuda/common/coverage.h"
#include "cuda/common/overlapped_launch.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256, kTileElements = 2048;

template <typename T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));  // elements of 16 bytes

template <typename T, int rows>
struct Tile {
  static constexpr int kPixels = kTileElements / rows;
  T of[rows][kPixels + kVector<T>];
};

struct Arguments {
  std::int64_t pixels, pitch;
  int channels, tiles_an_image, tiles_of_channels;
};

/// The block's tile: its first channel, its first pixel in the image, and its image's planes and pixels.
template <typename T, int rows>
struct Place {
  int channel;
  std::int64_t pixel;
  T *planes, *rows_of_pixels;

  __device__ __forceinline__ Place(const Arguments& a, T* planes_of_all, T* pixels_of_all) {
    const int tile = static_cast<int>(blockIdx.x);
    const int position = tile / a.tiles_of_channels, image = position / a.tiles_an_image;
    channel = (tile - position * a.tiles_of_channels) * rows;
    pixel = static_cast<std::int64_t>(position - image * a.tiles_an_image) * Tile<T, rows>::kPixels;
    planes = planes_of_all + std::int64_t{image} * a.channels * a.pixels;
    rows_of_pixels = pixels_of_all + image * a.pitch * a.pixels;
  }
};

/// Between shared memory and the planes, `width` pixels an access.
template <typename T, int rows, int width, bool load>
__device__ __forceinline__ void move_planes(const Arguments& a, const Place<T, rows>& p, Tile<T, rows>& tile) {
  struct alignas(width * sizeof(T)) Access {
    T of[width];
  };
  constexpr int kAcross = Tile<T, rows>::kPixels / width, kAccesses = kTileElements / width;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kAccesses; i += kThreads) {
    const int row = i / kAcross, at = i % kAcross * width;
    if (p.channel + row >= a.channels || p.pixel + at >= a.pixels) continue;
    auto* const memory = reinterpret_cast<Access*>(p.planes + (p.channel + row) * a.pixels + p.pixel + at);
    auto* const shared = reinterpret_cast<Access*>(&tile.of[row][at]);
    *(load ? shared : memory) = *(load ? memory : shared);
  }
}

/// Between shared memory and the pixels, 16 bytes an access.
template <typename T, int rows, bool load>
__device__ __forceinline__ void move_pixels(const Arguments& a, const Place<T, rows>& p, Tile<T, rows>& tile) {
  constexpr int kAcross = rows / kVector<T>, kAccesses = kTileElements / kVector<T>;
  union Access {
    uint4 vector;
    T of[kVector<T>];
    __device__ Access() {}
  };
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kAccesses; i += kThreads) {
    const int at = i / kAcross, row = i % kAcross * kVector<T>;
    if (p.channel + row >= a.pitch || p.pixel + at >= a.pixels) continue;
    auto* const memory = reinterpret_cast<uint4*>(p.rows_of_pixels + (p.pixel + at) * a.pitch + p.channel + row);
    Access access;
    if constexpr (load) access.vector = *memory;
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) {
      if constexpr (load) {
        tile.of[row + j][at] = access.of[j];
      } else {
        access.of[j] = p.channel + row + j < a.channels ? tile.of[row + j][at] : T{0};
      }
    }
    if constexpr (!load) *memory = access.vector;
  }
}

template <typename T, int rows, int width, bool to_nhwc>
__global__ __launch_bounds__(kThreads) void padded_reorder_kernel(T* planes, T* pixels, Arguments a) {
  __shared__ alignas(16) Tile<T, rows> tile;
  const Place<T, rows> place(a, planes, pixels);
  wait_for_previous_kernel();
  if constexpr (to_nhwc) {
    move_planes<T, rows, width, true>(a, place, tile);
  } else {
    move_pixels<T, rows, true>(a, place, tile);
  }
  __syncthreads();
  if constexpr (to_nhwc) {
    move_pixels<T, rows, false>(a, place, tile);
  } else {
    move_planes<T, rows, width, false>(a, place, tile);
  }
}

struct Pointers {
  void *planes, *pixels;
};

template <typename T, int rows, int width, bool to_nhwc>
void launch_reorder(const Pointers& of, const PaddedReorder& r, cudaStream_t stream) {
  const Arguments a{r.pixels, r.pitch, static_cast<int>(r.channels),
                    static_cast<int>(ceil_div(r.pixels, Tile<T, rows>::kPixels)),
                    static_cast<int>(ceil_div(to_nhwc ? r.pitch : r.channels, rows))};
  const auto blocks = static_cast<unsigned>(r.n * a.tiles_an_image * a.tiles_of_channels);
  launch(padded_reorder_kernel<T, rows, width, to_nhwc>, {dim3(blocks), kThreads, 0, launches_overlap()}, stream,
         static_cast<T*>(of.planes), static_cast<T*>(of.pixels), a);
  note_path(rows == 8    ? Path::reorder_padded_8_channels
            : rows == 16 ? Path::reorder_padded_16_channels
                         : Path::reorder_padded_32_channels);
  note_path(width > 1 ? Path::reorder_padded_vectors : Path::reorder_padded_elements);
}

template <typename T, int rows, bool to_nhwc>
void reorder_rows(const Pointers& of, const PaddedReorder& r, cudaStream_t stream) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(of.planes) % 16 == 0;
  if (aligned && r.pixels % kVector<T> == 0) {
    launch_reorder<T, rows, kVector<T>, to_nhwc>(of, r, stream);
  } else {
    launch_reorder<T, rows, 1, to_nhwc>(of, r, stream);
  }
}

template <typename T, bool to_nhwc>
void reorder_padded(const Pointers& of, const PaddedReorder& r, cudaStream_t stream) {
  if (r.pitch <= 8) {
    reorder_rows<T, 8, to_nhwc>(of, r, stream);
  } else if (r.pitch <= 16) {
    reorder_rows<T, 16, to_nhwc>(of, r, stream);
  } else {
    reorder_rows<T, 32, to_nhwc>(of, r, stream);
  }
}

template <bool to_nhwc>
void reorder_padded(const Pointers& of, const PaddedReorder& r, cudaStream_t stream) {
  if (r.element_bytes == 4) {
    reorder_padded<std::uint32_t, to_nhwc>(of, r, stream);
  } else {
    reorder_padded<std::uint16_t, to_nhwc>(of, r, stream);
  }
}

}  // namespace

void nchw_to_padded_nhwc(const void* x, void* y, const PaddedReorder& reorder, cudaStream_t stream) {
  reorder_padded<true>({const_cast<void*>(x), y}, reorder, stream);  // planes are only read
}

void padded_nhwc_to_nchw(const void* x, void* y, const PaddedReorder& reorder, cudaStream_t stream) {
  reorder_padded<false>({y, const_cast<void*>(x)}, reorder, stream);  // pixels are only read
}

}  // namespace gable::cuda
