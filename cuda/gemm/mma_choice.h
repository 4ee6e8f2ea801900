// Which tile the kernel implicit_gemm runs with, by a model of its time. Plain host arithmetic: testable without a GPU.
#pragma once

#include <span>

#include "cuda/gemm/implicit.h"

namespace gable::cuda {

/// A tile that the kernel is compiled for.
struct MmaCandidate {
  int rows, columns;
  double rate;             // share of mma.sync's peak that full multiprocessors reach with it
  int threads, residents;  // of a block; blocks of a multiprocessor
};
std::span<const MmaCandidate> mma_candidates();

/// Bytes of a tile's pixels as one run, in whole 16 bytes (whole_pixels.cu).
constexpr int pixel_run_bytes(int rows, int channels, int element) {
  return (rows * channels * element + 15) / 16 * 16;
}
/// Bytes from column to column of the weights beside it: products take 32 bytes of depth.
constexpr int column_pitch_bytes(int padded_channels, int element) {
  return (padded_channels * element + 31) / 32 * 32 + 16;
}

/// Whether a tile's pixels are copied as one run of bytes, with all of their channels (whole_pixels.cu), where the
/// depth is not split and the device's blocks have the shared memory.
bool takes_whole_pixels(const Conv2dProblem& problem, const ImplicitGemm& gemm, int rows, int columns,
                        const cudaDeviceProp& device);

/// Rows and columns of a block. The depth is cut into `splits`, which are a cluster's blocks or, where the GPU has no
/// clusters, parts whose sums go to the workspace and are added up by a second kernel.
struct MmaChoice {
  int rows = 0, columns = 0, splits = 0;
  bool cluster = true;
  double seconds = 0;  // estimate
};

/// Tile and splits of the least estimated time. Numbers of `forced` that are not 0 are kept, for tests.
MmaChoice choose_mma(const Conv2dProblem& problem, const ImplicitGemm& gemm, const cudaDeviceProp& device,
                     const MmaChoice& forced = {});

}  // namespace gable::cuda
