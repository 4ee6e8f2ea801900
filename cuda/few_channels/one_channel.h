// Convolution of one input channel on the f32 units with the weights in registers: the first layer on grey images.
//
// Two output rows by two columns (a pixel of the 2x2 pool) and half the output channels are a thread's: for 5x5 and 6
// channels 300 FMA on 36 inputs, which come from shared memory, and on 75 weights, which a thread loads once for all
// images. So shared memory delivers 0.12 words an FMA, half of what it can, where weights in shared memory would need
// more than it has. A block works on whole images: the next one comes in while this one is computed, and results leave
// through shared memory in whole vectors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include <gable/problem.h>
#include "cuda/common/description.h"
#include "cuda/common/halo_tile.h"

namespace gable::cuda {

/// Of one image in shared memory; what the kernel takes.
struct ImageTile {
  const void* x;
  const float* packed;
  const float* bias;
  void* y;
  std::int64_t n;
  int h, w, k, pad_top, pad_left;
  int ho, wo;                     // rows and columns of the convolution that are needed
  int out_h, out_w;               // of y
  int pitch;                      // of a row in shared memory, in elements
  int in_elements, out_elements;  // in shared memory; the former in whole vectors of 16 bytes
  int columns, tasks;             // pairs of output columns, and of them times pairs of rows
  Divisor by_columns;
  bool nhwc, pool, flat;  // flat: the image lies in shared memory as it does in global memory
  Activation activation;
};

/// A register tile that is compiled, for one size of kernel.
struct OneChannelVariant;

class OneChannelConv2d {
 public:
  static constexpr std::size_t kAlignment = 16;

  /// `device` is the current one.
  OneChannelConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device);

  /// Empty, or why it can't run the problem.
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const;
  std::size_t packed_bytes() const;
  std::size_t workspace_bytes() const { return 0; }
  /// Packed are f32 [kh][kw][output channel], zeros past the last channel.
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace, cudaStream_t stream) const;

 private:
  const OneChannelVariant* variant_;
  DType type_;
  ImageTile tile_;
  std::size_t shared_bytes_;
  unsigned blocks_;
};

}  // namespace gable::cuda
