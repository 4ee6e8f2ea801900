// See register_tile.h.
#include "cuda/gemm/register_tile.h"

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/packed_weights.h"
#include "cuda/gemm/register_tile.cuh"

namespace gable::cuda {
namespace {

using namespace register_tile;

template <typename Tile>
constexpr GemmCandidate candidate(double rate, double stage, double single_output) {
  return {Tile::kRows,        Tile::kColumns, Tile::kDepth, Tile::kThreads / 32, Tile::kResident,
          Tile::kSharedBytes, rate,           stage,        single_output};
}
constexpr GemmCandidate kCandidates[] = {
    candidate<Wide>(0.875, 424, 1.3),        candidate<Large>(0.902, 32, 1.3),
    candidate<Tall>(0.853, 1171, 0.35),      candidate<Broad>(0.883, 1087, 0.45),
    candidate<BroadHalves>(0.819, 556, 0.5), candidate<Small>(0.842, 1051, 0.35),
    candidate<SmallHalves>(0.821, 623, 0.2), candidate<SmallQuarters>(1.023, 1248, 0.2)};

template <Gather gather>
Kernel kernel_of(int candidate) {
  switch (candidate) {
    case 0:
      return wide_kernel<Wide>(gather);
    case 1:
      return wide_kernel<Large>(gather);
    case 2:
      return compiled<Tall, gather>();
    case 3:
      return compiled<Broad, gather>();
    case 4:
      return compiled<BroadHalves, gather>();
    case 5:
      return compiled<Small, gather>();
    case 6:
      return compiled<SmallHalves, gather>();
    default:
      return compiled<SmallQuarters, gather>();
  }
}

Gather gather_of(const ImplicitGemm& gemm, const GemmTile& tile) {
  return cuda::gather_of(gemm, kCandidates[tile.candidate].depth);
}

Kernel kernel_of(const ImplicitGemm& gemm, const GemmTile& tile) {
  switch (gather_of(gemm, tile)) {
    case Gather::stages:
      return kernel_of<Gather::stages>(tile.candidate);
    case Gather::one_tap:
      return kernel_of<Gather::one_tap>(tile.candidate);
    case Gather::chunks:
      return kernel_of<Gather::chunks>(tile.candidate);
    default:
      return kernel_of<Gather::elements>(tile.candidate);
  }
}

/// Of an H200, fitted to every tile and split of half of 247 layers; on the other half the picks take 1.021 of the
/// best. Single outputs are of five layers with odd channels.
constexpr GemmCosts kCosts{.fma_per_cycle = 128,
                           .clock = 1.755e9,
                           .together = 3.85,
                           .chunks = 0.088,
                           .elements = 0.259,
                           .block = 4345,
                           .output = 0.0659,
                           .last_wave = 0.581,
                           .start = 0.901e-6,
                           .bytes_per_second = 2.19e12,
                           .second_start = 0.945e-6,
                           .part_bytes_per_second = 4.13e12};

void note_paths(const ImplicitGemm& gemm, const GemmTile& tile) {
  constexpr Path kPaths[] = {Path::register_tile_128x128, Path::register_tile_128x256,       Path::register_tile_128x64,
                             Path::register_tile_64x128,  Path::register_tile_64x128_halves, Path::register_tile_64x64,
                             Path::register_tile_halves,  Path::register_tile_quarters};
  note_path(kPaths[tile.candidate]);
  switch (gather_of(gemm, tile)) {
    case Gather::stages:
      return note_path(Path::register_tile_stages);
    case Gather::one_tap:
      return note_path(Path::register_tile_one_tap);
    case Gather::chunks:
      return note_path(Path::register_tile_chunks);
    case Gather::elements:
      return note_path(Path::register_tile_elements);
  }
}

/// The order of packed weights.
PackedOrder order_of(const Conv2dProblem& p) {
  PackedOrder order = packed_order(p, kPadding, kPadding);
  order.swapped = true;
  return order;
}

/// With a second kernel that adds up parts, an early start pays for short ones alone.
constexpr double kShort = 15e-6;

class RegisterTilePlan final : public PackedOrderPlan {
 public:
  RegisterTilePlan(const Conv2dProblem& problem, const cudaDeviceProp& device, const GemmTileOverrides& overrides);

