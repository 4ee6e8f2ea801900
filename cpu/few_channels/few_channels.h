// Convolution of at most 8 input channels, where Conv2dPlan's loop over input lanes is short and its vectors of output
// lanes may be mostly empty. A strip of the input serves two kinds of register tile (few_channels_kernels.h):
// vectors of output channels, or vectors of pixels where there are only a few output channels too. The 2x2 max-pool,
// bias and activation happen before anything is stored.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cpu/common/aligned.h"
#include "cpu/direct/conv2d.h"
#include "cpu/few_channels/few_channels_kernels.h"

namespace gable::cpu {

/// How a problem is cut. Offsets and sizes in floats.
struct FewChannelsBlocking {
  bool wide;
  std::int64_t vectors;                               // lanes: of a panel
  std::int64_t tile_rows;                             // convolution rows of a register tile
  std::int64_t unit_rows, row_blocks;                 // of the output
  bool planes;                                        // the strip's order; else a copy
  std::int64_t phases, columns, pitch, strip_row;     // of the strip; a copy has one phase
  std::int64_t x_px;                                  // from a tile's pixel to the next
  std::int64_t run;                                   // steps that are neighbours in the strip
  std::int64_t plane_pitch;                           // wide
  bool tile_stores;                                   // lanes: f32 NHWC; else a strip of results is finished
  std::size_t row_offset, planes_offset, out_offset;  // in a thread's workspace, after the strip
  std::size_t thread_floats;
};

/// Why FewChannelsPlan is not made for the problem; empty if it is.
std::string few_channels_refusal(const Conv2dProblem& problem, const Target& target);

class FewChannelsPlan {
 public:
  /// Throws std::invalid_argument with the refusal.
  FewChannelsPlan(const Conv2dProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }
  std::size_t packed_bytes() const;

  /// lanes: [panel][step][lane], lanes past the last channel zero; wide: [block][step][channel]. Steps are
  /// [kh][kw][channel] where the strip is a copy of NHWC rows, else [kh][channel][kw].
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// As Conv2dPlan's.
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  bool streams(const void* y) const;

  Conv2dProblem problem_;
  const Target* target_;
  const FewChannelsKernels* kernels_;
  int threads_;
  FewChannelsBlocking blocking_;
  std::vector<std::int32_t> offsets_;                // of each run of steps, in the strip
  std::vector<std::int32_t> pixel_of_, channel_of_;  // of interleaved values; wide
  AlignedFloats workspace_;                          // a bias in whole vectors, then a part a thread
};

}  // namespace gable::cpu
