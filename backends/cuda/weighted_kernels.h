// The convolution kernels of cuda/, best first. Matrix products are 1x1 convolutions to them, so one list serves both.
//
// A kernel is a class with description(), packed_bytes(), workspace_bytes(), pack() and run() as cuda::NaiveConv2d has
// them, and an entry in this list: its name, why a GPU lacks it, why it refuses an op, and how to make its plan.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "backends/cuda/cuda_device.h"
#include "backends/problems.h"

namespace gable {

struct WeightedKernel {
  const char* name;
  std::string (*missing)(const cudaDeviceProp& device);  ///< why this GPU has no such kernel; empty: it has
  std::string (*refusal)(const WeightedOp& op, const cudaDeviceProp& device);  ///< empty: it can run the op
  std::unique_ptr<PlanImpl> (*make)(const WeightedOp& op, const CudaDevice& device);
};

std::span<const WeightedKernel> weighted_kernels();

/// Empty, or why the kernel can't run the op on the GPU.
inline std::string refusal(const WeightedKernel& kernel, const WeightedOp& op, const cudaDeviceProp& device) {
  const std::string missing = kernel.missing(device);
  return missing.empty() ? kernel.refusal(op, device) : missing;
}

}  // namespace gable
