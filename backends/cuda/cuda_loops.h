// The loops of cuda/studies/bandwidth.h and cuda/studies/pagerank.h, and copies from and to the host, with their memory
// in place.
#pragma once

#include <gable/study_backend.h>

#include <memory>

#include "backends/cuda/cuda_device.h"

namespace gable {

/// Throw Error(out_of_memory), or Error(unsupported) for fewer bytes than the loop moves at least.
std::shared_ptr<LoopImpl> make_cuda_loop(const CudaDevice& device, const MemoryLoop& loop);
std::shared_ptr<LoopImpl> make_cuda_loop(const CudaDevice& device, const PagerankLoop& loop);

/// `bytes` of device memory filled with numbers that look random.
std::shared_ptr<void> cuda_noise(const CudaDevice& device, std::size_t bytes);
/// `bytes` of pinned host memory.
std::shared_ptr<void> pinned_memory(std::size_t bytes);

}  // namespace gable
