// See implicit_gemm.h.
#include "cuda/gemm/implicit_gemm.h"

#include <numeric>

#include "cuda/common/coverage.h"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/common/packed_weights.h"
#include "cuda/gemm/mma_epilogue.cuh"
#include "cuda/gemm/mma_tile.cuh"
#include "cuda/gemm/whole_pixels.cuh"

namespace gable::cuda {
namespace {

constexpr int kPaddedColumns = 8;  // packed output channels come in multiples of this

/// Grid: x the tiles, columns first, since tiles of the same rows share pixels in the L2; y the groups; z the parts.
template <typename Tile>
__device__ __forceinline__ BlockPlace mma_place(const ImplicitGemm& g, int splits, int stage_depth) {
  const int across = (g.columns + Tile::kColumns - 1) / Tile::kColumns, tile = static_cast<int>(blockIdx.x);
  const int part = static_cast<int>(blockIdx.z), stages = (g.depth + stage_depth - 1) / stage_depth;
  const int each = splits == 1 ? stages : stages / splits, more = stages - each * splits;
  const int row = across == 1 ? tile : tile / across;
  return {.row = row * Tile::kRows,
          .column = (tile - row * across) * Tile::kColumns,
          .group = static_cast<int>(blockIdx.y),
          .part = part,
          .first = each * part + min(part, more),
          .last = each * (part + 1) + min(part + 1, more)};
}

template <typename T, typename Tile, int kResident>
__global__ void __launch_bounds__(Tile::kThreads, kResident)
    implicit_gemm_kernel(__grid_constant__ const MmaArguments<T> a) {
  extern __shared__ uint4 memory[];
  auto* const bias = reinterpret_cast<float*>(memory);
  auto* const ring = reinterpret_cast<unsigned char*>(bias + Tile::kColumns);
  constexpr int kDepth = kMmaDepthBytes / static_cast<int>(sizeof(T));
  const BlockPlace place = mma_place<Tile>(a.gemm, a.splits, kDepth);
  MmaLoader<T, Tile> loader(a, place);
  wait_for_previous_kernel();
  if (threadIdx.x < Tile::kColumns) {
    const int column = place.column + static_cast<int>(threadIdx.x);
    const bool valid = a.gemm.bias && column < a.gemm.columns;
    if (valid) {
      copy_async<4>(bias + threadIdx.x, a.bias + place.group * a.gemm.columns + column, true);
    } else {
      bias[threadIdx.x] = 0;
    }
  }
#pragma unroll 1
  for (int s = 0; s < Tile::kStages - 1; ++s) {
    if (place.first + s < place.last) loader.load(a, ring + s * Tile::kStageBytes);
    commit_copies();
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp / Tile::kWarpsAcross * Tile::kWarpRows;
  const int warp_column = warp % Tile::kWarpsAcross * Tile::kWarpColumns;
  // ldmatrix's order in A: rows 0-7 and 8-15, then the next 16 bytes. In B: 16 bytes, the next 16, then columns 8-15.
  const std::uint32_t a_at = shared_address(ring) + (warp_row + lane % 16) * kMmaPitchBytes + lane / 16 * 16;
  const std::uint32_t b_at = shared_address(ring) +
                             (Tile::kRows + warp_column + lane % 8 + lane / 16 * 8) * kMmaPitchBytes +
                             lane / 8 % 2 * 16;
  float sums[Tile::kRowTiles][Tile::kColumnTiles][4] = {};
  int now = 0;
  for (int step = place.first; step < place.last; ++step) {
    wait_copies<Tile::kStages - 2>();
    __syncthreads();
    const int next = now == 0 ? Tile::kStages - 1 : now - 1;
    if (step + Tile::kStages - 1 < place.last) loader.load(a, ring + next * Tile::kStageBytes);
    commit_copies();
    multiply<T, Tile>(a_at + now * Tile::kStageBytes, b_at + now * Tile::kStageBytes, sums);
    now = now + 1 == Tile::kStages ? 0 : now + 1;
  }
  wait_copies<0>();
  __syncthreads();  // the epilogue's tile takes the place of the ring
  if (a.splits == 1) {
    store_tile<T, Tile>(a, place, bias, sums, reinterpret_cast<T*>(ring));
  } else if (a.cluster) {
    store_tile_of_cluster<T, Tile>(a, place, bias, sums, ring);
  } else {
    store_sums<T, Tile>(a, place, sums);
  }
}

// ---- launches ----
template <typename T>
struct MmaKernel {
  void (*function)(MmaArguments<T>);
  int threads, stages, stage_bytes, fixed_bytes, epilogue_bytes[4];  // of the epilogue: clusters of 1, 2, 4 and 8

  /// Dynamic shared memory: stages that no step needs are left out, so that more blocks fit a multiprocessor.
  int shared_bytes(const ImplicitGemm& g, const MmaChoice& choice) const {
    const int depth = kMmaDepthBytes / static_cast<int>(sizeof(T));
    const int steps = static_cast<int>(ceil_div(ceil_div(g.depth, depth), choice.splits));
    int log = 0;
    while (choice.cluster && 1 << log < choice.splits) ++log;
    return fixed_bytes + std::max(std::min(stages, steps) * stage_bytes, epilogue_bytes[log]);
  }
};

template <typename T, typename Tile, int kResident>
MmaKernel<T> compiled() {
  return {implicit_gemm_kernel<T, Tile, kResident>,
          Tile::kThreads,
          Tile::kStages,
          Tile::kStageBytes,
          Tile::kColumns * static_cast<int>(sizeof(float)),
          {mma_epilogue_bytes<T, Tile>(1), mma_epilogue_bytes<T, Tile>(2), mma_epilogue_bytes<T, Tile>(4),
           mma_epilogue_bytes<T, Tile>(8)}};
}

template <typename T, std::size_t... candidates>
MmaKernel<T> kernel_of(const MmaChoice& choice, std::index_sequence<candidates...>) {
  constexpr MmaKernel<T> (*kCompiled[])() = {
      compiled<T, MmaTileOf<candidates>, kMmaCandidates[candidates].residents>...};
  return kCompiled[choice.candidate]();
}

/// Channels of a row are whole 16 bytes in packed weights.
int channels_of_chunk(const Conv2dProblem& p) { return 16 / static_cast<int>(size_of(p.dtype)); }

/// The widest access that a pixel's channels and a group's are multiples of, in bytes, at most 16.
int access_bytes(const Conv2dProblem& p, std::int64_t channels, std::int64_t of_group) {
  const std::int64_t common = std::gcd(std::gcd(channels, of_group), std::int64_t{16});
  return static_cast<int>(std::min<std::int64_t>(16, common * static_cast<std::int64_t>(size_of(p.dtype))));
}

/// The order of packed weights.
PackedOrder order_of(const Conv2dProblem& p) {
  PackedOrder order = packed_order(p, channels_of_chunk(p), kPaddedColumns);
  order.depth_innermost = true;
  return order;
}

template <typename T>
struct MmaLaunch {
  void (*function)(MmaArguments<T>);
  int threads, shared_bytes;
};

class ImplicitGemmPlan final : public PackedOrderPlan {
 public:
  ImplicitGemmPlan(const Conv2dProblem& problem, const cudaDeviceProp& device, const MmaChoice& forced);

  Conv2dDescription description() const override;
  std::size_t workspace_bytes() const override { return choice_.cluster ? 0 : parts_bytes(gemm_, choice_.splits); }
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  template <typename T>
  MmaLaunch<T> launch_of() const;
  template <typename T>
  void launch(const MmaArguments<T>& arguments, cudaStream_t stream) const;
  void note_paths() const;

  ImplicitGemm gemm_;
  MmaChoice choice_;
  bool whole_pixels_;
  int copy_bytes_, store_bytes_, shared_bytes_ = 0;
  bool overlaps_;  // launches may start before the kernel before them has ended
};

ImplicitGemmPlan::ImplicitGemmPlan(const Conv2dProblem& problem, const cudaDeviceProp& device, const MmaChoice& forced)
    : PackedOrderPlan(problem, order_of(problem)),
      gemm_(implicit_gemm_of(problem, channels_of_chunk(problem), kPaddedColumns)),
      choice_(choose_mma(problem, gemm_, device, forced)),
      whole_pixels_(choice_.splits == 1 && takes_whole_pixels(problem, gemm_, choice_.rows, choice_.columns, device)),
      copy_bytes_(access_bytes(problem, problem.c, problem.group_c())),
      store_bytes_(access_bytes(problem, problem.k, problem.group_k())),
      overlaps_(device.major >= 9) {
  with_type(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    const MmaLaunch<T> kernel = launch_of<T>();
    GABLE_CUDA_CHECK(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(device.sharedMemPerBlockOptin)));
    shared_bytes_ = kernel.shared_bytes;
    // Clusters would not fill the processing clusters that they run in.
    if (choice_.splits > 1 && choice_.cluster) return;
    const auto* const function = reinterpret_cast<const void*>(kernel.function);
    const std::int64_t tiles = ceil_div(gemm_.columns, choice_.columns) * ceil_div(gemm_.rows, choice_.rows);
    shared_bytes_ = even_shared_bytes(resident_blocks(function, kernel.threads, shared_bytes_), shared_bytes_,
                                      tiles * gemm_.groups * choice_.splits, choice_.splits == 1 ? 2 : 1, device);
  });
}

template <typename T>
MmaLaunch<T> ImplicitGemmPlan::launch_of() const {
  if (whole_pixels_) {
    const WholePixelsKernel<T> kernel = whole_pixels_kernel<T>(choice_);
    return {kernel.function, kernel.threads, kernel.shared_bytes(gemm_)};
  }
  const MmaKernel<T> kernel = kernel_of<T>(choice_, kEachMmaCandidate);
  return {kernel.function, kernel.threads, kernel.shared_bytes(gemm_, choice_)};
}

Conv2dDescription ImplicitGemmPlan::description() const {
  std::string tile = tile_text({choice_.rows, choice_.columns, 1});
  if (choice_.splits > 1) {
    tile += ", the depth in " + std::to_string(choice_.splits) + (choice_.cluster ? " blocks of a cluster" : " parts");
  }
  return {.kernel = "implicit_gemm",
          .tile = tile,
          .staging = whole_pixels_
                         ? "whole pixels in shared memory, as one run of bytes"
                         : "stages of 64 bytes in shared memory, copies of " + std::to_string(copy_bytes_) + " bytes",
          .fusion = "pool, bias and activation before stores of " + std::to_string(store_bytes_) + " bytes"};
}

void ImplicitGemmPlan::note_paths() const {
  note_path(kMmaCandidates[choice_.candidate].path);
  note_path(whole_pixels_       ? whole_pixels_path(problem())
            : copy_bytes_ == 16 ? Path::implicit_gemm_copies_16
            : copy_bytes_ == 8  ? Path::implicit_gemm_copies_8
            : copy_bytes_ == 4  ? Path::implicit_gemm_copies_4
                                : Path::implicit_gemm_copies_2);
  note_path(store_bytes_ == 16 ? Path::implicit_gemm_stores_16 : Path::implicit_gemm_stores_narrow);
  if (choice_.splits > 1) note_path(choice_.cluster ? Path::implicit_gemm_cluster : Path::implicit_gemm_split);
}

template <typename T>
void ImplicitGemmPlan::launch(const MmaArguments<T>& arguments, cudaStream_t stream) const {
  const MmaLaunch<T> kernel = launch_of<T>();
  const std::int64_t tiles = ceil_div(gemm_.columns, choice_.columns) * ceil_div(gemm_.rows, choice_.rows);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(gemm_.groups),
                                       static_cast<unsigned>(choice_.splits)),
                          .threads = kernel.threads,
                          .shared_bytes = shared_bytes_,
                          .overlaps = overlaps_,
                          .cluster = choice_.cluster ? choice_.splits : 1};
  cuda::launch(kernel.function, shape, stream, arguments);
}

