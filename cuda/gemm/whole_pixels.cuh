// implicit_gemm of 1x1 filters whose pixels are no whole 16 bytes: see whole_pixels.cu.
#pragma once

#include "cuda/gemm/mma_choice.h"
#include "cuda/gemm/mma_tile.cuh"

namespace gable::cuda {

template <typename T>
struct WholePixelsKernel {
  void (*function)(MmaArguments<T>);
  int threads, columns, epilogue_bytes, rows;

  /// Dynamic shared memory.
  int shared_bytes(const ImplicitGemm& gemm) const;
};

template <typename T>
WholePixelsKernel<T> whole_pixels_kernel(const MmaChoice& choice);

/// How its lanes read pixels.
Path whole_pixels_path(const Conv2dProblem& problem);

}  // namespace gable::cuda
