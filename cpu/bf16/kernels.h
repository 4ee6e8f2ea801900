// The per-target kernels around the bf16 units: input into the staged strip, sums into the output.
#pragma once

#include <cstdint>

#include <gable/problem.h>
#include "cpu/bf16/unit.h"
#include "cpu/common/target.h"

namespace gable::cpu {

/// One source row of a unit of work into one row of strip positions, 32 channels each, zeros in padding. bf16 input is
/// copied; f16 input is cut into 2 bf16 parts that sum to it, f32 into 2 or 3.
struct Bf16StageRow {
  const void* x;  // the row's column 0, first channel; null: a row of padding
  std::int64_t x_pixel, width;
  std::int64_t column, step, columns;  // source column of position i is column + i*step
  std::int64_t channels;
  std::int64_t pixel;  // not 0: elements of a strip's pixel, which follow each other instead of starting positions
  std::int64_t position, blocks, block, part;  // elements from one to the next
  std::uint16_t* strip;
  Bf16SplitFunction split;  // the unit's, for whole blocks; or null
};
using Bf16StageFunction = void (*)(const Bf16StageRow&);

struct Bf16Kernels {
  Bf16StageFunction stage_bf16, stage_f16, stage_f32[4];  // of f32 by the number of parts
  Bf16FinishFunction finish_bf16, finish_f16, finish_f32;

  Bf16StageFunction stage(DType type, int parts) const {
    return type == DType::bf16 ? stage_bf16 : type == DType::f16 ? stage_f16 : stage_f32[parts];
  }
  Bf16FinishFunction finish(DType type) const {
    return type == DType::bf16 ? finish_bf16 : type == DType::f16 ? finish_f16 : finish_f32;
  }
};

const Bf16Kernels& bf16_kernels(const Target& target);

}  // namespace gable::cpu
