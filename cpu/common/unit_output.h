// The output of a unit of work: register tiles store the result itself, or f32 sums into a strip that the store kernel
// then finishes (strips.h).
#pragma once

#include <gable/problem.h>

#include <cstdint>

#include "cpu/common/strips.h"
#include "cpu/common/unit_window.h"

namespace gable::cpu {

/// Where and what a register tile stores. `lanes` lanes of a pixel are valid. Bias has whole vectors, or is null. With
/// `non_temporal`, all lanes are valid, y is aligned to vectors, and stores are non-temporal.
struct OutputTile {
  float* y;
  std::int64_t row, px;  // floats between rows and between pixels
  int lanes;
  const float* bias;
  bool relu, non_temporal;
};

/// The output channels of a unit.
struct UnitLanes {
  std::int64_t first;          // of all output channels
  std::int64_t lanes, padded;  // valid ones, and in whole vectors, or half ones where tiles have these
};

/// Where a unit's pixels go: y, or a strip.
struct OutputPlace {
  float* first;
  std::int64_t row, px;

  float* at(std::int64_t output_row, std::int64_t pixel) const { return first + output_row * row + pixel * px; }
};

/// Offset in elements of y where the unit's results begin.
constexpr std::int64_t output_offset(const Conv2dProblem& p, std::int64_t image, const UnitWindow& window,
                                     std::int64_t channel) {
  const Strides y = y_strides(p);
  return image * y.image + window.first_row * y.row + window.first_pixel * y.pixel + channel * y.channel;
}

/// The unit's bias in whole vectors: `bias` itself where its lanes are, else `copy`. Null without a bias.
const float* bias_in_vectors(const float* bias, const UnitLanes& lanes, float* copy);

/// A strip of f32 sums of a unit's window. With `pooled` it is of the output's size. `block` is the store kernel's
/// buffer.
struct StripOfResults {
  const Conv2dProblem& problem;
  const StripKernels& kernels;
  const UnitWindow& window;
  OutputPlace place;
  bool pooled;
  float* block;
};

/// Finishes the strip and writes it to y, the first element of the unit's output.
void store_results(const StripOfResults& results, const UnitLanes& lanes, const float* bias, void* y);

}  // namespace gable::cpu
