// Packed weights are [group][chunk of channels][step][tiles][lane], as the kernel's threads load their registers of B.
#include "cuda/few_channels/few_channels_mma.h"

#include <algorithm>

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/few_channels/few_channels_mma.cuh"

namespace gable::cuda {
namespace few_channels_mma {
namespace {

/// One thread a register of B.
template <typename T>
__global__ void pack_few_channels_mma(const T* weights, WeightStrides strides, unsigned* packed, HaloTile t, int tiles,
                                      int chunks) {
  const int steps = steps_of(t);
  const std::int64_t registers = static_cast<std::int64_t>(t.extents.groups) * chunks * steps * tiles * 64;
  constexpr int in_register = 4 / static_cast<int>(sizeof(T));
  const int steps_of_unit = unit_bytes(t) / 8, channels_of_unit = unit_bytes(t) / static_cast<int>(sizeof(T));
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < registers; i += gridDim.x * blockDim.x) {
    // [group][chunk][step][pair of tiles, or tile][lane][tile of the pair][half of the unit]
    const int in_vector = tiles % 2 == 0 ? 4 : 2;
    const int half = static_cast<int>(i % 2);
    const int lane = static_cast<int>(i / in_vector % 32);
    std::int64_t rest = i / in_vector / 32;
    const int vectors = tiles * 2 / in_vector;
    const int tile = static_cast<int>(rest % vectors) * (in_vector / 2) + static_cast<int>(i % in_vector) / 2;
    rest /= vectors;
    const int step = static_cast<int>(rest % steps);
    rest /= steps;
    const int chunk = static_cast<int>(rest % chunks);
    const int group = static_cast<int>(rest / chunks);
    const int column = lane / 4;  // of the tile
    const int out = chunk * tiles * 8 + column / 2 * (2 * tiles) + 2 * tile + column % 2;
    const int unit = step / steps_of_unit * kUnitsOfGroup + lane % 4;
    const int tap = unit / units_of_pixel(t);
    const int channel = unit % units_of_pixel(t) * channels_of_unit + (step % steps_of_unit * 2 + half) * in_register;
    union {
      unsigned bits;
      T of[in_register];
    } value;
    for (int e = 0; e < in_register; ++e) {
      const int in = channel + e;
      const bool there = out < t.extents.k && in < t.extents.c && tap < t.window.kernel_h * t.window.kernel_w;
      value.of[e] =
          there ? as_operand(weights[(group * t.extents.k + out) * strides.out + in * strides.in +
                                     tap / t.window.kernel_w * strides.row + tap % t.window.kernel_w * strides.column])
                : from_f32<T>(0.0f);
    }
    packed[i] = value.bits;
  }
}

template <typename T, DType type>
constexpr Variant kVariants[] = {
    variant<T, uint2, 1, 4, 256, 4>(type, Path::few_channels_mma_8_channels),
    variant<T, uint2, 2, 4, 256, 3>(type, Path::few_channels_mma_16_channels),
    variant<T, uint2, 4, 2, 256, 3>(type, Path::few_channels_mma_32_channels),
    variant<T, uint2, 8, 2, 256, 2>(type, Path::few_channels_mma_64_channels),
};

}  // namespace

std::span<const Variant> variants(DType type, bool wide) {
  if (wide) return wide_variants(type);
  switch (type) {
    case DType::f32:
      return kVariants<float, DType::f32>;
    case DType::f16:
      return kVariants<__half, DType::f16>;
    case DType::bf16:
      return kVariants<__nv_bfloat16, DType::bf16>;
  }
  return {};
}

namespace {

class Plan final : public Conv2dPlan {
 public:
  Plan(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const override;
  Packing packing() const override { return packing_of(problem_, "few_channels_mma", {variant_->tiles}); }
  std::size_t packed_bytes() const override;
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  Conv2dProblem problem_;
  const Variant* variant_;
  TileChoice choice_;
  bool overlaps_;
};

Plan::Plan(const Conv2dProblem& problem, const cudaDeviceProp& device) : problem_(problem) {
  const Choice best = choose(problem, device);
  variant_ = best.variant;
  choice_ = best.tile;
  overlaps_ = may_overlap(choice_, device);
}

Path load_path(const HaloTile& t) {
  if (!is_wide(t))
    return pair_order(t) == PairOrder::elements ? Path::few_channels_mma_pixels : Path::few_channels_mma_pairs;
  const int access = unit_access(t);
  return access == 16  ? Path::few_channels_mma_vectors
         : access == 8 ? Path::few_channels_mma_pieces_8
         : access == 4 ? Path::few_channels_mma_pieces_4
                       : Path::few_channels_mma_pieces_2;
}

Path store_path(const HaloTile& t, const Variant& v) {
  if (!t.format.nhwc) return Path::few_channels_mma_stores_planes;
  const int count = t.format.pool ? v.tiles : 2 * v.tiles;  // of a thread
  const int width = store_width(t.extents.k, widest_store(count, static_cast<int>(size_of(v.type))));
  return width == 8   ? Path::few_channels_mma_stores_8
         : width == 4 ? Path::few_channels_mma_stores_4
         : width == 2 ? Path::few_channels_mma_stores_2
                      : Path::few_channels_mma_stores_1;
}

Conv2dDescription Plan::description() const {
  return {
      .kernel = "few_channels_mma",
      .tile =
          std::to_string(16 * variant_->rows) + " pixels x " + std::to_string(8 * variant_->tiles) + " channels a warp",
      .staging = "block of " + std::to_string(choice_.threads) + " threads, " +
                 std::to_string(choice_.tile.cut.images) + (choice_.tile.cut.images == 1 ? " image, " : " images, ") +
                 std::to_string(2 * choice_.tile.cut.row_pairs) + " rows: " + std::to_string(choice_.shared_bytes) +
                 " bytes of shared memory",
      .fusion = "bias, activation and pool in registers"};
}

std::size_t Plan::packed_bytes() const {
  const auto chunks = static_cast<std::size_t>(ceil_div(choice_.tile.extents.k, choice_.tile.chunk));
  return static_cast<std::size_t>(choice_.tile.extents.groups) * chunks *
         static_cast<std::size_t>(steps_of(choice_.tile)) * static_cast<std::size_t>(step_bytes(variant_->tiles));
}

void Plan::pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const {
  constexpr int threads = 256;
  const auto count = static_cast<std::int64_t>(packed_bytes() / 4);
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(ceil_div(count, threads), 1024));
  const auto chunks = static_cast<int>(ceil_div(choice_.tile.extents.k, choice_.tile.chunk));
  with_type(choice_.tile.format.type, [&](auto zero) {
    pack_few_channels_mma<<<blocks, threads, 0, stream>>>(static_cast<const decltype(zero)*>(weights), strides,
                                                          static_cast<unsigned*>(packed), choice_.tile, variant_->tiles,
                                                          chunks);
  });
  check_launch("pack_few_channels_mma");
}

void Plan::run(const void* x, const void* packed, const float* bias, void* y, void*, cudaStream_t stream) const {
  HaloTile t = choice_.tile;
  t.tensors = {x, packed, bias, y};
  launch(variant_->kernel,
         {tile_grid(t, choice_.blocks), choice_.threads, static_cast<int>(choice_.shared_bytes), overlaps_}, stream, t);
  note_path(variant_->path);
  note_path(load_path(t));
  note_path(store_path(t, *variant_));
}

}  // namespace
}  // namespace few_channels_mma

