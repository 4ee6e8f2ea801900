// Launches that overlap with the kernel before: a block may start, and wait, while the last blocks of the kernel before
// it still run (programmatic dependent launch, sm_90 and later; elsewhere an ordinary launch).
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
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

/// Whether an early start pays for a kernel of so many blocks and estimated seconds. It saves about a microsecond. But
/// blocks that start while others still run are spread unevenly over the multiprocessors, which takes up to a quarter
/// longer where each has several and no later ones make up for it (300 layers on an H200).
inline bool pays_to_overlap(std::int64_t blocks, double seconds, const cudaDeviceProp& device) {
  constexpr double kShort = 8e-6;
  constexpr std::int64_t kManyBlocks = 8;  // of a multiprocessor
  const std::int64_t multiprocessors = device.multiProcessorCount;
  return device.major >= 9 &&
         (seconds < kShort || blocks <= multiprocessors || blocks >= kManyBlocks * multiprocessors);
}

struct LaunchShape {
  dim3 grid;
  int threads = 32, shared_bytes = 0;
  bool overlaps = false;  ///< the device can
  int cluster = 1;        ///< blocks of a cluster, along z (sm_90 and later)
};

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream, Arguments&&... arguments) {
  std::array<cudaLaunchAttribute, 2> attributes{};
  unsigned count = 0;
  if (shape.overlaps) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {1, 1, static_cast<unsigned>(shape.cluster)};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = count;
  GABLE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace gable::cuda
