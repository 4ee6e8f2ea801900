// The kernels of cuda/ behind gable's ops: one PlanImpl an op.
#pragma once

#include "backends/cuda/weighted_kernels.h"

namespace gable {

const CudaKernels& cuda_kernels();

}  // namespace gable
