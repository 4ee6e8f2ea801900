// Packed weights of the wgmma kernel lie as its shared memory holds them, swizzle included, so that a stage is one
// contiguous copy of 8 KB: [64 output channels][128 bytes of input channels][tap], padded with zeros.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include <gable/problem.h>
#include "cuda/wgmma/geometry.h"

namespace gable::cuda {

std::size_t wgmma_packed_bytes(const WgmmaGeometry& geometry);

/// `problem` is the caller's, with channels as they are. Device pointers; `packed` is aligned to 128 bytes.
/// Asynchronous on the stream. What follows on the stream may read the packed weights at once, without waiting for the
/// launch before it.
void pack_wgmma_weights(const Conv2dProblem& problem, const WgmmaGeometry& geometry, const void* weights,
                        const WeightStrides& strides, void* packed, cudaStream_t stream);

/// The same for pointwise_planes by wgmma (planes.h), whose stages have 64 output by 64 input channels of 16 bits.
std::size_t wgmma_planes_packed_bytes(const Conv2dProblem& problem);
void pack_wgmma_planes_weights(const Conv2dProblem& problem, const void* weights, const WeightStrides& strides,
                               void* packed, cudaStream_t stream);

/// An empty launch behind the one that packs: the convolution reads its weights before the launch before it has ended,
/// which must not be the one that writes them.
void end_wgmma_packing(cudaStream_t stream);

}  // namespace gable::cuda
