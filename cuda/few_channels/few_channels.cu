// Packed weights are [group][block of channels][input channel][tap][channel of the block]: what a thread reads of one
// tap lies together.
#include "cuda/few_channels/few_channels.h"

#include <algorithm>

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/few_channels/few_channels.cuh"

namespace gable::cuda {
namespace few_channels {
namespace {

template <typename T>
__global__ void pack_few_channels(const T* weights, WeightStrides strides, float* packed, HaloTile t, int channels) {
  const int taps = t.window.kernel_h * t.window.kernel_w;
  const int blocks = (t.extents.k + channels - 1) / channels;
  const int count = t.extents.groups * blocks * t.extents.c * taps * channels;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const int tap = i / channels % taps;
    const int in = i / channels / taps % t.extents.c;
    const int block = i / channels / taps / t.extents.c % blocks;
    const int group = i / channels / taps / t.extents.c / blocks;
    const int out = block * channels + i % channels;
    packed[i] = out < t.extents.k
                    ? to_f32(weights[(group * t.extents.k + out) * strides.out + in * strides.in +
                                     tap / t.window.kernel_w * strides.row + tap % t.window.kernel_w * strides.column])
                    : 0.0f;
  }
}

template <int channels, int columns, int kernel_w, int stride_w, int threads, int blocks>
constexpr Variant variant(Path path) {
  return {channels,
          columns,
          kernel_w,
          stride_w,
          threads,
          path,
          few_channels_kernel<channels, columns, kernel_w, stride_w, threads, blocks>};
}

constexpr Variant kVariants[] = {
    variant<6, 4, 5, 1, 192, 3>(Path::few_channels_6x4_5),
    variant<8, 6, 5, 1, 384, 1>(Path::few_channels_8x6_5),
    variant<4, 6, 5, 1, 256, 2>(Path::few_channels_4x6_5),
    variant<8, 4, 7, 2, 256, 2>(Path::few_channels_8x4_7_stride2),
    variant<8, 4, 3, 1, 256, 2>(Path::few_channels_8x4_3),
    variant<8, 4, 3, 2, 256, 2>(Path::few_channels_8x4_3_stride2),
    variant<4, 6, 3, 1, 256, 2>(Path::few_channels_4x6_3),
    variant<4, 6, 3, 2, 256, 2>(Path::few_channels_4x6_3_stride2),
    variant<8, 4, 0, 0, 256, 2>(Path::few_channels_any),
    variant<4, 6, 0, 0, 256, 2>(Path::few_channels_4x6_any),
};

}  // namespace

std::span<const Variant> variants() { return kVariants; }

namespace {

class Plan final : public Conv2dPlan {
 public:
  Plan(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const override;
  Packing packing() const override { return packing_of(problem_, "few_channels", {variant_->channels}); }
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
  variant_ = &choose_variant(problem);
  choice_ = choose_chunk(problem, *variant_, device);
  overlaps_ = may_overlap(choice_, device);
}

Conv2dDescription Plan::description() const {
  const Variant& v = *variant_;
  return {.kernel = "few_channels",
          .tile = "2x" + std::to_string(v.columns) + " pixels x " + std::to_string(v.channels) + " channels a thread" +
                  (v.kernel_w == 0 ? ", any kernel width" : ""),
          .staging = "block of " + std::to_string(choice_.threads) + " threads, " +
                     std::to_string(choice_.tile.cut.images) +
                     (choice_.tile.cut.images == 1 ? " image, " : " images, ") +
                     std::to_string(2 * choice_.tile.cut.row_pairs) + " rows, " + std::to_string(choice_.tile.chunk) +
                     " channels: " + std::to_string(choice_.shared_bytes) + " bytes of shared memory",
          .fusion = "bias, activation and pool in registers"};
}

std::size_t Plan::packed_bytes() const {
  return sizeof(float) * static_cast<std::size_t>(choice_.tile.extents.groups) *
         pad_to(choice_.tile.extents.k, variant_->channels) * choice_.tile.extents.c * choice_.tile.window.kernel_h *
         choice_.tile.window.kernel_w;
}

void Plan::pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const {
  constexpr int threads = 256;
  const auto count = static_cast<std::int64_t>(packed_bytes() / sizeof(float));
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(ceil_div(count, threads), 1024));
  with_type(choice_.tile.format.type, [&](auto zero) {
    pack_few_channels<<<blocks, threads, 0, stream>>>(static_cast<const decltype(zero)*>(weights), strides,
                                                      static_cast<float*>(packed), choice_.tile, variant_->channels);
  });
  check_launch("pack_few_channels");
}

void Plan::run(const void* x, const void* packed, const float* bias, void* y, void*, cudaStream_t stream) const {
  HaloTile t = choice_.tile;
  t.tensors = {x, packed, bias, y};
  launch(variant_->kernel,
         {tile_grid(t, choice_.blocks), choice_.threads, static_cast<int>(choice_.shared_bytes), overlaps_}, stream, t);
  note_path(variant_->path);
}

}  // namespace
}  // namespace few_channels

std::string FewChannels::refusal(const Conv2dProblem& p, const cudaDeviceProp& device) {
  const std::string refusal = halo_tile_refusal(p, few_channels::kMaxChannels);
  if (!refusal.empty()) return refusal;
  const std::size_t bytes = few_channels::least_shared_bytes(p, few_channels::choose_variant(p));
  if (bytes <= device.sharedMemPerBlockOptin) return "";
  return "two output rows need " + std::to_string(bytes) + " bytes of shared memory; a block of the device has " +
         std::to_string(device.sharedMemPerBlockOptin);
}

double FewChannels::seconds(const Conv2dProblem& p, const cudaDeviceProp& device) {
  const few_channels::Variant& v = few_channels::choose_variant(p);
  return few_channels::seconds_of(few_channels::choose_chunk(p, v, device), v);
}

std::unique_ptr<Conv2dPlan> FewChannels::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<few_channels::Plan>(problem, device);
}

}  // namespace gable::cuda
