// See reorder.h. A block moves a strip of pixels of up to kMaxChannels channels, long enough to keep its threads busy;
// a row of shared memory is one channel. Global memory is read and written in accesses of 16 bytes where the sizes
// allow it, with four of a thread in flight. Accesses to shared memory are single elements; the row pitch avoids most
// bank conflicts. Divisions by the number of channels are multiplications.
#include "cuda/ops/reorder.h"

#include <gable/problem.h>
#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/ops/transpose.h"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMinStripBits = 9;    // a strip has a power of two of pixels
constexpr int kStripBytes = 16384;  // of all channels, about
constexpr int kMaxChannels = 16;
constexpr int kInFlight = 4;

/// `count` elements in one access.
template <typename T, int count>
struct alignas(count * sizeof(T)) Elements {
  T of[count];
};

struct Strips {
  std::int64_t pixels;
  int channels, an_image;  // strips an image
  int strip_bits, pitch;   // of a row of shared memory: 16 bytes more than a strip
  unsigned reciprocal;     // of channels, in units of 2^-32, rounded up: exact for what a strip holds
};

/// The pixels and first elements of the block's strip.
struct Strip {
  unsigned pixels;
  std::int64_t nchw, nhwc;
};

__device__ __forceinline__ Strip strip_of(const Strips& s) {
  const std::int64_t image = blockIdx.x / s.an_image;
  const std::int64_t pixel = static_cast<std::int64_t>(blockIdx.x % s.an_image) << s.strip_bits;
  const std::int64_t first = image * s.channels * s.pixels;
  return {static_cast<unsigned>(min(std::int64_t{1} << s.strip_bits, s.pixels - pixel)), first + pixel,
          first + pixel * s.channels};
}

/// Calls load(index, place) for kInFlight indices below `count`, then store(index, place) for them, and so on.
template <typename Load, typename Store>
__device__ __forceinline__ void in_batches(unsigned count, const Load& load, const Store& store) {
  for (unsigned first = threadIdx.x; first < count; first += kInFlight * kThreads) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (first + i * kThreads < count) load(first + i * kThreads, i);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (first + i * kThreads < count) store(first + i * kThreads, i);
  }
}

/// Between the rows in shared memory and the planes of x or y.
template <typename T, int width, bool load>
__device__ __forceinline__ void move_planes(const Strip& strip, const Strips& s, T* planes, T* rows) {
  using E = Elements<T, width>;
  const int bits = s.strip_bits - (width == 1 ? 0 : width == 4 ? 2 : 3);
  const unsigned accesses = 1u << bits;
  E batch[kInFlight];
  const auto in_memory = [&](unsigned i) {
    return reinterpret_cast<E*>(planes + strip.nchw + (i >> bits) * s.pixels + (i & (accesses - 1)) * width);
  };
  const auto in_row = [&](unsigned i) {
    return reinterpret_cast<E*>(rows + (i >> bits) * s.pitch + (i & (accesses - 1)) * width);
  };
  const auto valid = [&](unsigned i) { return (i & (accesses - 1)) * width < strip.pixels; };
  in_batches(
      s.channels * accesses,
      [&](unsigned i, int place) {
        if (valid(i)) batch[place] = load ? *in_memory(i) : *in_row(i);
      },
      [&](unsigned i, int place) {
        if (valid(i)) *(load ? in_row(i) : in_memory(i)) = batch[place];
      });
}

