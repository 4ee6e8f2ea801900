// What the plan of a convolution kernel decided, in words.
#pragma once

#include <string>

namespace gable::cuda {

struct Conv2dDescription {
  std::string kernel;   // as ?kernel= takes it
  std::string tile;     // output tile of a block and of a thread or warp
  std::string staging;  // how operands come in: shared memory, stages, reorders
  std::string fusion;   // where bias, activation and pool happen
  bool fused = true;    // the whole epilogue runs inside the kernel
};

}  // namespace gable::cuda
