// See pointwise_planes.h. A stage is 64 bytes of input channels: their weights for the tile's output channels, 80 bytes
// from row to row, and their planes' pixels, 16 bytes more than the tile's from plane to plane, in tf32 32. All pitches
// keep reads of shared memory free of bank conflicts. A block's ring of stages, its products and its clusters are those
// of implicit_gemm with rows and columns exchanged.
#include "cuda/gemm/pointwise_planes.h"

#include <optional>

#include "cuda/common/coverage.h"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/common/packed_weights.h"
#include "cuda/gemm/mma_epilogue.cuh"
#include "cuda/gemm/mma_tile.cuh"
#include "cuda/wgmma/planes.h"

namespace gable::cuda {
namespace {

constexpr int kMultiple = 8;  // of packed channels
template <typename T>
constexpr int kStepChannels = kMmaDepthBytes / static_cast<int>(sizeof(T));  // input channels of a stage

template <typename T>
struct PlanesArguments {
  int c, k;                   // channels of a bundle of groups
  int padded_c, padded_k;     // the same, as packed
  int all_c, all_k;           // of a pixel
  int plane, pixels;          // output pixels of an image and of the batch
  int in_plane, in_w, out_w;  // input pixels of an image and of a row; output pixels of a row
  int stride_h, stride_w;
  bool line;  // output pixels are the input's, one by one
  Divisor by_plane, by_out_w;
  int splits;                     // blocks of a cluster
  int load_pixels, store_pixels;  // of an access: 8 (of 16 bits), 4, 2 or 1
  Activation activation;
  bool has_bias;
  const T *x, *packed;
  const float* bias;
  T* y;
};

/// The first output channel (of its bundle) and pixel of a block's tile, and its steps in the depth.
struct PlanesPlace {
  int bundle, channel, pixel, part, first, last;
};

template <typename Tile>
__device__ __forceinline__ PlanesPlace planes_place(int k, int steps, int splits) {
  const int down = (k + Tile::kRows - 1) / Tile::kRows, tile = static_cast<int>(blockIdx.x), pixels = tile / down;
  const int part = static_cast<int>(blockIdx.z);
  const int each = splits == 1 ? steps : steps / splits, more = steps - each * splits;
  return {.bundle = static_cast<int>(blockIdx.y),
          .channel = (tile - pixels * down) * Tile::kRows,
          .pixel = pixels * Tile::kColumns,
          .part = part,
          .first = each * part + min(part, more),
          .last = each * (part + 1) + min(part + 1, more)};
}

template <typename T, typename Tile>
constexpr int kPlanePitchBytes = (Tile::kColumns + 8) * static_cast<int>(sizeof(T));
template <typename Tile>
constexpr int kWeightBytes = Tile::kRows* kMmaPitchBytes;
template <typename T, typename Tile>
constexpr int kPlanesStageBytes = kWeightBytes<Tile> + kStepChannels<T>* kPlanePitchBytes<T, Tile>;

/// A thread's share of accesses of `pixels` each to the rows of a tile: it keeps its pixels and steps from row to row.
template <typename Tile, int pixels>
struct PlanesShare {
  static constexpr int kAcross = Tile::kColumns / pixels, kRowStep = Tile::kThreads / kAcross;
  static_assert(Tile::kThreads % kAcross == 0);

