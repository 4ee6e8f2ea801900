// Chooses the kernel that another kernel's plan runs inside: the fastest of those with an estimated time.
#pragma once

#include "backends/cpu/weighted_kernels.h"

namespace gable {

struct FastestKernel {
  const CpuKernels::Kernel* kernel;  // null: no kernel that takes the op has an estimate
  double seconds;
};

FastestKernel fastest_kernel(const WeightedOp& op, const CpuPlace& place);

}  // namespace gable
