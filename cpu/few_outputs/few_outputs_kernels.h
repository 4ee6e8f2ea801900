// The contract between FewOutputsPlan and its per-target kernels: sums of a run of pixels, and their epilogue.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <gable/problem.h>

#include "cpu/common/target.h"

namespace gable::cpu {

constexpr int kMaxFewOutputs = 8;
/// Sums of one tile at most, of which a run's last tile may store some beyond the run's own.
constexpr std::int64_t kFewOutputsTile = 32;

/// Sums of a row of pixels, without bias: sums[pixel][output]. A window has `rows` rows of `runs` runs, each of
/// `channels` neighbouring elements. All distances are in elements.
struct FewOutputsCall {
  const void* x;  // the first pixel's first run
  std::int64_t x_pixel, pixels;
  std::int64_t x_row, rows, x_run, runs, channels;
  const float* weights;  // [row][run][channel / step][output][channel of the step], zero beyond a run's last channel
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
  int lanes;  // of f32 in a vector
  int step;   // channels in a vector: as many, or pairs of bf16, whose weights are bf16 too
  std::array<int, kMaxFewOutputs + 1> pixels;     // of a tile, by outputs
  FewOutputsFunction sum[3][kMaxFewOutputs + 1];  // by type and outputs
  FinishOutputsFunction finish[3];                // by type
};

const FewOutputsKernels& few_outputs_kernels(const Target& target);

/// The kernels of AVX512-BF16's pair product, of bf16 alone, for the target avx512; and why this CPU lacks them, or
/// empty.
const FewOutputsKernels& few_outputs_dot_kernels();
std::string missing_few_outputs_dot();

}  // namespace gable::cpu