  __device__ static int column() { return static_cast<int>(threadIdx.x) % kAcross * pixels; }
  __device__ static int row() { return static_cast<int>(threadIdx.x) / kAcross; }
};

/// Where a pixel's first channel lies in y, in elements; negative past the batch's last pixel.
template <typename T>
__device__ __forceinline__ int output_offset(const PlanesArguments<T>& a, int pixel) {
  if (pixel >= a.pixels) return -1;
  return divide(pixel, a.by_plane) * (a.all_k - 1) * a.plane + pixel;
}

/// The same of the input pixel under it, in x.
template <typename T>
__device__ __forceinline__ int input_offset(const PlanesArguments<T>& a, int pixel) {
  if (pixel >= a.pixels) return -1;
  const int image = divide(pixel, a.by_plane), at = pixel - image * a.plane;
  const int first = image * a.all_c * a.in_plane;
  if (a.line) return first + at;
  const int row = divide(at, a.by_out_w);
  return first + row * a.stride_h * a.in_w + (at - row * a.out_w) * a.stride_w;
}

template <typename T, typename Tile>
class PlanesLoader {
 public:
  __device__ __forceinline__ PlanesLoader(const PlanesArguments<T>& a, const PlanesPlace& place)
      : channel_(place.first * kStepChannels<T>),
        first_channel_(place.bundle * a.c),
        channels_(min(a.c, a.all_c - first_channel_)) {
#pragma unroll
    for (int i = 0; i < kA; ++i) {
      const int at = place.channel + slot() + i * kSlots;
      rows_[i] = at < a.k ? (place.bundle * a.padded_k + at) * a.padded_c : -1;
    }
    const int column = a.load_pixels == 8   ? PlanesShare<Tile, 8>::column()
                       : a.load_pixels == 4 ? PlanesShare<Tile, 4>::column()
                       : a.load_pixels == 2 ? PlanesShare<Tile, 2>::column()
                                            : PlanesShare<Tile, 1>::column();
    pixel_ = input_offset(a, place.pixel + column);
  }

  /// The next stage of the depth.
  __device__ __forceinline__ void load(const PlanesArguments<T>& a, unsigned char* stage) {
    const int depth = channel_ + chunk() * kChunkElements;
#pragma unroll
    for (int i = 0; i < kA; ++i) {
      const bool valid = rows_[i] >= 0 && depth < a.padded_c;
      copy_async<16>(stage + (slot() + i * kSlots) * kMmaPitchBytes + chunk() * 16,
                     valid ? a.packed + rows_[i] + depth : a.packed, valid);
    }
    unsigned char* to = stage + kWeightBytes<Tile>;
    if (a.load_pixels == 4) {
      copy_planes<4>(a, to);
    } else if (a.load_pixels == 2) {
      copy_planes<2>(a, to);
    } else if constexpr (sizeof(T) == 4) {
      copy_planes<1>(a, to);
    } else if (a.load_pixels == 8) {
      copy_planes<8>(a, to);
    } else {
      copy_elements(a, to);
    }
    channel_ += kStepChannels<T>;
  }

 private:
  static constexpr int kChunks = kMmaDepthBytes / 16;
  static constexpr int kChunkElements = 16 / static_cast<int>(sizeof(T));
  static constexpr int kSlots = Tile::kThreads / kChunks, kA = Tile::kRows / kSlots;

  __device__ static int chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
  __device__ static int slot() { return static_cast<int>(threadIdx.x) / kChunks; }

  template <int pixels>
  __device__ __forceinline__ void copy_planes(const PlanesArguments<T>& a, unsigned char* to) const {
    using Share = PlanesShare<Tile, pixels>;
    to += Share::row() * kPlanePitchBytes<T, Tile> + Share::column() * static_cast<int>(sizeof(T));
    const int channel = channel_ + Share::row();
    const T* from = a.x + pixel_ + (first_channel_ + channel) * a.in_plane;
#pragma unroll
    for (int i = 0; i < kStepChannels<T> / Share::kRowStep; ++i) {
      const bool valid = pixel_ >= 0 && channel + i * Share::kRowStep < channels_;
      copy_async<pixels* static_cast<int>(sizeof(T))>(to + i * Share::kRowStep * kPlanePitchBytes<T, Tile>,
                                                      valid ? from : a.x, valid);
      from += Share::kRowStep * a.in_plane;
    }
  }

  /// Single elements of 16 bits. All loads come first, because no load passes a store.
  __device__ __forceinline__ void copy_elements(const PlanesArguments<T>& a, unsigned char* to) const {
    using Share = PlanesShare<Tile, 1>;
    constexpr int kCount = kStepChannels<T> / Share::kRowStep;
    to += Share::row() * kPlanePitchBytes<T, Tile> + Share::column() * 2;
    const int channel = channel_ + Share::row();
    const auto* from = reinterpret_cast<const unsigned short*>(a.x) + pixel_ + (first_channel_ + channel) * a.in_plane;
    unsigned short elements[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool valid = pixel_ >= 0 && channel + i * Share::kRowStep < channels_;
      elements[i] = valid ? __ldcg(from + i * Share::kRowStep * a.in_plane) : 0;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      *reinterpret_cast<unsigned short*>(to + i * Share::kRowStep * kPlanePitchBytes<T, Tile>) = elements[i];
    }
  }

