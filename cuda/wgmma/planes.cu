// See planes.h. A block has one tile: one or two consumer warpgroups of 64 output channels, one warp or four that load
// pixels and one that loads weights, and a ring of stages of 64 input channels. Outputs take the place of stages.
#include "cuda/wgmma/planes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "cuda/common/async_copy.cuh"
#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/wgmma/conv2d.h"
#include "cuda/wgmma/epilogue.cuh"
#include "cuda/wgmma/pack.h"
#include "cuda/wgmma/tensor_maps.h"

namespace gable::cuda {
namespace {

using namespace wgmma;

constexpr int kPixels = 64, kChannels = 64;         // of a chunk, and of a slice or a stage
constexpr int kRowBytes = 2 * kPixels;              // of a channel's pixels
constexpr int kChunkBytes = kChannels * kRowBytes;  // of pixels in a stage, and of staged outputs
constexpr int kMaxStages = 12;
constexpr int kTensor = 16;  // bytes of an access: tensor copies

struct PlanesArguments {
  CUtensorMap x, y;  // for tensor copies
  const unsigned char *from, *weights;
  unsigned char* to;
  const float* bias;  // or null
  int stages, steps;
  int n, c, k, plane, chunks_per_image;
  Divisor by_channel_tiles, by_chunks_per_image;
  Activation activation;
};

/// Warps that load pixels.
constexpr int loading_warps(int bytes) { return bytes == kTensor ? 1 : 4; }
constexpr int threads_of(int slices, int bytes) { return slices * kWarpgroup + (1 + loading_warps(bytes)) * 32; }
/// Two blocks of a multiprocessor need registers for the sums of both.
constexpr int most_residents(int slices, int chunks, int bytes) {
  return bytes == kTensor || slices * chunks < (bytes == 2 ? 2 : 4) ? 2 : 1;
}

template <typename T, int pixels>
__device__ void multiply_planes(float (&d)[pixels / 2], std::uint64_t a, std::uint64_t b, int accumulate);
#define GABLE_MULTIPLY_PLANES(T, pixels, types, a_name, b_name, accumulate_name)                                       \
  template <>                                                                                                          \
  __device__ inline void multiply_planes<T, pixels>(float(&d)[pixels / 2], std::uint64_t a, std::uint64_t b,           \
                                                    int accumulate) {                                                  \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate_name ", 0;\nwgmma.mma_async.sync.aligned.m64n" #pixels \
                 "k16.f32." types " {" GABLE_NAMES_OF_##pixels "}, " a_name ", " b_name ", p, 1, 1, 0, 1;\n}\n"        \
                 : GABLE_D_OF_##pixels                                                                                 \
                 : "l"(a), "l"(b), "r"(accumulate));                                                                   \
  }
GABLE_MULTIPLY_PLANES(__half, 64, "f16.f16", "%32", "%33", "%34")
GABLE_MULTIPLY_PLANES(__nv_bfloat16, 64, "bf16.bf16", "%32", "%33", "%34")
GABLE_MULTIPLY_PLANES(__half, 128, "f16.f16", "%64", "%65", "%66")
GABLE_MULTIPLY_PLANES(__nv_bfloat16, 128, "bf16.bf16", "%64", "%65", "%66")
#undef GABLE_MULTIPLY_PLANES

/// Operand in shared memory with 128-byte swizzle: rows of 64 pixels, contiguous along the reduction, and kChunkBytes
/// from 64 pixels to the next.
__device__ inline std::uint64_t planes_descriptor(std::uint32_t address) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = 1024;
  return kSwizzle128 | (kEightRows >> 4 << 32) | (std::uint64_t{kChunkBytes >> 4} << 16) | ((address & 0x3FFFF) >> 4);
}

