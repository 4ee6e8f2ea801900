// The contract between FewOutputsPlan and its per-target kernels: sums of a run of pixels, and their epilogue.
#pragma once

#include <array>
#include <cstdint>

#include <gable/problem.h>

#include "cpu/common/target.h"

namespace gable::cpu {

constexpr int kMaxFewOutputs = 8;
/// Sums of one tile at most, of which a run's last tile may store some beyond the run's own.
constexpr std::int64_t kFewOutputsTile = 32;

/// Sums of pixels that lie x_pixel elements apart, without bias: sums[pixel][output].
struct FewOutputsCall {
  const void* x;
  std::int64_t x_pixel, pixels, channels;
  const float* weights;  // [channel / lanes][output][lane], zero beyond the last channel
  float* sums;           // kFewOutputsTile floats beyond the last one may be overwritten
};
using FewOutputsFunction = void (*)(const FewOutputsCall&);

/// Bias, activation, conversion and store of `count` consecutive outputs, the first of which is a pixel's first.
struct FinishOutputsCall {
  const float* sums;
  std::int64_t count;
  const float* bias;  // of each of the `period` outputs of `lanes` pixels
  std::int64_t period;
  float least;  // 0 for relu, or minus infinity
  void* y;
};
using FinishOutputsFunction = void (*)(const FinishOutputsCall&);

struct FewOutputsKernels {
  int lanes;
  std::array<int, kMaxFewOutputs + 1> pixels;     // of a tile, by outputs
  FewOutputsFunction sum[3][kMaxFewOutputs + 1];  // by type and outputs
  FinishOutputsFunction finish[3];                // by type
};

const FewOutputsKernels& few_outputs_kernels(const Target& target);

}  // namespace gable::cpu
