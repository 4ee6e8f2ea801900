// The tiles of a work unit read their input in x itself, or in the strip. Staging copies bf16 input to the strip once
// and splits f16 and f32 input into bf16 parts.
#pragma once

#include <cstdint>

#include "cpu/bf16/work_unit.h"

namespace gable::cpu::bf16 {

/// The input of the work unit's first output; elements from one output row, position and block to the next.
struct InputView {
  const std::uint16_t* first;
  std::int64_t row, position, block;
  bool dense;  // the channels of all blocks lie together
};

/// x itself, of a pointwise problem.
InputView view_in_place(const Run& run, const WorkUnit& work);
/// x itself, read row by row: the first tap's input of the first output, which may lie in padding.
InputView view_in_rows(const Run& run, const WorkUnit& work);

/// Stages rows, phase by phase: a row of each of the work unit's groups, whose strips follow one another. Or gathers
/// the windows of each row of outputs.
void stage_strip(const Run& run, const WorkUnit& work, std::uint16_t* strip);
/// The strip of the work unit's first group.
InputView view_of_strip(const Run& run, const std::uint16_t* strip);

/// Stages `images` images from the work unit's first on, pixel by pixel.
void stage_images(const Run& run, const WorkUnit& work, std::int64_t images, std::uint16_t* strip);

}  // namespace gable::cpu::bf16
