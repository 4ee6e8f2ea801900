// A convolution as a matrix product that is never formed: rows are output pixels, columns the output channels of a
// group, depth is taps × input channels. Shared by the kernels that stage tiles of that product through shared memory.
//
// With a fused 2×2 pool rows come in fours, the window of one pooled pixel, so that the pool is a maximum of
// neighbouring rows wherever tiles are cut. NHWC only: a pixel's channels are contiguous.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/conv2d_problem.h"

namespace gable::cuda {

/// What the kernels take; everything that indexes has 32 bits.
struct ImplicitGemm {
  int rows = 1, columns = 1, depth = 1;  // depth = taps * padded_c
  int padded_c = 1, padded_k = 1;        // of a group, as packed
  int groups = 1, group_c = 1;
  int c = 1, h = 1, w = 1, k = 1, s = 1, taps = 1;
  int out_h = 1, out_w = 1;  // of the rows, or of fours of rows
  int stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0, dilation_h = 1, dilation_w = 1;
  bool pooled = false;
  bool bias = false;
  Activation activation = Activation::none;
};

/// `c_multiple` and `k_multiple` are what packed channels are padded to.
ImplicitGemm implicit_gemm_of(const Conv2dProblem& problem, int c_multiple, int k_multiple);

/// Empty, or why the problem can't be one: layouts and pools other than 2×2 are Staged's to take away first.
std::string implicit_refusal(const Conv2dProblem& problem);

}  // namespace gable::cuda