__device__ inline void store_matrices(std::uint32_t to, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                      std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

/// Where a byte of a row of 128 bytes lies, with the swizzle of tensor copies.
__device__ inline int swizzled(int row, int byte) {
  return row * kRowBytes + ((byte / 16) ^ (row % 8)) * 16 + byte % 16;
}

/// Shared memory: barriers, then stages of weights and pixels.
template <int slices, int chunks>
struct PlanesMemory {
  static constexpr int kStageBytes = slices * kWgmmaWeightBytes + chunks * kChunkBytes;
  std::uint32_t base;

  __device__ std::uint32_t full(int i) const { return base + 8 * i; }
  __device__ std::uint32_t empty(int i) const { return base + 8 * (kMaxStages + i); }
  __device__ std::uint32_t weights(int i) const { return base + kWgmmaBarrierBytes + i * kStageBytes; }
  __device__ std::uint32_t pixels(int i) const { return weights(i) + slices * kWgmmaWeightBytes; }
  __device__ std::uint32_t outputs(int slice, int chunk) const {
    return weights(0) + (slice * chunks + chunk) * kChunkBytes;
  }
};

/// The first slice of a block's tile and its first chunk of pixels, counted through the batch.
struct PlanesTile {
  int slice, chunk;
};

struct ChunkPlace {
  int image, pixel;
};
__device__ inline ChunkPlace place_of_chunk(const PlanesArguments& a, int chunk) {
  const int image = divide(chunk, a.by_chunks_per_image);
  return {image, (chunk - image * a.chunks_per_image) * kPixels};
}

/// Calls load(slot, step) for each step, once the slot is free.
template <typename Memory, typename Load>
__device__ void for_each_stage(const PlanesArguments& a, const Memory& m, Load load) {
  Cursor at;
  for (int step = 0; step < a.steps; ++step) {
    ptx::wait(m.empty(at.slot), at.round ^ 1);
    load(at.slot, step);
    at.advance_one(a.stages);
  }
}

template <int slices, int chunks>
__device__ void load_weights(const PlanesArguments& a, const PlanesMemory<slices, chunks>& m, const PlanesTile& tile) {
  const std::int64_t slice_bytes = std::int64_t{a.steps} * kWgmmaWeightBytes;
  const unsigned char* const from = a.weights + tile.slice * slice_bytes;
  if (!ptx::is_elected()) return;
  for_each_stage(a, m, [&](int slot, int step) {
    ptx::arrive_expect_bytes(m.full(slot), slices * kWgmmaWeightBytes);
#pragma unroll
    for (int i = 0; i < slices; ++i) {
      ptx::load_bulk(m.weights(slot) + i * kWgmmaWeightBytes, from + i * slice_bytes + step * kWgmmaWeightBytes,
                     kWgmmaWeightBytes, m.full(slot));
    }
  });
}

/// What lies behind the last image, pixel or channel is zeros.
template <int slices, int chunks>
__device__ void load_boxes(const PlanesArguments& a, const PlanesMemory<slices, chunks>& m, const PlanesTile& tile) {
  ChunkPlace places[chunks];
#pragma unroll
  for (int i = 0; i < chunks; ++i) places[i] = place_of_chunk(a, tile.chunk + i);
  ptx::wait_for_previous_kernel();
  if (!ptx::is_elected()) return;
  for_each_stage(a, m, [&](int slot, int step) {
    ptx::arrive_expect_bytes(m.full(slot), chunks * kChunkBytes);
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      ptx::load_box(m.pixels(slot) + i * kChunkBytes, a.x, places[i].pixel, step * kChannels, places[i].image, 0,
                    m.full(slot));
    }
  });
}

/// A thread's copies of `bytes` to the rows of a chunk: it keeps its pixels and steps from row to row.
template <int bytes>
struct RowShare {
  static constexpr int kLanes = kRowBytes / bytes, kStep = kWarpgroup / kLanes;

  __device__ static int byte() { return static_cast<int>(threadIdx.x) % kLanes * bytes; }
  /// Of a warpgroup's threads, numbered from `thread`.
  __device__ static int row(int thread) { return thread / kLanes; }
};

