// The compiled kernels of strips.h.
#include "cuda/depthwise/strips.cuh"

namespace gable::cuda {
namespace {

template <typename T, int window, int stride, int columns>
constexpr DepthwiseStripsVariant variant(Path path) {
  using Shape = StripShape<T, window, stride, columns>;
  return {
      window, stride, columns, Shape::blocks, Shape::shared_bytes, path, depthwise_strips<T, window, stride, columns>};
}

template <typename T>
constexpr DepthwiseStripsVariant kVariants[] = {
    variant<T, 3, 1, 4>(Path::depthwise_3_stride1),      variant<T, 3, 2, 4>(Path::depthwise_3_stride2),
    variant<T, 5, 1, 4>(Path::depthwise_5_stride1),      variant<T, 5, 1, 7>(Path::depthwise_5_stride1_wide),
    variant<T, 5, 2, 4>(Path::depthwise_5_stride2),      variant<T, 7, 1, 4>(Path::depthwise_7_stride1),
    variant<T, 7, 1, 7>(Path::depthwise_7_stride1_wide), variant<T, 7, 2, 4>(Path::depthwise_7_stride2),
};

}  // namespace

std::span<const DepthwiseStripsVariant> depthwise_strips_variants(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kVariants<float>;
    case DType::f16:
      return kVariants<__half>;
    case DType::bf16:
      return kVariants<__nv_bfloat16>;
  }
  return {};
}

}  // namespace gable::cuda