  int rows_[kA];
  int pixel_, channel_;
  int first_channel_, channels_;  // of the bundle
};

/// Four 8x8 matrices of 16-bit elements, each transposed; each lane gives the address of a row.
__device__ __forceinline__ void load_transposed(unsigned (&to)[4], std::uint32_t address) {
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
#endif
}

__device__ __forceinline__ float load_shared(std::uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address));
  return value;
}

/// The lane's address in a stage's planes, of the warp's first pixels. 16 bits: ldmatrix's order, planes 0-7 and 8-15,
/// then the next 8 pixels. tf32: the product's own, a plane for each lane of four, a pixel for each four lanes.
template <typename T, typename Tile>
__device__ __forceinline__ int planes_lane(int lane, int warp_column) {
  if constexpr (sizeof(T) == 4) return lane % 4 * kPlanePitchBytes<T, Tile> + (warp_column + lane / 4) * 4;
  return lane % 16 * kPlanePitchBytes<T, Tile> + (warp_column + lane / 16 * 8) * 2;
}

/// B of 32 bytes of depth and 16 pixels: two products' operands.
template <typename T, typename Tile>
__device__ __forceinline__ void load_planes(unsigned (&to)[4], std::uint32_t address) {
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float value = load_shared(address + i % 2 * 4 * kPlanePitchBytes<T, Tile> + i / 2 * 32);
      to[i] = __float_as_uint(round_to_tf32(value));  // weights are rounded when they are packed
    }
  } else {
    load_transposed(to, address);
  }
}