  Conv2dDescription description() const override;
  std::size_t workspace_bytes() const override { return parts_bytes(gemm_, tile_.splits); }
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  ImplicitGemm gemm_;
  GemmTile tile_;
  int shared_bytes_ = 0;
  bool overlaps_;  // launches may start before the kernel before them has ended
};

RegisterTilePlan::RegisterTilePlan(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                   const GemmTileOverrides& overrides)
    : PackedOrderPlan(problem, order_of(problem)),
      gemm_(implicit_gemm_of(problem, kPadding, kPadding)),
      tile_(choose_tile(gemm_, kCandidates, kCosts, device, overrides)),
      overlaps_(device.major >= 9 && (tile_.splits == 1 || tile_.seconds < kShort)) {
  const Kernel kernel = kernel_of(gemm_, tile_);
  kernel.prepare(device);
  const GemmGrid grid = grid_of(gemm_, tile_);
  const auto* const function = reinterpret_cast<const void*>(kernel.function);
  shared_bytes_ = even_shared_bytes(resident_blocks(function, kernel.threads, kernel.shared_bytes), kernel.shared_bytes,
                                    std::int64_t{grid.x} * grid.y, tile_.splits == 1 ? 2 : 1, device);
}

Conv2dDescription RegisterTilePlan::description() const {
  constexpr const char* kShares[] = {", 8x16 a thread",
                                     ", 8x16 a thread",
                                     ", 8x8 a thread",
                                     ", 8x8 a thread",
                                     ", 8x8 a thread of half a stage",
                                     ", 8x8 a thread",
                                     ", 8x8 a thread of half a stage",
                                     ", 8x8 a thread of a quarter of a stage"};
  return {.kernel = "register_tile",
          .tile = tile_text(tile_) + kShares[tile_.candidate],
          .staging = "stages in shared memory, operands a place ahead",
          .fusion = "pool, bias and activation in registers"};
}

void RegisterTilePlan::run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
                           cudaStream_t stream) const {
  const auto* source = static_cast<const float*>(x);
  auto* parts = static_cast<float*>(workspace);
  auto* to = static_cast<float*>(y);
  const Kernel kernel = kernel_of(gemm_, tile_);
  const GemmGrid grid = grid_of(gemm_, tile_);
  const LaunchShape shape{dim3(grid.x, grid.y), kernel.threads, shared_bytes_, overlaps_};
  cuda::launch(kernel.function, shape, stream, gemm_, tile_.splits, source, static_cast<const float*>(packed), bias, to,
               parts);
  note_paths(gemm_, tile_);
  if (tile_.splits == 1) return;
  note_path(Path::register_tile_split);
  add_parts(gemm_, tile_.splits, parts, bias, to, stream);
}

}  // namespace

std::string RegisterTile::refusal(const Conv2dProblem& p, const cudaDeviceProp&) {
  constexpr std::int64_t kMinColumns = 4;
  if (p.dtype != DType::f32 || p.math == Math::tf32) {
    return std::string(name_of(p.dtype)) + (p.math == Math::tf32 ? " as tf32" : "") +
           ": it computes f32 on the f32 units";
  }
  if (p.group_k() < kMinColumns && p.groups > 1) {
    return std::to_string(p.group_k()) + " output channels a group; a tile of 64 would be empty below " +
           std::to_string(kMinColumns);
  }
  return implicit_refusal(p);
}

double RegisterTile::seconds(const Conv2dProblem& p, const cudaDeviceProp& device) {
  return choose_tile(implicit_gemm_of(p, kPadding, kPadding), kCandidates, kCosts, device).seconds;
}

std::unique_ptr<Conv2dPlan> RegisterTile::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return make(problem, device, {});
}

std::unique_ptr<Conv2dPlan> RegisterTile::make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                               const GemmTileOverrides& overrides) {
  return std::make_unique<RegisterTilePlan>(problem, device, overrides);
}

std::span<const GemmCandidate> RegisterTile::tiles() { return kCandidates; }

}  // namespace gable::cuda
