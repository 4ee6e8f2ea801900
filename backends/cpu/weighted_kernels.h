// The convolution kernels of cpu/.
//
// A kernel is a class with description(), workspace_bytes(), packed_bytes(), packing(), pack() and run() as
// cpu::Conv2dPlan has them, and an entry in this list: its name, why it refuses an op, and how to make its plan.
#pragma once

#include <span>

#include "backends/kernel_list.h"
#include "cpu/common/target.h"

namespace gable {

/// What a CPU plan is made for.
struct CpuPlace {
  const cpu::Target& target;
  int threads;
};

using CpuKernels = KernelList<cpu::Target, CpuPlace>;

std::span<const CpuKernels::Kernel> weighted_kernels();

}  // namespace gable
