// Chooses the kernel that another kernel's plan runs inside: the fastest of those with an estimated time.
#pragma once

#include <string>

#include "backends/cpu/weighted_kernels.h"

namespace gable {

struct FastestKernel {
  const CpuKernels::Kernel* kernel;  // null: no kernel that takes the op has an estimate
  double seconds;
};

FastestKernel fastest_kernel(const WeightedOp& op, const CpuPlace& place);

/// The refusal of a kernel that finds no fastest_kernel() for the op that it would run.
std::string without_estimate(const Conv2dProblem& problem);

/// Makes the details of the inner plan those of a kernel around it: "cpu: kernel direct, ..." becomes "cpu: kernel
/// reordered with direct, ...".
void name_around(PlanDetails& inner, const std::string& kernel);

}  // namespace gable
