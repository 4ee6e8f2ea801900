// The loops of ceilings.h that need instructions of sm_90a.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/studies/ceilings.h"

namespace gable::cuda {

/// FLOP of one block in one iteration.
double wgmma_loop_flop(CeilingLoop loop);
/// `blocks` as many as the GPU has multiprocessors.
void run_wgmma_loop(CeilingLoop loop, unsigned blocks, int iterations, CeilingSink* sink, cudaStream_t stream);

}  // namespace gable::cuda