/// The same by cp.async, of 4 or 8 bytes that are of one plane. The matrix unit sees them after a fence by the thread
/// that copied them, so a stage is announced two stages later.
template <int bytes, int slices, int chunks>
class CopyingLoader {
 public:
  __device__ CopyingLoader(const PlanesArguments& a, const PlanesMemory<slices, chunks>& m, const PlanesTile& tile)
      : a_(a), m_(m) {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const ChunkPlace place = place_of_chunk(a, tile.chunk + i);
      const int pixel = place.pixel + Share::byte() / 2;
      const bool valid = place.image < a.n && pixel < a.plane;
      from_[i] = valid ? 2 * (std::int64_t{place.image} * a.c * a.plane + pixel) : -1;
    }
  }

  __device__ void run() {
    ptx::wait_for_previous_kernel();
    Cursor announced;
    for_each_stage(a_, m_, [&](int slot, int step) {
      load(slot, step);
      commit_copies();
      if (step < kBehind) return;
      wait_copies<kBehind>();
      announce(announced);
    });
    wait_copies<0>();
    for (int i = min(kBehind, a_.steps); i > 0; --i) announce(announced);
  }

 private:
  using Share = RowShare<bytes>;
  static constexpr int kBehind = 2;

  __device__ void load(int slot, int step) const {
    const int first = Share::row(static_cast<int>(threadIdx.x) % kWarpgroup);
    const std::int64_t row_bytes = 2 * std::int64_t{a_.plane};
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const unsigned char* from = a_.from + from_[i] + (step * kChannels + first) * row_bytes;
      const std::uint32_t to = m_.pixels(slot) + i * kChunkBytes;
#pragma unroll
      for (int row = 0; row < kChannels; row += Share::kStep) {
        const bool valid = from_[i] >= 0 && step * kChannels + first + row < a_.c;
        copy_async<bytes>(to + swizzled(first + row, Share::byte()), valid ? from : a_.from, valid);
        from += Share::kStep * row_bytes;
      }
    }
  }

  __device__ void announce(Cursor& at) const {
    ptx::fence_shared_for_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::arrive(m_.full(at.slot));
    at.advance_one(a_.stages);
  }

  const PlanesArguments& a_;
  const PlanesMemory<slices, chunks>& m_;
  std::int64_t from_[chunks];  // bytes of x, of the first channel; negative: zeros
};

/// The same of planes with an odd number of pixels, from single pixels through registers. A step's loads are under way
/// while the loader waits for its stage.
template <int slices, int chunks>
class SingleLoader {
 public:
  __device__ SingleLoader(const PlanesArguments& a, const PlanesMemory<slices, chunks>& m, const PlanesTile& tile)
      : a_(a), m_(m) {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const ChunkPlace place = place_of_chunk(a, tile.chunk + i);
      const int pixel = place.pixel + Share::byte() / 2;
      from_[i] = std::int64_t{place.image} * a.c * a.plane + pixel;
      pixels_[i] = place.image < a.n ? a.plane - pixel : 0;
    }
  }

  __device__ void run() {
    ptx::wait_for_previous_kernel();
    fetch(0);
    for_each_stage(a_, m_, [&](int slot, int step) {
      put(slot);
      ptx::fence_shared_for_async();
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::arrive(m_.full(slot));
      if (step + 1 < a_.steps) fetch(step + 1);
    });
  }

 private:
  using Share = RowShare<4>;
  static constexpr int kRows = kChannels / Share::kStep;

  __device__ static int first_row() { return Share::row(static_cast<int>(threadIdx.x) % kWarpgroup); }

  __device__ void fetch(int step) {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const int channel = step * kChannels + first_row() + row * Share::kStep;
        const auto* const at =
            reinterpret_cast<const std::uint16_t*>(a_.from) + from_[i] + std::int64_t{channel} * a_.plane;
        const int valid = channel < a_.c ? pixels_[i] : 0;
        low_[i][row] = valid > 0 ? __ldg(at) : std::uint16_t{0};
        high_[i][row] = valid > 1 ? __ldg(at + 1) : std::uint16_t{0};
      }
    }
  }

  __device__ void put(int slot) const {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const unsigned word = low_[i][row] | static_cast<unsigned>(high_[i][row]) << 16;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(m_.pixels(slot) + i * kChunkBytes +
                                                     swizzled(first_row() + row * Share::kStep, Share::byte())),
                     "r"(word)
                     : "memory");
      }
    }
  }

  const PlanesArguments& a_;
  const PlanesMemory<slices, chunks>& m_;
  std::int64_t from_[chunks];  // elements of x, of the first channel
  int pixels_[chunks];         // from the thread's first to the plane's last
  std::uint16_t low_[chunks][kRows], high_[chunks][kRows];
};

template <typename T, int slices, int chunks>
__device__ void multiply_stages(const PlanesArguments& a, const PlanesMemory<slices, chunks>& m, int slice,
                                float (&sums)[chunks * kPixels / 2]) {
  Cursor at;
  int before = 0;  // the stage of the step before
  for (int step = 0; step < a.steps; ++step) {
    ptx::wait(m.full(at.slot), at.round);
    const std::uint64_t left = ptx::operand_descriptor(m.weights(at.slot) + slice * kWgmmaWeightBytes, 1024);
    const std::uint64_t right = planes_descriptor(m.pixels(at.slot));
    ptx::fence_operands();
#pragma unroll
    for (int k = 0; k < 4; ++k) {  // 16 channels each: 32 bytes of weights, 16 rows of pixels
      multiply_planes<T, chunks * kPixels>(sums, left + k * (32 >> 4), right + k * (16 * kRowBytes >> 4), k + step);
    }
    ptx::commit_products();
    ptx::wait_products<1>();
    if (step > 0 && threadIdx.x % 32 == 0) ptx::arrive(m.empty(before));
    before = at.slot;
    at.advance_one(a.stages);
  }
  ptx::wait_products<0>();
  ptx::fence_sums(sums);
}

