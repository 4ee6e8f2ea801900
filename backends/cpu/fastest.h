// The kernel that a plan of another kernel runs inside: of those with an estimated time, the fastest.
#pragma once

#include "backends/cpu/weighted_kernels.h"

namespace gable {

struct FastestKernel {
  const CpuKernels::Kernel* kernel;  // null: no kernel that takes the op has an estimate
  double seconds;
};

FastestKernel fastest_kernel(const WeightedOp& op, const CpuPlace& place);

}  // namespace gable
