// The variants of few_channels_mma for pixels of 9 to 32 channels. More output channels are several blocks'.
#include "cuda/few_channels/few_channels_mma.cuh"

namespace gable::cuda::few_channels_mma {
namespace {

template <typename T, DType type>
constexpr Variant kWideVariants[] = {
    variant<T, uint4, 1, 4, 256, 3>(type, Path::few_channels_mma_wide_8_channels),
    variant<T, uint4, 2, 4, 256, 2>(type, Path::few_channels_mma_wide_16_channels),
    variant<T, uint4, 4, 2, 256, 2>(type, Path::few_channels_mma_wide_32_channels),
};

}  // namespace

std::span<const Variant> wide_variants(DType type) {
  switch (type) {
    case DType::f32:
      return kWideVariants<float, DType::f32>;
    case DType::f16:
      return kWideVariants<__half, DType::f16>;
    case DType::bf16:
      return kWideVariants<__nv_bfloat16, DType::bf16>;
  }
  return {};
}

}  // namespace gable::cuda::few_channels_mma
