// How fast the cores of a team of threads run at the moment: on a virtual machine, other guests slow down a core or its
// matrix units by up to 2.5 times, for seconds or for minutes.
#pragma once

#include <gable/device.h>
#include <gable/plan.h>
#include <gable/tensor.h>

#include <vector>

namespace gable::bench {

class CoreRates {
 public:
  /// Of multiply-adds of this type; 16-bit types by bf16, on matrix units where the CPU has them.
  CoreRates(int threads, DType dtype);

  /// Runs a second of a small convolution on the slowest of the cores, each of which computes one of its own.
  double slowest();

 private:
  struct Worker {
    Plan plan;
    PackedWeights weights;
    Tensor x, y;
  };
  std::vector<Worker> workers_;
};

}  // namespace gable::bench
