// A GPU's roofs, measured with the loops of cuda/studies/ceilings.h and cuda/studies/bandwidth.h.
#pragma once

#include <gable/study.h>

#include <vector>

#include "backends/cuda/cuda_device.h"

namespace gable {

/// Arithmetic (f32 on the ordinary units; f16, bf16 and tf32 on the tensor cores, by the instructions that serve them
/// best), device memory, L2, shared memory; then as rates the issue of instructions, launches, and copies from and to
/// the host. About 4 s, quick 1 s. Throws Error.
std::vector<Ceiling> measure_cuda_ceilings(const CudaDevice& device, const CeilingRequest& request);

}  // namespace gable
