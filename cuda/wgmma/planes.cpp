// See planes.h. The plan chooses the kernel once; a run sets the tensors' addresses and launches.
#include "cuda/wgmma/planes.h"

#include <stdexcept>
#include <string>

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/wgmma/conv2d.h"
#include "cuda/wgmma/pack.h"
#include "cuda/wgmma/planes_estimate.h"
#include "cuda/wgmma/planes_geometry.h"
#include "cuda/wgmma/planes_launch.h"
#include "cuda/wgmma/tensor_maps.h"

namespace gable::cuda {
namespace {

using namespace wgmma::planes;

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
  std::size_t packed_bytes() const override { return wgmma_planes_packed_bytes(problem_); }
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  Conv2dProblem problem_;
  WgmmaPlanesChoice choice_;
  WgmmaPlanesArguments arguments_{};
  int bytes_;  // of an access
  const void* kernel_;
  int shared_bytes_;
};

WgmmaPlanesPlan::WgmmaPlanesPlan(const Conv2dProblem& p, const cudaDeviceProp& device, const WgmmaPlanesChoice& choice)
    : problem_(p),
      choice_(choice),
      bytes_(access_bytes(p)),
      kernel_(p.dtype == DType::f16 ? wgmma_planes_kernel_f16(bytes_, choice.slices, choice.chunks)
                                    : wgmma_planes_kernel_bf16(bytes_, choice.slices, choice.chunks)) {
  WgmmaPlanesArguments& a = arguments_;
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
  pack_wgmma_planes_weights(problem_, weights, strides, packed, stream);
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
  WgmmaPlanesArguments a = arguments_;
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