/// For pixels 8 j + 2 (lane % 4) and the next, a thread's sums d[4 j], d[4 j + 1] are those of row 16 warp + lane / 4,
/// and d[4 j + 2], d[4 j + 3] those of the row 8 below: two rounded pixels of a row, with its bias.
template <typename T, Activation activation>
__device__ std::uint32_t finished_pair(const float* d, float bias) {
  if constexpr (activation == Activation::relu) return pack_pair<T, true>(d[0] + bias, d[1] + bias);
  return pack_pair<T>(apply<activation>(d[0] + bias), apply<activation>(d[1] + bias));
}

template <typename T, Activation activation, int chunks, typename Memory>
__device__ void put_outputs(const float (&sums)[chunks * kPixels / 2], const float (&bias)[2], const Memory& m,
                            int slice) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % kWarpgroup / 32 * 16 + lane % 16;
#pragma unroll
  for (int j = 0; j < 8 * chunks; j += 2) {
    const float* d = sums + 4 * j;
    store_matrices(m.outputs(slice, j / 8) + swizzled(row, (j % 8 + lane / 16) * 16),
                   finished_pair<T, activation>(d, bias[0]), finished_pair<T, activation>(d + 2, bias[1]),
                   finished_pair<T, activation>(d + 4, bias[0]), finished_pair<T, activation>(d + 6, bias[1]));
  }
}

/// By tensor copies; called by one thread.
template <int slices, int chunks>
__device__ void store_boxes(const PlanesArguments& a, const PlanesMemory<slices, chunks>& m, const PlanesTile& tile,
                            int slice) {
#pragma unroll
  for (int i = 0; i < chunks; ++i) {
    const ChunkPlace place = place_of_chunk(a, tile.chunk + i);
    ptx::store_box(a.y, place.pixel, (tile.slice + slice) * kChannels, place.image, 0, m.outputs(slice, i));
  }
  ptx::commit_stores();
  ptx::wait_stores_read<0>();  // shared memory must outlive them
}

template <typename Word>
__device__ Word load_staged(std::uint32_t from) {
  Word word;
  if constexpr (sizeof(Word) == 8) {
    asm volatile("ld.shared.b64 %0, [%1];" : "=l"(word) : "r"(from) : "memory");
  } else if constexpr (sizeof(Word) == 2) {
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(word) : "r"(from) : "memory");
  } else {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  }
  return word;
}

template <int bytes, int slices, int chunks>
__device__ void store_words(const PlanesArguments& a, const PlanesMemory<slices, chunks>& m, const PlanesTile& tile,
                            int slice) {
  using Share = RowShare<bytes>;
  using Word =
      std::conditional_t<bytes == 8, unsigned long long, std::conditional_t<bytes == 4, unsigned, unsigned short>>;
  const int first = Share::row(static_cast<int>(threadIdx.x) % kWarpgroup);
  const int channel = (tile.slice + slice) * kChannels + first;
#pragma unroll
  for (int i = 0; i < chunks; ++i) {
    const ChunkPlace place = place_of_chunk(a, tile.chunk + i);
    const int pixel = place.pixel + Share::byte() / 2;
    if (place.image >= a.n || pixel >= a.plane) continue;
    unsigned char* to = a.to + 2 * ((std::int64_t{place.image} * a.k + channel) * a.plane + pixel);
#pragma unroll 4
    for (int row = 0; row < kChannels; row += Share::kStep) {
      if (channel + row >= a.k) break;
      *reinterpret_cast<Word*>(to) = load_staged<Word>(m.outputs(slice, i) + swizzled(first + row, Share::byte()));
      to += Share::kStep * 2 * std::int64_t{a.plane};
    }
  }
}