/// Adds one stage's products to the warp's accumulators; a is the lane's address for ldmatrix, b that of
/// planes_lane().
template <typename T, typename Tile>
__device__ __forceinline__ void multiply_planes(std::uint32_t a_at, std::uint32_t b_at,
                                                float (&sums)[Tile::kRowTiles][Tile::kColumnTiles][4]) {
  constexpr int kElement = static_cast<int>(sizeof(T)), kProductChannels = 32 / kElement;
#pragma unroll
  for (int k = 0; k < kStepChannels<T>; k += kProductChannels) {
    unsigned a[Tile::kRowTiles][4], b[Tile::kColumnTiles / 2][4];
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) load_matrices(a[i], a_at + i * 16 * kMmaPitchBytes + k * kElement);
#pragma unroll
    for (int j = 0; j < Tile::kColumnTiles / 2; ++j) {
      load_planes<T, Tile>(b[j], b_at + k * kPlanePitchBytes<T, Tile> + j * 16 * kElement);
    }
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kColumnTiles; ++j) {
        multiply_add<T>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

constexpr int staged_pitch(int columns) { return columns + kMmaStagedPadding; }

/// `rows` staged channels go to the output from the tile's channel `first` on, in accesses of `pixels`.
template <int pixels, typename T, typename Tile>
__device__ __forceinline__ void store_planes_as(const PlanesArguments<T>& a, const PlanesPlace& place, const T* staged,
                                                int first, int rows) {
  using Share = PlanesShare<Tile, pixels>;
  using Access = typename AccessOf<pixels* static_cast<int>(sizeof(T))>::Type;
  constexpr int kTogether = 4;
  const int offset = output_offset(a, place.pixel + Share::column());
  if (offset < 0) return;
  const int first_channel = place.bundle * a.k;  // of the bundle
  const int valid = min(rows, min(a.k, a.all_k - first_channel) - place.channel - first);
  T* const to = a.y + offset + first_channel * a.plane;
  for (int row = Share::row(); row < valid; row += kTogether * Share::kRowStep) {
    Access values[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = row + i * Share::kRowStep;
      if (at < valid)
        values[i] = *reinterpret_cast<const Access*>(staged + at * staged_pitch(Tile::kColumns) + Share::column());
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = row + i * Share::kRowStep;
      if (at < valid) *reinterpret_cast<Access*>(to + (place.channel + first + at) * a.plane) = values[i];
    }
  }
}

template <typename T, typename Tile>
__device__ __forceinline__ void store_planes(const PlanesArguments<T>& a, const PlanesPlace& place, const T* staged,
                                             int first, int rows) {
  if constexpr (sizeof(T) == 2) {
    if (a.store_pixels == 8) {
      store_planes_as<8, T, Tile>(a, place, staged, first, rows);
      return;
    }
  }
  if (a.store_pixels == 4) {
    store_planes_as<4, T, Tile>(a, place, staged, first, rows);
  } else if (a.store_pixels == 2) {
    store_planes_as<2, T, Tile>(a, place, staged, first, rows);
  } else {
    store_planes_as<1, T, Tile>(a, place, staged, first, rows);
  }
}

/// The tile of one block.
template <typename T, typename Tile>
__device__ __forceinline__ void finish(const PlanesArguments<T>& a, const PlanesPlace& place, const float* bias,
                                       float (&sums)[Tile::kRowTiles][Tile::kColumnTiles][4], T* staged) {
  for_each_pair<Tile>(sums, [&](int row, int, float& first, float& second) {
    first += bias[row];
    second += bias[row];
  });
  activate_all(reinterpret_cast<float(&)[Tile::kRowTiles * Tile::kColumnTiles * 4]>(sums), a.activation);
  for_each_pair<Tile>(sums, [&](int row, int column, float first, float second) {
    stage_pair(staged + row * staged_pitch(Tile::kColumns) + column, true, first, second);
  });
  __syncthreads();
  store_planes<T, Tile>(a, place, staged, 0, Tile::kRows);
}

/// The tile of a cluster.
template <typename T, typename Tile>
__device__ __forceinline__ void finish_in_cluster(const PlanesArguments<T>& a, const PlanesPlace& place,
                                                  const float* bias,
                                                  float (&sums)[Tile::kRowTiles][Tile::kColumnTiles][4],
                                                  unsigned char* shared) {
  const ClusterPart part{a.splits, place.part, bias, a.activation};
  const StagedRows<T> staged = add_up_cluster<T, Tile, MmaBias::of_rows>(part, sums, shared);
  store_planes<T, Tile>(a, place, staged.values, staged.first, staged.rows);
}

template <typename T, typename Tile, int kResident>
__global__ void __launch_bounds__(Tile::kThreads, kResident)
    pointwise_planes_kernel(__grid_constant__ const PlanesArguments<T> a) {
  extern __shared__ uint4 memory[];
  auto* const bias = reinterpret_cast<float*>(memory);
  auto* const ring = reinterpret_cast<unsigned char*>(bias + Tile::kRows);
  const PlanesPlace place = planes_place<Tile>(a.k, (a.c + kStepChannels<T> - 1) / kStepChannels<T>, a.splits);
  PlanesLoader<T, Tile> loader(a, place);
  wait_for_previous_kernel();
  if (threadIdx.x < Tile::kRows) {
    const int channel = place.channel + static_cast<int>(threadIdx.x);
    const bool valid = a.has_bias && channel < a.k && place.bundle * a.k + channel < a.all_k;
    bias[threadIdx.x] = valid ? __ldg(a.bias + place.bundle * a.k + channel) : 0.0f;
  }
#pragma unroll 1
  for (int s = 0; s < Tile::kStages - 1; ++s) {
    if (place.first + s < place.last) loader.load(a, ring + s * kPlanesStageBytes<T, Tile>);
    commit_copies();
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp / Tile::kWarpsAcross * Tile::kWarpRows;
  const int warp_column = warp % Tile::kWarpsAcross * Tile::kWarpColumns;
  // ldmatrix's order in A: rows 0-7 and 8-15, then the next 16 bytes.
  const std::uint32_t a_at = shared_address(ring) + (warp_row + lane % 16) * kMmaPitchBytes + lane / 16 * 16;
  const std::uint32_t b_at =
      shared_address(ring) + kWeightBytes<Tile> + static_cast<unsigned>(planes_lane<T, Tile>(lane, warp_column));
  float sums[Tile::kRowTiles][Tile::kColumnTiles][4] = {};
  int now = 0;
  for (int step = place.first; step < place.last; ++step) {
    wait_copies<Tile::kStages - 2>();
    __syncthreads();
    const int next = now == 0 ? Tile::kStages - 1 : now - 1;
    if (step + Tile::kStages - 1 < place.last) loader.load(a, ring + next * kPlanesStageBytes<T, Tile>);
    commit_copies();
    multiply_planes<T, Tile>(a_at + now * kPlanesStageBytes<T, Tile>, b_at + now * kPlanesStageBytes<T, Tile>, sums);
    now = now + 1 == Tile::kStages ? 0 : now + 1;
  }
  wait_copies<0>();
  __syncthreads();  // the epilogue's tile takes the place of the ring
  if (a.splits == 1) {
    finish<T, Tile>(a, place, bias, sums, reinterpret_cast<T*>(ring));
  } else {
    finish_in_cluster<T, Tile>(a, place, bias, sums, ring);
  }
}

// ---- launches ----
template <typename T>
struct PlanesKernel {
  void (*function)(PlanesArguments<T>);
  int threads, stages, stage_bytes, fixed_bytes, epilogue_bytes[4];  // of the epilogue: clusters of 1, 2, 4 and 8

  /// Dynamic shared memory: stages that no step needs are left out, so that more blocks fit a multiprocessor.
  int shared_bytes(std::int64_t channels, int splits) const {
    const int steps = static_cast<int>(ceil_div(ceil_div(channels, kStepChannels<T>), splits));
    int log = 0;
    while (1 << log < splits) ++log;
    return fixed_bytes + std::max(std::min(stages, steps) * stage_bytes, epilogue_bytes[log]);
  }
};

template <typename T, typename Tile, int kResident>
PlanesKernel<T> compiled() {
  return {pointwise_planes_kernel<T, Tile, kResident>,
          Tile::kThreads,
          Tile::kStages,
          kPlanesStageBytes<T, Tile>,
          Tile::kRows * static_cast<int>(sizeof(float)),
          {mma_epilogue_bytes<T, Tile>(1), mma_epilogue_bytes<T, Tile>(2), mma_epilogue_bytes<T, Tile>(4),
           mma_epilogue_bytes<T, Tile>(8)}};
}

/// The candidates of planes_choice.cpp.
template <typename T>
PlanesKernel<T> kernel_of(const PlanesChoice& choice) {
  if (choice.channels == 128) {
    if (choice.pixels == 128 && choice.threads == 128) return compiled<T, MmaTile<128, 128, 64, 64, 4>, 2>();
    if (choice.pixels == 128) return compiled<T, MmaTile<128, 128, 64, 32, 4>, 2>();
    return compiled<T, MmaTile<128, 64, 64, 32, 4>, 3>();
  }
  if (choice.channels == 64) {
    if (choice.pixels == 128) return compiled<T, MmaTile<64, 128, 64, 32, 4>, 3>();
    return compiled<T, MmaTile<64, 64, 32, 32, 4>, 5>();
  }
  if (choice.pixels == 128) return compiled<T, MmaTile<32, 128, 32, 32, 4>, 5>();
  if (choice.pixels == 64) return compiled<T, MmaTile<32, 64, 16, 32, 6>, 8>();
  return compiled<T, MmaTile<32, 32, 16, 16, 8>, 8>();
}

/// The order of packed weights.
PackedOrder order_of(const Conv2dProblem& p, int bundle) {
  PackedOrder order = packed_order(p, kMultiple, kMultiple, bundle);
  order.depth_innermost = true;
  return order;
}

class PointwisePlanesPlan final : public PackedOrderPlan {
 public:
  PointwisePlanesPlan(const Conv2dProblem& problem, const cudaDeviceProp& device, const PlanesChoice& choice);

  Conv2dDescription description() const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  template <typename T>
  void launch(const PlanesArguments<T>& arguments, cudaStream_t stream) const;
  void note_paths() const;

  std::int64_t bundles() const { return order().groups; }
  /// Of a bundle.
  std::int64_t tiles() const {
    const Conv2dProblem& p = problem();
    return ceil_div(choice_.bundle * p.group_k(), choice_.channels) * ceil_div(p.n * p.ho * p.wo, choice_.pixels);
  }

  PlanesChoice choice_;
  PlanesAccess access_;
  int shared_bytes_ = 0;
  bool overlaps_;  // launches may start before the kernel before them has ended
};

PointwisePlanesPlan::PointwisePlanesPlan(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                         const PlanesChoice& choice)
    : PackedOrderPlan(problem, order_of(problem, choice.bundle)),
      choice_(choice),
      access_(planes_access(problem)),
      overlaps_(device.major >= 9) {
  with_type(problem.dtype, [&](auto zero) {
    const auto kernel = kernel_of<decltype(zero)>(choice_);
    GABLE_CUDA_CHECK(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(device.sharedMemPerBlockOptin)));
    shared_bytes_ = kernel.shared_bytes(choice_.bundle * problem.group_c(), choice_.splits);
    // Clusters would not fill the processing clusters that they run in.
    if (choice_.splits > 1) return;
    const auto* const function = reinterpret_cast<const void*>(kernel.function);
    shared_bytes_ = even_shared_bytes(resident_blocks(function, kernel.threads, shared_bytes_), shared_bytes_,
                                      tiles() * bundles(), 2, device);
  });
}

Conv2dDescription PointwisePlanesPlan::description() const {
  const int element = static_cast<int>(size_of(problem().dtype));
  std::string tile =
      "tiles of " + std::to_string(choice_.channels) + " channels x " + std::to_string(choice_.pixels) + " pixels";
  if (choice_.bundle > 1) tile += " of " + std::to_string(choice_.bundle) + " groups";
  if (choice_.splits > 1) tile += ", the depth in " + std::to_string(choice_.splits) + " blocks of a cluster";
  return {.kernel = "pointwise_planes",
          .tile = tile,
          .staging = "stages of " + std::to_string(kMmaDepthBytes / element) + " planes in shared memory, copies of " +
                     std::to_string(element * access_.load) + " bytes",
          .fusion = "bias and activation before stores of " + std::to_string(element * access_.store) + " bytes"};
}

Path tile_path(const PlanesChoice& choice) {
  if (choice.channels == 128) {
    if (choice.pixels == 64) return Path::pointwise_planes_128x64;
    return choice.threads == 128 ? Path::pointwise_planes_128x128_wide : Path::pointwise_planes_128x128;
  }
  if (choice.channels == 64) {
    return choice.pixels == 128 ? Path::pointwise_planes_64x128 : Path::pointwise_planes_64x64;
  }
  return choice.pixels == 128  ? Path::pointwise_planes_32x128
         : choice.pixels == 64 ? Path::pointwise_planes_32x64
                               : Path::pointwise_planes_32x32;
}

void PointwisePlanesPlan::note_paths() const {
  note_path(tile_path(choice_));
  note_path(access_.load == 8   ? Path::pointwise_planes_8_pixels
            : access_.load == 4 ? Path::pointwise_planes_4_pixels
            : access_.load == 2 ? Path::pointwise_planes_2_pixels
                                : Path::pointwise_planes_elements);
  if (choice_.splits > 1) note_path(Path::pointwise_planes_cluster);
  if (bundles() > 1) note_path(Path::pointwise_planes_groups);
  if (choice_.bundle > 1) note_path(Path::pointwise_planes_bundles);
  if (problem().dtype == DType::f32) note_path(Path::pointwise_planes_tf32);
}

template <typename T>
void PointwisePlanesPlan::launch(const PlanesArguments<T>& arguments, cudaStream_t stream) const {
  const PlanesKernel<T> kernel = kernel_of<T>(choice_);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(tiles()), static_cast<unsigned>(bundles()),
                                       static_cast<unsigned>(choice_.splits)),
                          .threads = kernel.threads,
                          .shared_bytes = shared_bytes_,
                          .overlaps = overlaps_,
                          .cluster = choice_.splits};
  cuda::launch(kernel.function, shape, stream, arguments);
}

