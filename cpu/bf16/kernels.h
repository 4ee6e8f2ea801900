// The kernels around the bf16 units, compiled once for each target: input into the strip, accumulators into the output.
#pragma once

#include <algorithm>
#include <cstdint>

#include <gable/problem.h>
#include "cpu/bf16/unit.h"
#include "cpu/common/target.h"
#include "cpu/common/tiling.h"

namespace gable::cpu::bf16 {

/// A row of the source image. Position (or folded pixel) i reads column + i*step.
struct SourceRow {
  const void* x;  // column 0, first channel; null: a row of padding
  std::int64_t pixel, width;
  std::int64_t column, step;
  std::int64_t channels;

  /// Of `columns` positions, [begin, end) come from the image and the others are padding.
  TapRange inside(std::int64_t columns) const {
    if (x == nullptr) return {0, 0};
    const std::int64_t begin = column >= 0 ? 0 : step == 1 ? -column : ceil_div(-column, step);
    const std::int64_t room = width - column;
    const std::int64_t end = room <= 0 ? 0 : step == 1 ? room : ceil_div(room, step);
    const std::int64_t first = std::min(begin, columns);
    return {first, std::clamp(end, first, columns)};
  }
};

/// A row of a strip: positions of 32 channels each, or the pixels of a folded strip.
struct StripRow {
  std::uint16_t* first;
  std::int64_t columns;
  std::int64_t pixel;                          // elements of a folded strip's pixel; 0: not folded
  std::int64_t position, blocks, block, part;  // elements from one to the next, and how many blocks
  std::int64_t block_channels, last_block;     // channels of a block, and the last one's first channel
  bool whole_blocks;  // bf16: a multiple of 8 channels in each block, and nothing reads beyond them
};

/// Stages one row, with zeros in padding. bf16 input is copied; f16 input is split into 2 bf16 parts that sum to it,
/// f32 into 2 or 3.
struct StageRow {
  SourceRow source;
  StripRow strip;
  SplitFunction split;  // the unit's function, or null
};
using StageFunction = void (*)(const StageRow&);

/// The windows of a row of outputs, each gathered to blocks of 32 channels, with zeros in padding and behind the last
/// channel of a block: kernel row kh of output i reads kernel_columns pixels from column + i*stride on.
struct WindowRow {
  const std::uint16_t* x;  // column 0 of the first kernel row that reads the image
  std::int64_t pitch;      // elements from one kernel row to the next
  TapRange kernel_rows;    // that read the image
  std::int64_t width, channels, kernel_columns;
  std::int64_t column, stride, outputs;
  std::uint16_t* strip;
  std::int64_t position, blocks;            // elements of an output, and its blocks
  std::int64_t block_channels, last_block;  // as in StripRow, of the window's channels

  std::int64_t row_channels() const { return kernel_columns * channels; }
  std::int64_t first_channel(std::int64_t block) const {
    return block + 1 == blocks ? last_block : block * block_channels;
  }
};
using WindowFunction = void (*)(const WindowRow&);

}  // namespace gable::cpu::bf16

namespace gable::cpu {

struct Bf16Kernels {
  bf16::StageFunction stage_bf16, stage_f16, stage_f32[4];  // of f32 by the number of parts
  bf16::WindowFunction gather;
  bf16::EpilogueFunction epilogue_bf16, epilogue_f16, epilogue_f32;

  bf16::StageFunction stage(DType type, int parts) const {
    return type == DType::bf16 ? stage_bf16 : type == DType::f16 ? stage_f16 : stage_f32[parts];
  }
  bf16::EpilogueFunction epilogue(DType type) const {
    return type == DType::bf16 ? epilogue_bf16 : type == DType::f16 ? epilogue_f16 : epilogue_f32;
  }
};

const Bf16Kernels& bf16_kernels(const Target& target);

}  // namespace gable::cpu