/// Between the rows in shared memory and the pixels of x or y.
template <typename T, int width, bool load>
__device__ __forceinline__ void move_pixels(const Strip& strip, const Strips& s, T* pixels, T* rows) {
  const auto channels = static_cast<unsigned>(s.channels);
  const int back = 1 - (s.channels - 1) * s.pitch;  // from a pixel's last channel to the next one's first
  auto* const memory = reinterpret_cast<Elements<T, width>*>(pixels + strip.nhwc);
  Elements<T, width> batch[kInFlight];
  // Calls move(element in its row, place in the access) for the elements of an access, channel by channel.
  const auto walk = [&](unsigned element, const auto& move) {
    const unsigned pixel = __umulhi(element, s.reciprocal);
    unsigned channel = element - pixel * channels;
    T* at = rows + channel * s.pitch + pixel;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      move(*at, j);
      const bool last = ++channel == channels;
      at += last ? back : s.pitch;
      channel = last ? 0 : channel;
    }
  };
  in_batches(
      strip.pixels * channels / width,
      [&](unsigned i, int place) {
        if constexpr (load) {
          batch[place] = memory[i];
        } else {
          walk(i * width, [&](T& element, int j) { batch[place].of[j] = element; });
        }
      },
      [&](unsigned i, int place) {
        if constexpr (load) {
          walk(i * width, [&](T& element, int j) { element = batch[place].of[j]; });
        } else {
          memory[i] = batch[place];
        }
      });
}

template <typename T, int width, bool to_nhwc>
__global__ __launch_bounds__(kThreads) void reorder_kernel(T* x, T* y, Strips s) {
  extern __shared__ uint4 memory[];
  T* const rows = reinterpret_cast<T*>(memory);
  const Strip strip = strip_of(s);
  wait_for_previous_kernel();
  if constexpr (to_nhwc) {
    move_planes<T, width, true>(strip, s, x, rows);
  } else {
    move_pixels<T, width, true>(strip, s, x, rows);
  }
  __syncthreads();
  if constexpr (to_nhwc) {
    move_pixels<T, width, false>(strip, s, y, rows);
  } else {
    move_planes<T, width, false>(strip, s, y, rows);
  }
}

template <typename T, int width>
void reorder_strips(const void* x, void* y, std::int64_t n, const Strips& s, bool to_nhwc, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(n * s.an_image);
  const LaunchShape shape{dim3(blocks), kThreads, s.channels * s.pitch * static_cast<int>(sizeof(T)),
                          launches_overlap()};
  auto* from = static_cast<T*>(const_cast<void*>(x));  // only read
  auto* to = static_cast<T*>(y);
  if (to_nhwc) {
    launch(reorder_kernel<T, width, true>, shape, stream, from, to, s);
  } else {
    launch(reorder_kernel<T, width, false>, shape, stream, from, to, s);
  }
  note_path(width > 1 ? Path::reorder_vectors : Path::reorder_elements);
}

/// 16 bytes an access where every plane begins on a multiple of them, else single elements.
template <typename T>
void reorder_strips(const void* x, void* y, std::int64_t n, const Strips& s, bool to_nhwc, cudaStream_t stream) {
  constexpr int width = 16 / static_cast<int>(sizeof(T));
  const auto address = reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(y);
  if (s.pixels % width == 0 && address % 16 == 0) {
    reorder_strips<T, width>(x, y, n, s, to_nhwc, stream);
  } else {
    reorder_strips<T, 1>(x, y, n, s, to_nhwc, stream);
  }
}

void reorder(const void* x, void* y, std::int64_t n, std::int64_t channels, std::int64_t pixels, int element_bytes,
             bool to_nhwc, cudaStream_t stream) {
  if (channels == 1) {  // the same memory in both layouts
    GABLE_CUDA_CHECK(
        cudaMemcpyAsync(y, x, static_cast<std::size_t>(n * pixels * element_bytes), cudaMemcpyDeviceToDevice, stream));
    return;
  }
  if (channels > kMaxChannels) {
    transpose(x, y, n, to_nhwc ? channels : pixels, to_nhwc ? pixels : channels, element_bytes, stream);
    return;
  }
  int bits = kMinStripBits;
  while ((1 << bits) < pixels && (2 << bits) * channels * element_bytes <= kStripBytes) ++bits;
  const Strips s{
      pixels, static_cast<int>(channels),       static_cast<int>(ceil_div(pixels, std::int64_t{1} << bits)),
      bits,   (1 << bits) + 16 / element_bytes, static_cast<unsigned>(ceil_div(std::int64_t{1} << 32, channels))};
  if (element_bytes == 4) {
    reorder_strips<std::uint32_t>(x, y, n, s, to_nhwc, stream);
  } else {
    reorder_strips<std::uint16_t>(x, y, n, s, to_nhwc, stream);
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
