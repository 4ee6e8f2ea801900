// What the per-target kernels of bilinear upsampling take.
#pragma once

namespace gable::cpu {

/// A row of output between two rows of input.
struct BilinearRow {
  const void *upper, *lower;
  float upper_share, lower_share;
  void* y;
  float* strip;  // of planes: room for a row of input
};

}  // namespace gable::cpu
