// See reorder.h. A block moves kStrip pixels of up to kMostChannels channels; a row of shared memory is one channel,
// and its odd pitch in words keeps a pixel's channels in different banks. 2-byte elements go in pairs where the sizes
// allow it, and four accesses of a thread are in flight.
#include "cuda/reorder.h"

#include "cuda/check.h"
#include "cuda/transpose.h"
#include "cuda/types.h"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kStrip = 512;
constexpr int kMostChannels = 16;

/// `pair` elements in one access.
template <typename T, int pair>
struct alignas(pair * sizeof(T)) Elements {
  T of[pair];
};

template <typename T>
__host__ __device__ constexpr int pitch_of() {
  return kStrip + 4 / static_cast<int>(sizeof(T));
}

struct Strips {
  std::int64_t pixels;
  int channels, an_image;  // strips an image
};

/// The pixels and first elements of the block's strip.
struct Strip {
  int pixels;
  std::int64_t nchw, nhwc;
};

__device__ __forceinline__ Strip strip_of(const Strips& s) {
  const std::int64_t image = blockIdx.x / s.an_image;
  const std::int64_t pixel = static_cast<std::int64_t>(blockIdx.x % s.an_image) * kStrip;
  const std::int64_t first = image * s.channels * s.pixels;
  return {static_cast<int>(min(std::int64_t{kStrip}, s.pixels - pixel)), first + pixel, first + pixel * s.channels};
}

/// Between the rows in shared memory and the planes of x or y.
template <typename T, int pair, bool load>
__device__ __forceinline__ void move_planes(const Strip& strip, const Strips& s, T* planes, T* rows) {
  using E = Elements<T, pair>;
  const unsigned accesses = strip.pixels / pair;
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < accesses * s.channels; i += kThreads) {
    const unsigned channel = i / accesses;
    const unsigned pixel = i % accesses * pair;
    auto* const plane = reinterpret_cast<E*>(planes + strip.nchw + channel * s.pixels + pixel);
    auto* const row = reinterpret_cast<E*>(rows + channel * pitch_of<T>() + pixel);
    if constexpr (load) {
      *row = *plane;
    } else {
      *plane = *row;
    }
  }
}

/// Between the rows in shared memory and the pixels of x or y.
template <typename T, int pair, bool load>
__device__ __forceinline__ void move_pixels(const Strip& strip, const Strips& s, T* pixels, T* rows) {
  const auto channels = static_cast<unsigned>(s.channels);
#pragma unroll 4
  for (unsigned i = threadIdx.x * pair; i < strip.pixels * channels; i += kThreads * pair) {
    auto* const at = reinterpret_cast<Elements<T, pair>*>(pixels + strip.nhwc + i);
    Elements<T, pair> elements;
    if constexpr (load) elements = *at;
#pragma unroll
    for (unsigned j = 0; j < pair; ++j) {
      T* const row = rows + (i + j) % channels * pitch_of<T>() + (i + j) / channels;
      if constexpr (load) {
        *row = elements.of[j];
      } else {
        elements.of[j] = *row;
      }
    }
    if constexpr (!load) *at = elements;
  }
}

template <typename T, int pair, bool to_nhwc>
__global__ __launch_bounds__(kThreads) void reorder_kernel(T* x, T* y, Strips s) {
  extern __shared__ unsigned memory[];
  T* const rows = reinterpret_cast<T*>(memory);
  const Strip strip = strip_of(s);
  if constexpr (to_nhwc) {
    move_planes<T, pair, true>(strip, s, x, rows);
  } else {
    move_pixels<T, pair, true>(strip, s, x, rows);
  }
  __syncthreads();
  if constexpr (to_nhwc) {
    move_pixels<T, pair, false>(strip, s, y, rows);
  } else {
    move_planes<T, pair, false>(strip, s, y, rows);
  }
}

template <typename T, int pair>
void launch(const void* x, void* y, std::int64_t n, const Strips& s, bool to_nhwc, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(n * s.an_image);
  const auto bytes = static_cast<unsigned>(s.channels * pitch_of<T>() * static_cast<int>(sizeof(T)));
  auto* from = static_cast<T*>(const_cast<void*>(x));  // only read
  auto* to = static_cast<T*>(y);
  if (to_nhwc) {
    reorder_kernel<T, pair, true><<<blocks, kThreads, bytes, stream>>>(from, to, s);
  } else {
    reorder_kernel<T, pair, false><<<blocks, kThreads, bytes, stream>>>(from, to, s);
  }
  check_launch("reorder");
}

void reorder(const void* x, void* y, std::int64_t n, std::int64_t channels, std::int64_t pixels, int element_bytes,
             bool to_nhwc, cudaStream_t stream) {
  if (channels > kMostChannels) {
    transpose(x, y, n, to_nhwc ? channels : pixels, to_nhwc ? pixels : channels, element_bytes, stream);
    return;
  }
  const Strips s{pixels, static_cast<int>(channels), static_cast<int>(ceil_div(pixels, kStrip))};
  const auto address = reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(y);
  if (element_bytes == 4) {
    launch<std::uint32_t, 1>(x, y, n, s, to_nhwc, stream);
  } else if (pixels % 2 == 0 && address % 4 == 0) {
    launch<std::uint16_t, 2>(x, y, n, s, to_nhwc, stream);
  } else {
    launch<std::uint16_t, 1>(x, y, n, s, to_nhwc, stream);
  }
}

}  // namespace

void nchw_to_nhwc(const void* x, void* y, std::int64_t n, std::int64_t channels, std::int64_t pixels, int element_bytes,
                  cudaStream_t stream) {
  reorder(x, y, n, channels, pixels, element_bytes, true, stream);
}

void nhwc_to_nchw(const void* x, void* y, std::int64_t n, std::int64_t channels, std::int64_t pixels, int element_bytes,
                  cudaStream_t stream) {
  reorder(x, y, n, channels, pixels, element_bytes, false, stream);
}

}  // namespace gable::cuda
