// Launches that overlap with the kernel before: a block may start, and wait, while the last blocks of the kernel before
// it still run (programmatic dependent launch, sm_90 and later; elsewhere an ordinary launch).
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "cuda/common/check.h"

namespace gable::cuda {

/// A kernel that is launched this way calls it before its first access to memory. Returns once the kernels before this
/// one have ended and their writes are visible; the kernel after this one may start.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Whether launches on the current device may overlap.
inline bool launches_overlap() {
  int device = 0, major = 0;
  GABLE_CUDA_CHECK(cudaGetDevice(&device));
  GABLE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 9;
}

struct LaunchShape {
  dim3 grid;
  int threads = 32, shared_bytes = 0;
  bool overlaps = false;  ///< the device can
};

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = shape.overlaps ? 1 : 0;
  GABLE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace gable::cuda
