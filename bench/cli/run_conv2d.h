// `gable run conv2d`: one convolution on the user's own numbers, .npy in and out.
#pragma once

#include <optional>
#include <string>

#include "bench/console/console.h"
#include "bench/workloads/selection.h"

namespace gable::bench {

struct RunOptions {
  SelectionOptions problem;  ///< one problem, at most one dtype
  std::string x;             ///< file names; random numbers where empty
  std::string weights;
  std::string bias;
  std::string output;
  std::string device = "auto";
  int threads = 0;
};

/// Shapes: x in the order of the layout, (N, C, H, W) or (N, H, W, C); weights (O, I/g, kh, kw); bias (O,); y as x.
/// Without --dtype, the dtype of x decides between f32 and f16. NumPy has no bf16: with --dtype bf16 the files are f32.
/// Inputs are then rounded to bf16, and the output is exact. All files are checked before anything runs, and the output
/// appears whole or not at all. Throws Error.
void run_conv2d(const RunOptions& options, Console& console);

}  // namespace gable::bench
