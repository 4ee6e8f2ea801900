// Which tile the kernel implicit_gemm runs with, by a model of its time. Plain host arithmetic: testable without a GPU.
#pragma once

#include <iterator>
#include <utility>

#include "cuda/common/coverage.h"
#include "cuda/gemm/implicit.h"

namespace gable::cuda {

/// A tile that the kernel is compiled for, and whole_pixels.cu with a single stage.
struct MmaCandidate {
  int rows, columns, warp_rows, warp_columns;  // of a block; of a warp
  int stages, residents;                       // of the ring; blocks of a multiprocessor
  double rate;                                 // share of mma.sync's peak that full multiprocessors reach with it
  Path path;

  constexpr int threads() const { return rows / warp_rows * (columns / warp_columns) * 32; }
};
inline constexpr MmaCandidate kMmaCandidates[] = {
    {128, 128, 64, 32, 4, 2, 1.0, Path::implicit_gemm_128x128},
    {128, 64, 64, 32, 4, 3, 0.65, Path::implicit_gemm_128x64},
    {128, 32, 32, 32, 4, 5, 0.6, Path::implicit_gemm_128x32},
    {64, 64, 32, 32, 4, 5, 0.7, Path::implicit_gemm_64x64},
    {64, 32, 32, 16, 6, 8, 0.5, Path::implicit_gemm_64x32},
    {32, 32, 16, 16, 8, 8, 0.35, Path::implicit_gemm_32x32},
};
/// For what is compiled once for each of them.
inline constexpr auto kEachMmaCandidate = std::make_index_sequence<std::size(kMmaCandidates)>{};

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
  int candidate = -1;  // the tile's place in the table; not forced
};

/// Tile and splits of the least estimated time. Numbers of `forced` that are not 0 are kept, for tests; throws
/// std::invalid_argument if no tile of the table has them.
MmaChoice choose_mma(const Conv2dProblem& problem, const ImplicitGemm& gemm, const cudaDeviceProp& device,
                     const MmaChoice& forced = {});

}  // namespace gable::cuda