void ImplicitGemmPlan::run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
                           cudaStream_t stream) const {
  auto* parts = static_cast<float*>(workspace);
  with_type(problem().dtype, [&](auto zero) {
    using T = decltype(zero);
    launch<T>({gemm_, choice_.splits, choice_.cluster, copy_bytes_, store_bytes_, static_cast<const T*>(x),
               static_cast<const T*>(packed), bias, static_cast<T*>(y), parts},
              stream);
    note_paths();
    if (choice_.splits > 1 && !choice_.cluster) {
      add_parts(gemm_, choice_.splits, parts, bias, static_cast<T*>(y), stream);
    }
  });
}

}  // namespace

std::string ImplicitGemmMma::missing(const cudaDeviceProp& device) { return mma_missing(device); }

std::string ImplicitGemmMma::refusal(const Conv2dProblem& p, const cudaDeviceProp&) {
  constexpr std::int64_t kMinColumns = 4;
  const bool tensor = p.dtype == DType::f32 ? p.math == Math::tf32 : p.math == Math::strict;
  if (!tensor)
    return p.dtype == DType::f32 ? "f32: it multiplies f16, bf16, and f32 as tf32 (math tf32)"
                                 : "math other than strict";
  if (p.group_k() < kMinColumns && p.groups > 1) {
    return std::to_string(p.group_k()) + " output channels a group; a tile of 32 would be empty below " +
           std::to_string(kMinColumns);
  }
  return implicit_refusal(p);
}

double ImplicitGemmMma::seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return choose_mma(problem, implicit_gemm_of(problem, channels_of_chunk(problem), kPaddedColumns), device).seconds;
}

std::unique_ptr<Conv2dPlan> ImplicitGemmMma::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return make(problem, device, {});
}

std::unique_ptr<Conv2dPlan> ImplicitGemmMma::make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                                  const MmaChoice& forced) {
  return std::make_unique<ImplicitGemmPlan>(problem, device, forced);
}

}  // namespace gable::cuda