void PointwisePlanesPlan::run(const void* x, const void* packed, const float* bias, void* y, void*,
                              cudaStream_t stream) const {
  const Conv2dProblem& p = problem();
  const auto i = [](std::int64_t value) { return static_cast<int>(value); };
  with_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch<T>({.c = i(choice_.bundle * p.group_c()),
               .k = i(choice_.bundle * p.group_k()),
               .padded_c = i(order().c),
               .padded_k = i(order().k),
               .all_c = i(p.c),
               .all_k = i(p.k),
               .plane = i(p.ho * p.wo),
               .pixels = i(p.n * p.ho * p.wo),
               .in_plane = i(p.h * p.w),
               .in_w = i(p.w),
               .out_w = i(p.wo),
               .stride_h = i(p.stride_h),
               .stride_w = i(p.stride_w),
               .line = planes_are_line(p),
               .by_plane = Divisor(i(p.ho * p.wo)),
               .by_out_w = Divisor(i(p.wo)),
               .splits = choice_.splits,
               .load_pixels = access_.load,
               .store_pixels = access_.store,
               .activation = p.activation,
               .has_bias = p.bias,
               .x = static_cast<const T*>(x),
               .packed = static_cast<const T*>(packed),
               .bias = bias,
               .y = static_cast<T*>(y)},
              stream);
  });
  note_paths();
}

}  // namespace