template <typename T, int bytes, int slices, int chunks>
__device__ void consume(const PlanesArguments& a, const PlanesMemory<slices, chunks>& m, const PlanesTile& tile,
                        int slice) {
  const int thread = threadIdx.x % kWarpgroup;
  ptx::wait_for_previous_kernel();
  float bias[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int channel = (tile.slice + slice) * kChannels + thread / 32 * 16 + thread % 32 / 4 + 8 * i;
    bias[i] = a.bias != nullptr && channel < a.k ? __ldg(a.bias + channel) : 0.0f;
  }
  float sums[chunks * kPixels / 2];
  multiply_stages<T>(a, m, slice, sums);
  ptx::named_sync(kTurnBarrier, slices * kWarpgroup);  // no product reads a stage any more
  if (a.activation == Activation::relu) {
    put_outputs<T, Activation::relu, chunks>(sums, bias, m, slice);
  } else if (a.activation == Activation::tanh) {
    put_outputs<T, Activation::tanh, chunks>(sums, bias, m, slice);
  } else {
    put_outputs<T, Activation::none, chunks>(sums, bias, m, slice);
  }
  if constexpr (bytes == kTensor) ptx::fence_shared_for_async();
  ptx::named_sync(kEpilogueBarrier + slice, kWarpgroup);
  if constexpr (bytes == kTensor) {
    if (thread == 0) store_boxes(a, m, tile, slice);
  } else {
    store_words<bytes>(a, m, tile, slice);
  }
}

template <typename T, int bytes, int slices, int chunks>
__global__ void __launch_bounds__(threads_of(slices, bytes), most_residents(slices, chunks, bytes))
    planes_kernel(const __grid_constant__ PlanesArguments a) {
  extern __shared__ unsigned char shared[];
  const PlanesMemory<slices, chunks> m{(ptx::shared_address(shared) + 1023) & ~1023u};
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);  // uniform, as the compiler can see
  const int pixel_tile = divide(static_cast<int>(blockIdx.x), a.by_channel_tiles);
  const int channel_tile = static_cast<int>(blockIdx.x) - pixel_tile * static_cast<int>(a.by_channel_tiles.value);
  const PlanesTile tile{channel_tile * slices, pixel_tile * chunks};
  constexpr int kPixelWarp = 4 * slices, kWeightWarp = kPixelWarp + loading_warps(bytes);
  if (warp == kWeightWarp && threadIdx.x % 32 == 0) {
    for (int i = 0; i < a.stages; ++i) {
      ptx::init_barrier(m.full(i), 1 + loading_warps(bytes));
      ptx::init_barrier(m.empty(i), 4 * slices);
    }
    ptx::fence_barrier_init();
  }
  if (bytes == kTensor && warp == kPixelWarp && threadIdx.x % 32 == 0) ptx::prefetch_map(a.x);
  __syncthreads();
  ptx::allow_next_kernel();
  if (warp == kWeightWarp) {
    load_weights(a, m, tile);  // while the kernel before may still run: none writes packed weights
  } else if (warp >= kPixelWarp) {
    if constexpr (bytes == kTensor) {
      load_boxes(a, m, tile);
    } else if constexpr (bytes == 2) {
      SingleLoader<slices, chunks>(a, m, tile).run();
    } else {
      CopyingLoader<bytes, slices, chunks>(a, m, tile).run();
    }
  } else {
    consume<T, bytes>(a, m, tile, warp / 4);
  }
}

// ---- packing ----
struct PlanesPacking {
  WeightStrides strides;
  int k, c, steps;
  std::int64_t elements;
};

/// 64 output by 64 input channels each, rows of 128 bytes in the swizzled order of the matrix unit.
__global__ void pack_planes_weights(const PlanesPacking a, const std::uint16_t* __restrict__ weights,
                                    std::uint16_t* __restrict__ packed) {
  const std::int64_t at = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (at >= a.elements) return;
  const auto block = static_cast<int>(at / (kChannels * kChannels));
  const int row = static_cast<int>(at / kChannels % kChannels), slot = static_cast<int>(at / 8 % 8);
  const int slice = block / a.steps, step = block - slice * a.steps;
  const int k = slice * kChannels + row, c = step * kChannels + (slot ^ (row % 8)) * 8 + static_cast<int>(at % 8);
  packed[at] = k < a.k && c < a.c ? weights[k * a.strides.out + c * a.strides.in] : std::uint16_t{0};
}

// ---- host ----
/// The widest access that divides planes: 16 by tensor copies, 8, 4 or 2.
int access_bytes(const Conv2dProblem& p) { return static_cast<int>(2 * std::gcd(p.h * p.w, std::int64_t{8})); }

std::int64_t slices_of(const Conv2dProblem& p) { return round_up(ceil_div(p.k, kChannels), 2); }
std::int64_t steps_of(const Conv2dProblem& p) { return ceil_div(p.c, kChannels); }
std::int64_t chunks_of_image(const Conv2dProblem& p) { return ceil_div(p.h * p.w, kPixels); }

