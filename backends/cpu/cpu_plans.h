// The kernels of cpu/ behind gable's ops: one PlanImpl an op.
#pragma once

#include "backends/cpu/weighted_kernels.h"

namespace gable {

const CpuKernels& cpu_kernels();

}  // namespace gable