std::string PointwisePlanes::missing(const cudaDeviceProp& device) { return mma_missing(device); }

std::string PointwisePlanes::refusal(const Conv2dProblem& p, const cudaDeviceProp&) {
  if (p.math != (p.dtype == DType::f32 ? Math::tf32 : Math::strict))
    return "it multiplies f16 and bf16 in strict math, and f32 as tf32";
  if (p.nhwc) return "layout nhwc; it takes nchw";
  if (p.r * p.s != 1) return "filter " + std::to_string(p.r) + "x" + std::to_string(p.s) + "; it takes 1x1";
  if (p.pad_top != 0 || p.pad_left != 0 || (p.ho - 1) * p.stride_h >= p.h || (p.wo - 1) * p.stride_w >= p.w) {
    return "padding; it takes none";
  }
  if (!p.pool.none()) return "a max-pool; it has none";
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;
  if (planes_span(p) >= kMaxElements) {
    return "input and planes beyond it, to whole steps, reach 2^31 elements; its indices have 32 bits";
  }
  return implicit_refusal(p);
}

namespace {

/// The kernel by wgmma, where it takes the problem in less time than `seconds`.
std::optional<WgmmaPlanesChoice> faster_by_wgmma(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                                 double seconds) {
  if (!WgmmaPlanes::takes(problem, device)) return {};
  const WgmmaPlanesChoice choice = WgmmaPlanes::choose(problem, device);
  return choice.seconds < seconds ? std::optional(choice) : std::nullopt;
}

}  // namespace

double PointwisePlanes::seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  const double seconds = choose_planes(problem, device).seconds;
  const auto wgmma = faster_by_wgmma(problem, device, seconds);
  return wgmma ? wgmma->seconds : seconds;
}

std::unique_ptr<Conv2dPlan> PointwisePlanes::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  const PlanesChoice choice = choose_planes(problem, device);
  if (const auto wgmma = faster_by_wgmma(problem, device, choice.seconds)) {
    return WgmmaPlanes::make(problem, device, *wgmma);
  }
  return std::make_unique<PointwisePlanesPlan>(problem, device, choice);
}

std::unique_ptr<Conv2dPlan> PointwisePlanes::make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                                  const PlanesChoice& forced) {
  return std::make_unique<PointwisePlanesPlan>(problem, device, choose_planes(problem, device, forced));
}

}  // namespace gable::cuda