std::int64_t tiles_of(const Conv2dProblem& p, int slices, int chunks) {
  return ceil_div(p.k, slices * kChannels) * ceil_div(p.n * chunks_of_image(p), chunks);
}

/// Blocks of a multiprocessor: two where one each would not hold all.
int residents_of(const Conv2dProblem& p, int slices, int chunks, const cudaDeviceProp& device) {
  const bool many = tiles_of(p, slices, chunks) > device.multiProcessorCount;
  return many ? most_residents(slices, chunks, access_bytes(p)) : 1;
}

constexpr int kAlignmentBytes = 1024;  // stages begin at multiples, dynamic shared memory does not
constexpr int stage_bytes(int slices, int chunks) { return slices * kWgmmaWeightBytes + chunks * kChunkBytes; }

int stages_of(const Conv2dProblem& p, int slices, int chunks, const cudaDeviceProp& device) {
  // A consumer releases a stage in the step after, and CopyingLoader announces that one two steps late. Two hold the
  // outputs of a tile.
  const int least = access_bytes(p) == kTensor ? 2 : 4;
  const int bytes = residents_of(p, slices, chunks, device) == 1
                        ? static_cast<int>(device.sharedMemPerBlockOptin)
                        : static_cast<int>(device.sharedMemPerMultiprocessor / 2 - device.reservedSharedMemPerBlock);
  const int fit = (bytes - kAlignmentBytes - kWgmmaBarrierBytes) / stage_bytes(slices, chunks);
  return std::max(least, std::min({fit, kMaxStages, static_cast<int>(steps_of(p))}));
}

template <typename T, int bytes>
const void* kernel_of(int slices, int chunks) {
  if (slices == 1) {
    return chunks == 1 ? reinterpret_cast<const void*>(planes_kernel<T, bytes, 1, 1>)
                       : reinterpret_cast<const void*>(planes_kernel<T, bytes, 1, 2>);
  }
  return chunks == 1 ? reinterpret_cast<const void*>(planes_kernel<T, bytes, 2, 1>)
                     : reinterpret_cast<const void*>(planes_kernel<T, bytes, 2, 2>);
}

template <typename T>
const void* kernel_of(int bytes, int slices, int chunks) {
  if (bytes == kTensor) return kernel_of<T, kTensor>(slices, chunks);
  if (bytes == 2) return kernel_of<T, 2>(slices, chunks);
  return bytes == 8 ? kernel_of<T, 8>(slices, chunks) : kernel_of<T, 4>(slices, chunks);
}

/// A map of the planes of a tensor with so many channels.
CUtensorMap map_of(const Conv2dProblem& p, std::int64_t channels, const char* which) {
  return planes_map(p.dtype, {.n = p.n, .channels = channels, .plane = p.h * p.w}, {kPixels, kChannels}, which);
}

/// A divisor by one multiplication if that is exact for all of 0 to `largest`; else `reciprocal` is 0.
Divisor divisor_up_to(std::int64_t largest, std::int64_t value) {
  Divisor d = divisor(static_cast<int>(value));
  if (largest * value >= std::int64_t{1} << 32) d.reciprocal = 0;
  return d;
}

class WgmmaPlanesPlan final : public Conv2dPlan {
 public:
  WgmmaPlanesPlan(const Conv2dProblem& problem, const cudaDeviceProp& device, const WgmmaPlanesChoice& choice);

  Conv2dDescription description() const override;
  Packing packing() const override { return packing_of(problem_, "wgmma planes", {}); }
  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(slices_of(problem_) * steps_of(problem_)) * kWgmmaWeightBytes;
  }
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  Conv2dProblem problem_;
  WgmmaPlanesChoice choice_;
  PlanesArguments arguments_{};
  int bytes_;  // of an access
  const void* kernel_;
  int shared_bytes_;
};