std::string FewChannelsMmaKernel::refusal(const Conv2dProblem& p, const cudaDeviceProp& device) {
  if (device.major < 8) return "sm_" + std::to_string(10 * device.major + device.minor) + ": it needs sm_80";
  const bool has_math = p.dtype == DType::f32 ? p.math == Math::tf32 : p.math == Math::strict;
  if (!has_math) return std::string(name_of(p.dtype)) + " in this math: it multiplies f16, bf16, and f32 as tf32";
  const std::string refusal = halo_tile_refusal(p, few_channels_mma::kMaxChannels);
  if (!refusal.empty()) return refusal;
  if (p.group_c() < 2) return std::to_string(p.group_c()) + " input channel a group; it takes 2 to 32";
  if (p.group_c() > 8 && (!p.nhwc || p.groups > 1)) {
    return std::to_string(p.group_c()) + " input channels a group; in nchw and of several groups it takes at most 8";
  }
  const std::size_t bytes = few_channels_mma::least_shared_bytes(p);
  if (bytes <= device.sharedMemPerBlockOptin) return "";
  return "two output rows need " + std::to_string(bytes) + " bytes of shared memory; a block of the device has " +
         std::to_string(device.sharedMemPerBlockOptin);
}

double FewChannelsMmaKernel::seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  constexpr double kWithGroups = 1.1;  // measured over estimated, of 16-bit types: 150 layers with groups, of some 5 us
  const double seconds = few_channels_mma::seconds_of(few_channels_mma::choose(problem, device));
  return problem.groups > 1 && problem.dtype != DType::f32 ? kWithGroups * seconds : seconds;
}

std::unique_ptr<Conv2dPlan> FewChannelsMmaKernel::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<few_channels_mma::Plan>(problem, device);
}

}  // namespace gable::cuda
