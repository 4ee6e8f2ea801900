// A convolution as a matrix product that is never formed: rows are output pixels, columns the output channels of a
// group, depth is taps × input channels. Shared by the kernels that load tiles of that product into shared memory.
//
// With a fused 2×2 pool rows come in fours, the window of one pooled pixel, so that the pool is a maximum of
// neighbouring rows wherever tiles are cut. NHWC only: a pixel's channels are contiguous.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <string>

#include <gable/problem.h>
#include "cuda/common/conv_dims.h"

namespace gable::cuda {

/// Division of values below 2^31 by a number that is fixed when the plan is made: a product and a shift, where the
/// hardware's own takes some twenty instructions. (Granlund and Montgomery, "Division by invariant integers using
/// multiplication", 1994.)
struct Divisor {
  unsigned value = 1, multiplier = 0, shift = 0;  // 2^(32 + shift) / value, rounded up, less 2^32

  Divisor() = default;
  explicit constexpr Divisor(int divisor) : value(static_cast<unsigned>(divisor)) {
    while (std::uint64_t{1} << shift < value) ++shift;
    multiplier = static_cast<unsigned>(((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - value)) / value + 1);
    if (value == 1) multiplier = 0;
  }
};

/// The product as the kernels take it; every index has 32 bits.
struct ImplicitGemm : ConvDims {
  explicit ImplicitGemm(const ConvDims& conv) : ConvDims(conv), by_out_w(conv.out_w), by_out_h(conv.out_h) {}

  Divisor by_out_w, by_out_h;
  bool line = false;  // output pixels are the input's, one by one

  int rows = 1, columns = 1, depth = 1;  // depth = taps * padded_c
  int padded_c = 1, padded_k = 1;        // of a group, as packed
  int groups = 1, taps = 1;
  bool pooled = false;  // each pixel of (out_h, out_w) has four rows, else one
  bool bias = false;
  Activation activation = Activation::none;
};

/// How pixels come in: `elements` one f32 at a time; `chunks` of four channels, which may belong to different taps;
/// `one_tap`, chunks of the only tap, which may end within a stage; `stages`, where a whole stage belongs to one tap.
enum class Gather { elements, chunks, one_tap, stages };
Gather gather_of(const ImplicitGemm& gemm, int stage_depth);

/// `c_multiple` and `k_multiple` are what packed channels are padded to.
ImplicitGemm implicit_gemm_of(const Conv2dProblem& problem, int c_multiple, int k_multiple);

/// Empty, or why the problem can't be one: WithReorders takes away NCHW and pools other than 2×2 first.
std::string implicit_refusal(const Conv2dProblem& problem);

/// Rows and columns of a block, and the parts that the depth is cut into where tiles are few. Each part's sums go to
/// the workspace, and a second kernel adds them up.
struct GemmTile {
  int rows = 128, columns = 128, splits = 1;
  int candidate = 0;   // of choose_tile()
  double seconds = 0;  // estimated time
};

/// A tile that a kernel is compiled for. `rate`: the share of the peak's products that full multiprocessors reach;
/// `stage`: cycles that a stage takes at least; `single_output`: of an output that is stored by itself.
struct GemmCandidate {
  int rows, columns, depth, warps, resident, shared_bytes;  // depth: of a stage; resident: blocks that registers allow
  double rate, stage, single_output;
};

/// What choose_tile() counts with: cycles of a multiprocessor, seconds, bytes a second.
struct GemmCosts {
  double fma_per_cycle, clock;
  double together;          // power in which a stage's own time and its products' add up
  double chunks, elements;  // cycles of a place of a row whose pixels are copied in pieces
  double block, output;     // cycles of a block, and of one of its outputs, before and after the products
  double last_wave;         // how much of a wave that is not full it takes
  double start, bytes_per_second;
  double second_start, part_bytes_per_second;  // of the kernel that adds up parts
};

/// What choose_tile() may not choose itself, for tests: a candidate, and the parts; -1 and 0 leave it open.
struct GemmTileOverrides {
  int candidate = -1, splits = 0;
};

/// The candidate and the parts with the least estimated time.
GemmTile choose_tile(const ImplicitGemm& gemm, std::span<const GemmCandidate> candidates, const GemmCosts& costs,
                     const cudaDeviceProp& device, const GemmTileOverrides& overrides = {});

/// Bytes of the workspace that holds the parts' sums: [part][row][group][padded column] in f32.
std::size_t parts_bytes(const ImplicitGemm& gemm, int splits);

/// Blocks: x counts tiles, columns first, since tiles of the same rows share pixels in the L2; y groups × parts.
struct GemmGrid {
  unsigned x, y;
};
GemmGrid grid_of(const ImplicitGemm& gemm, const GemmTile& tile);

/// Dynamic shared memory with which a multiprocessor that could hold `resident` blocks holds no more than its even
/// share of `blocks`, or than the shares of `launches` if they fit together. Blocks that start while those of the
/// kernel before still run crowd on the multiprocessors that are free first: up to 1.5 times as long where some could
/// hold more.
int even_shared_bytes(int resident, int shared_bytes, std::int64_t blocks, int launches, const cudaDeviceProp& device);

/// "tiles of 128 pixels x 128 channels, the depth in 3 parts".
std::string tile_text(const GemmTile& tile);

}  // namespace gable::cuda
