// The NVIDIA GPUs that this process sees, by the driver alone: neither CUDA's runtime nor a plugin is needed.
#pragma once

#include <string>

namespace gable::perf {

struct GpuCount {
  int count = 0;
  std::string reason{};  ///< why there are none
};

/// Initializes the driver in this process, if there is one.
GpuCount count_gpus();

}  // namespace gable::perf
