// The per-target kernels around the bf16 units: input into the staged strip, sums into the output.
#pragma once

#include <cstdint>

#include "cpu/matrix_unit.h"
#include "cpu/target.h"
#include "cpu/types.h"

namespace gable::cpu {

/// One source row of a unit of work into one row of strip positions, 32 channels each, zeros in padding. bf16 input is
/// copied; f32 input is cut into 2 or 3 bf16 parts that sum to it.
struct MatrixStageRow {
  const void* x;  // the row's column 0, first channel; null: a row of padding
  std::int64_t x_pixel, width;
  std::int64_t column, step, columns;  // source column of position i is column + i*step
  std::int64_t channels;
  std::int64_t fold, fold_step;  // a position holds the channels of `fold` columns, fold_step apart; else 1
  std::int64_t blocks, block, part;
  std::uint16_t* strip;
  MatrixSplitFunction split;  // the unit's, for whole blocks of f32; or null
};
using MatrixStageFunction = void (*)(const MatrixStageRow&);

struct MatrixKernels {
  MatrixStageFunction stage[4];  // by number of parts: 1 takes bf16, 2 and 3 take f32
  MatrixFinishFunction finish_bf16, finish_f32;
};

const MatrixKernels& matrix_kernels(const Target& target);

}  // namespace gable::cpu
