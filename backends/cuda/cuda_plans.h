// From gable's ops to the kernels of cuda/: one PlanImpl an op.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/cuda_device.h"

namespace gable {

/// The kernels' names, as ?kernel= takes them.
std::vector<std::string> cuda_kernels();

/// Those that a GPU has.
std::vector<std::string> cuda_kernels(const cudaDeviceProp& device);

/// The answers of the kernels that are made for this kind of op, best first, or of `only` alone if it is not empty.
std::vector<KernelSupport> query_cuda(const Op& op, const cudaDeviceProp& device, const std::string& only);

/// The plan of the first kernel that supports `op`; there is one, says query_cuda().
std::unique_ptr<PlanImpl> make_cuda_plan(const Op& op, const CudaDevice& device, const std::string& only);

}  // namespace gable
