// How many thread block clusters a GPU runs at once, for estimates.
#pragma once

#include <algorithm>

namespace gable::cuda {

/// With one block of `blocks` a multiprocessor. Large clusters leave a few multiprocessors of each processing cluster
/// idle: of clusters of 4 blocks, 30 run at once on the 132 of an H200, of 8 blocks 14.
constexpr int clusters_at_once(int multiprocessors, int blocks) {
  const int idle = blocks == 4 ? 3 : blocks == 8 ? 2 : 0;
  return std::max(1, multiprocessors / blocks - idle);
}

}  // namespace gable::cuda