WgmmaPlanesPlan::WgmmaPlanesPlan(const Conv2dProblem& p, const cudaDeviceProp& device, const WgmmaPlanesChoice& choice)
    : problem_(p),
      choice_(choice),
      bytes_(access_bytes(p)),
      kernel_(p.dtype == DType::f16 ? kernel_of<__half>(bytes_, choice.slices, choice.chunks)
                                    : kernel_of<__nv_bfloat16>(bytes_, choice.slices, choice.chunks)) {
  PlanesArguments& a = arguments_;
  a.stages = stages_of(p, choice.slices, choice.chunks, device);
  a.steps = static_cast<int>(steps_of(p));
  a.n = static_cast<int>(p.n);
  a.c = static_cast<int>(p.c);
  a.k = static_cast<int>(p.k);
  a.plane = static_cast<int>(p.h * p.w);
  a.chunks_per_image = static_cast<int>(chunks_of_image(p));
  a.by_channel_tiles =
      divisor_up_to(tiles_of(p, choice.slices, choice.chunks), ceil_div(p.k, choice.slices * kChannels));
  a.by_chunks_per_image = divisor_up_to(p.n * chunks_of_image(p) + choice.chunks, a.chunks_per_image);
  a.activation = p.activation;
  if (bytes_ == kTensor) {
    bind_context();
    a.x = map_of(p, p.c, "the input");
    a.y = map_of(p, p.k, "the output");
  }
  shared_bytes_ = kAlignmentBytes + kWgmmaBarrierBytes + a.stages * stage_bytes(choice.slices, choice.chunks);
  GABLE_CUDA_CHECK(cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(device.sharedMemPerBlockOptin)));
}

Conv2dDescription WgmmaPlanesPlan::description() const {
  const std::string copies = bytes_ == kTensor ? "tensor copies" : "copies of " + std::to_string(bytes_) + " bytes";
  return {.kernel = "pointwise_planes",
          .tile = "tiles of " + std::to_string(choice_.slices * kChannels) + " channels x " +
                  std::to_string(choice_.chunks * kPixels) + " pixels by wgmma",
          .staging = std::to_string(arguments_.stages) + " stages of " + std::to_string(kChannels) +
                     " planes in shared memory, " + copies,
          .fusion = "bias and activation before stores"};
}

void WgmmaPlanesPlan::pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const {
  PlanesPacking a{};
  a.strides = strides;
  a.k = static_cast<int>(problem_.k);
  a.c = static_cast<int>(problem_.c);
  a.steps = arguments_.steps;
  a.elements = static_cast<std::int64_t>(packed_bytes() / 2);
  constexpr unsigned kBlock = 256;
  pack_planes_weights<<<static_cast<unsigned>(ceil_div(a.elements, kBlock)), kBlock, 0, stream>>>(
      a, static_cast<const std::uint16_t*>(weights), static_cast<std::uint16_t*>(packed));
  check_launch("pack_planes_weights");
  end_wgmma_packing(stream);
}

Path path_of_copies(int bytes) {
  if (bytes == kTensor) return Path::wgmma_planes_tensor_copies;
  if (bytes == 8) return Path::wgmma_planes_copies_8;
  return bytes == 4 ? Path::wgmma_planes_copies_4 : Path::wgmma_planes_copies_2;
}

void WgmmaPlanesPlan::run(const void* x, const void* packed, const float* bias, void* y, void*,
                          cudaStream_t stream) const {
  note_path(choice_.slices == 1 ? Path::wgmma_planes_64_channels : Path::wgmma_planes_128_channels);
  note_path(choice_.chunks == 1 ? Path::wgmma_planes_64_pixels : Path::wgmma_planes_128_pixels);
  note_path(path_of_copies(bytes_));
  PlanesArguments a = arguments_;
  if (bytes_ == kTensor) {
    set_map_address(a.x, x, "the input");
    set_map_address(a.y, y, "the output");
  }
  a.from = static_cast<const unsigned char*>(x);
  a.to = static_cast<unsigned char*>(y);
  a.weights = static_cast<const unsigned char*>(packed);
  a.bias = problem_.bias ? bias : nullptr;
  cudaLaunchAttribute overlaps{};
  overlaps.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlaps.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(tiles_of(problem_, choice_.slices, choice_.chunks)));
  config.blockDim = dim3(static_cast<unsigned>(threads_of(choice_.slices, bytes_)));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes_);
  config.stream = stream;
  config.attrs = &overlaps;
  config.numAttrs = 1;
  void* parameters[] = {&a};
  GABLE_CUDA_CHECK(cudaLaunchKernelExC(&config, kernel_, parameters));
}

/// Cycles of accesses that are no tensor copies: latency of a step, and of each that a thread loads and stores.
struct PieceCosts {
  double step, load, store;
};
constexpr PieceCosts kCopiedPieces{.step = 169, .load = 23.6, .store = 16.9};
/// Single pixels. Fitted to every tile of 90 layers: picks take 1.046 of the best; to one half of them, 1.047 and 1.044
/// on the other.
constexpr PieceCosts kSinglePieces{.step = 550, .load = 19.3, .store = 23.7};

