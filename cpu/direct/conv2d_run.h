// The convolution's loop nest over one plan's blocking.
#pragma once

#include <gable/problem.h>

#include "cpu/common/parallel.h"
#include "cpu/common/strips.h"
#include "cpu/common/target.h"
#include "cpu/direct/conv2d_blocking.h"
#include "cpu/direct/conv2d_kernels.h"

namespace gable::cpu {

struct Conv2dRun {
  const Target& target;
  const Conv2dKernels& kernels;
  const Conv2dBlocking& blocking;
  const void* x;
  const float* packed;
  const float* bias;  // or null
  void* y;
  float* workspace;
  bool non_temporal;  // stores of y
};

void run_conv2d(const Conv2dRun& run, int threads, RunTimes& times);

}  // namespace gable::cpu
