// For tests: the paths of the CUDA kernels that this process has dispatched. The symbol is
// looked up by name (tests/cuda/plugin_coverage.h); applications have no use for it.
#include <cuda_runtime_api.h>

#include "cuda/common/coverage.h"

/// Calls take(context, path, supported, ran) for each path; false where there is no such GPU.
extern "C" __attribute__((visibility("default"))) bool gable_cuda_path_coverage(
    int device, void (*take)(void* context, const char* path, bool supported, bool ran), void* context) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  for (const gable::cuda::PathCoverage& entry : gable::cuda::path_coverage(properties)) {
    take(context, entry.path.data(), entry.supported, entry.ran);  // names are literals
  }
  return true;
}