/// Launch, then memory beside the busiest multiprocessor. A step of its blocks takes as long as the latency of one
/// block's, or as what all load, copy and multiply; then they store. A wave that is not full takes as long as a full
/// one. Cycles where nothing else is said. Fitted to every tile of 203 layers on an H200: the tile or the other kernel
/// that is picked takes 1.032 of the best one's time; fitted to one half of them, 1.043 and 1.028 on the other.
double seconds_of(const Conv2dProblem& p, int slices, int chunks, const cudaDeviceProp& device) {
  constexpr double kHertz = 1.755e9, kLaunch = 1.04e-6;
  constexpr double kL2Bytes = 8e12, kDeviceBytes = 3.3e12, kKept = 50e6;  // a second; of tensors that stay in L2
  constexpr double kLoadBytes = 119;                                      // from L2 to a multiprocessor, in a cycle
  constexpr double kStep = 129;                                           // latency of a step by tensor copies
  constexpr double kProducts = 115;                                       // of a slice and chunk in a step
  constexpr double kFirst = 196, kEpilogue = 496, kEpilogueOfChunk = 307;
  constexpr double kTensorStore = 60;  // of a slice and chunk, of all blocks
  constexpr double kOverlap = 1.2;     // of computing and moving: 1 would be their sum, infinity the longer one
  const std::int64_t share = ceil_div(tiles_of(p, slices, chunks), std::int64_t{device.multiProcessorCount});
  const auto residents = static_cast<std::int64_t>(residents_of(p, slices, chunks, device));
  const auto waves = static_cast<double>(ceil_div(share, residents));
  const double at_once = static_cast<double>(share) / waves;
  const int bytes = access_bytes(p);
  const PieceCosts pieces = bytes == 2 ? kSinglePieces : kCopiedPieces;
  const double pieces_of_chunk = bytes == kTensor ? 0 : static_cast<double>(kChunkBytes) / bytes / kWarpgroup;
  const double copies = pieces.load * pieces_of_chunk * chunks;
  const double latency = (bytes == kTensor ? kStep : pieces.step) + copies;
  const double busy = std::max(kProducts * slices * chunks, stage_bytes(slices, chunks) / kLoadBytes) + copies;
  const double stores = slices * chunks * (bytes == kTensor ? kTensorStore : pieces.store * pieces_of_chunk);
  const double steps = static_cast<double>(steps_of(p)) * std::max(latency, at_once * busy);
  const double cycles = waves * (kFirst + steps + kEpilogue + kEpilogueOfChunk * chunks + at_once * stores);
  const auto elements = static_cast<double>(p.n * p.h * p.w * (p.c + p.k) + p.c * p.k);
  const double moved = elements * static_cast<double>(size_of(p.dtype));
  const double computing = cycles / kHertz, moving = moved / kL2Bytes + std::max(0.0, moved - kKept) / kDeviceBytes;
  return kLaunch + std::pow(std::pow(computing, kOverlap) + std::pow(moving, kOverlap), 1 / kOverlap);
}

}  // namespace

bool WgmmaPlanes::takes(const Conv2dProblem& p, const cudaDeviceProp& device) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;
  return Wgmma::missing(device).empty() && !p.nhwc && size_of(p.dtype) == 2 && p.groups == 1 && p.r * p.s == 1 &&
         p.pool.none() && p.stride_h == 1 && p.stride_w == 1 && p.ho == p.h && p.wo == p.w && p.pad_top == 0 &&
         p.pad_left == 0 && p.x_elements() < kMaxElements && p.y_elements() < kMaxElements;
}

WgmmaPlanesChoice WgmmaPlanes::choose(const Conv2dProblem& p, const cudaDeviceProp& device,
                                      const WgmmaPlanesChoice& forced) {
  WgmmaPlanesChoice best;
  for (const int slices : {1, 2}) {
    for (const int chunks : {1, 2}) {
      if ((forced.slices != 0 && forced.slices != slices) || (forced.chunks != 0 && forced.chunks != chunks)) continue;
      const double seconds = seconds_of(p, slices, chunks, device);
      if (best.slices == 0 || seconds < best.seconds) best = {slices, chunks, seconds};
    }
  }
  if (best.slices == 0) throw std::invalid_argument("no tile of pointwise_planes by wgmma has the forced numbers");
  return best;
}

std::unique_ptr<Conv2dPlan> WgmmaPlanes::make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                              const WgmmaPlanesChoice& choice) {
  return std::make_unique<WgmmaPlanesPlan>(problem, device, choice);
}

}  // namespace gable::cuda
