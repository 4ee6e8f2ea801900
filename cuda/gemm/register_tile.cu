// See register_tile.h.
#include "cuda/gemm/register_tile.h"

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/gemm/packed_weights.h"
#include "cuda/gemm/register_tile.cuh"

namespace gable::cuda {
namespace {

using namespace register_tile;

template <typename Tile>
constexpr GemmCandidate candidate(double rate, double stage, double single_output = 0) {
  return {Tile::kRows, Tile::kColumns, Tile::kThreads / 32, Tile::kResident, Tile::kSharedBytes,
          rate,        stage,          single_output};
}
constexpr GemmCandidate kCandidates[] = {candidate<Wide>(0.768, 6239, 1.1),   candidate<Tall>(0.758, 3022),
                                         candidate<Broad>(0.825, 3022),       candidate<Small>(0.651, 3022),
                                         candidate<SmallHalves>(0.801, 1361), candidate<SmallQuarters>(0.626, 1375)};

template <Gather gather>
Kernel kernel_of(int candidate) {
  switch (candidate) {
    case 0:
      return wide_kernel(gather);
    case 1:
      return compiled<Tall, gather>();
    case 2:
      return compiled<Broad, gather>();
    case 3:
      return compiled<Small, gather>();
    case 4:
      return compiled<SmallHalves, gather>();
    default:
      return compiled<SmallQuarters, gather>();
  }
}

Gather gather_of(const Conv2dProblem& p) {
  if (p.group_c() % kDepth == 0) return Gather::stages;
  return p.c % kPadding == 0 && p.group_c() % kPadding == 0 ? Gather::chunks : Gather::elements;
}

Kernel kernel_of(const Conv2dProblem& p, const GemmTile& tile) {
  const Gather gather = gather_of(p);
  return gather == Gather::stages   ? kernel_of<Gather::stages>(tile.candidate)
         : gather == Gather::chunks ? kernel_of<Gather::chunks>(tile.candidate)
                                    : kernel_of<Gather::elements>(tile.candidate);
}

/// Of an H200, fitted to every tile and split of half of 247 layers; on the other half the picks take 1.016 of the
/// best.
GemmCosts costs_of(const Conv2dProblem& p) {
  const Gather gather = gather_of(p);
  return {.fma_per_cycle = 128,
          .clock = 1.755e9,
          .row = gather == Gather::stages   ? 0.0
                 : gather == Gather::chunks ? 0.465
                                            : 2.81,
          .block = 4341,
          .output = 0.0596,
          .last_wave = 0.598,
          .start = 0.257e-6,
          .bytes_per_second = 2.8e12,
          .second_start = 0.738e-6,
          .part_bytes_per_second = 4.71e12};
}

GemmTile choose_tile(const Conv2dProblem& p, const ImplicitGemm& gemm, const cudaDeviceProp& device,
                     const GemmTileOverrides& overrides = {}) {
  return choose_tile(gemm, kCandidates, kDepth, costs_of(p), device, overrides);
}

void note_paths(const Conv2dProblem& p, const GemmTile& tile) {
  constexpr Path kPaths[] = {Path::register_tile_128x128, Path::register_tile_128x64, Path::register_tile_64x128,
                             Path::register_tile_64x64,   Path::register_tile_halves, Path::register_tile_quarters};
  note_path(kPaths[tile.candidate]);
  switch (gather_of(p)) {
    case Gather::stages:
      return note_path(Path::register_tile_stages);
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
      tile_(choose_tile(problem, gemm_, device, overrides)),
      overlaps_(device.major >= 9 && (tile_.splits == 1 || tile_.seconds < kShort)) {
  const Kernel kernel = kernel_of(problem, tile_);
  kernel.prepare(device);
  const GemmGrid grid = grid_of(gemm_, tile_);
  const auto* const function = reinterpret_cast<const void*>(kernel.function);
  shared_bytes_ = even_shared_bytes(resident_blocks(function, kernel.threads, kernel.shared_bytes), kernel.shared_bytes,
                                    std::int64_t{grid.x} * grid.y, tile_.splits == 1 ? 2 : 1, device);
}

Conv2dDescription RegisterTilePlan::description() const {
  constexpr const char* kShares[] = {", 8x16 a thread",
                                     ", 8x8 a thread",
                                     ", 8x8 a thread",
                                     ", 8x8 a thread",
                                     ", 8x8 a thread of half a stage",
                                     ", 8x8 a thread of a quarter of a stage"};
  return {.kernel = "register_tile",
          .tile = tile_text(tile_) + kShares[tile_.candidate],
          .staging = "two stages of 32 in shared memory",
          .fusion = "pool, bias and activation in registers"};
}

void RegisterTilePlan::run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
                           cudaStream_t stream) const {
  const auto* source = static_cast<const float*>(x);
  auto* parts = static_cast<float*>(workspace);
  auto* to = static_cast<float*>(y);
  const Kernel kernel = kernel_of(problem(), tile_);
  const GemmGrid grid = grid_of(gemm_, tile_);
  const LaunchShape shape{dim3(grid.x, grid.y), kernel.threads, shared_bytes_, overlaps_};
  cuda::launch(kernel.function, shape, stream, gemm_, tile_.splits, source, static_cast<const float*>(packed), bias, to,
               parts);
  note_paths(problem(), tile_);
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
  return choose_tile(p, implicit_gemm_of(p, kPadding, kPadding), device).seconds;
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
