// How few_outputs cuts a convolution into strips, which a warp computes from the top down.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <string>

#include <gable/problem.h>

namespace gable::cuda {

/// A compiled kernel: rows of the window, and tiles of eight columns (taps of a row × output channels).
struct FewOutputsTile {
  int window_rows, column_tiles;

  /// Sums of all rows of the window stay in registers, so fewer pixels where these are many.
  constexpr int pixels() const { return window_rows * column_tiles <= 9 ? 32 : 16; }
  /// Blocks that a multiprocessor's registers hold: more where sums take few, so that more loads are on their way.
  constexpr int resident() const {
    const int sums = window_rows * column_tiles * pixels() / 4;
    return sums <= 8 ? 6 : sums <= 48 ? 4 : 3;
  }
};
constexpr std::array<FewOutputsTile, 13> kFewOutputsTiles = {
    {{1, 1}, {1, 2}, {1, 4}, {3, 1}, {3, 2}, {3, 3}, {5, 1}, {5, 2}, {5, 3}, {5, 5}, {7, 1}, {7, 2}, {7, 3}}};

constexpr int kFewOutputsWarps = 4;  // of a block

/// The convolution as strips see it. Where the window is one pixel, pixels between strides are never loaded; where it
/// is also without padding, all images are one line, cut into rows as wide as a strip.
struct FewOutputsView {
  int images, h, w, out_h, out_w;
  int pad_top, pad_left;
  int row_step, column_step;  // between pixels of a strip, in the image
  int every;                  // rows of pixels from one row of outputs to the next
  int across, apart;          // pixels of a row from output to output, and from tap to tap
  int phases;                 // rows of outputs that lie between those of a strip, and one
  int top_step;               // rows of the image from one row of outputs to the next
};
FewOutputsView few_outputs_view(const Conv2dProblem& problem);

/// What choose_few_outputs() may not choose itself, for tests; 0 leaves it open.
struct FewOutputsOverrides {
  int rows = 0, parts = 0;
};

struct FewOutputsCut {
  int tile = 0;               // of kFewOutputsTiles
  int outputs = 1, rows = 1;  // of a strip
  int strips_across = 1, bands = 1;
  int strips = 1;  // in all
  int parts = 1;   // warps of a block that share a strip, each with some of the channels
  int chunks = 1;  // of 64 bytes of a pixel's channels
  int shared_bytes = 0;
  double seconds = 0;  // estimated time
};
/// Precondition: few_outputs_refusal() is empty.
FewOutputsCut choose_few_outputs(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                 const FewOutputsOverrides& overrides = {});

std::string few_outputs_refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);

/// Floats from column to column of a warp's sums in shared memory: four lanes that store two columns each, and eight
/// pixels, meet in no bank.
constexpr int few_outputs_sums_pitch(int pixels) { return pixels + 4; }

}  // namespace gable::cuda
