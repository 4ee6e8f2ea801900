// The convolution kernels of cuda/.
//
// A kernel is a class with description(), packed_bytes(), workspace_bytes(), packing(), pack() and run() as
// cuda::NaiveConv2d has them, and an entry in this list: its name, why a GPU lacks it, why it refuses an op, and how to
// make its plan.
#pragma once

#include <span>

#include "backends/cuda/cuda_device.h"
#include "backends/kernel_list.h"

namespace gable {

using CudaKernels = KernelList<cudaDeviceProp, CudaDevice>;

std::span<const CudaKernels::Kernel> weighted_kernels();

}  // namespace gable
