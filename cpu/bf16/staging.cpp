// See staging.h.
#include "cpu/bf16/staging.h"

#include "cpu/bf16/axis.h"

namespace gable::cpu::bf16 {
namespace {

/// The first channel of the group in an image's row; null for a row of padding.
const void* source_row(const Run& run, std::int64_t group, std::int64_t image, std::int64_t row) {
  const Geometry& g = run.blocking.geometry;
  if (row < 0 || row >= g.h) return nullptr;
  const std::int64_t element = (image * g.h + row) * g.w * run.problem.c + group * g.group_c;
  return static_cast<const char*>(run.x) + element * static_cast<std::int64_t>(size_of(run.problem.dtype));
}

}  // namespace

InputView view_in_place(const Run& run, const WorkUnit& work) {
  const Conv2dProblem& p = run.problem;
  const Geometry& g = run.blocking.geometry;
  const std::int64_t row = g.w * p.c;
  const std::int64_t first = (work.image * g.h + work.first_row * p.stride_h) * row +
                             work.first_column * p.stride_w * p.c + work.group * g.group_c;
  return {static_cast<const std::uint16_t*>(run.x) + first, p.stride_h * row, p.stride_w * p.c,
          run.blocking.terms.block_channels, true};
}

InputView view_in_rows(const Run& run, const WorkUnit& work) {
  // May point before x: taps in the padding are skipped.
  const Conv2dProblem& p = run.problem;
  InputView view = view_in_place(run, work);
  view.first -= (p.pad_top * run.blocking.geometry.w + p.pad_left) * p.c;
  return view;
}

namespace {

/// The rows of one group's strip, without what differs from row to row.
StageRow strip_rows(const Run& run, const WorkUnit& work, std::int64_t group) {
  const Blocking& b = run.blocking;
  const Conv2dProblem& p = run.problem;
  const StripShape& shape = b.strip;
  const bool folded = b.terms.fold > 1;
  StageRow row{};
  row.source.pixel = p.c;
  row.source.width = b.geometry.w;
  row.source.step = folded ? 1 : p.stride_w;
  row.source.channels = b.geometry.channels_of(group);
  row.strip.whole_blocks =
      b.terms.parts == 1 && row.source.channels == b.geometry.group_c &&
      (folded ? row.source.channels : std::min(b.terms.block_channels, row.source.channels)) % 8 == 0 &&
      row.source.channels % 8 == 0;
  row.strip.columns = (work.columns + shape.columns - b.work.columns) * (folded ? p.stride_w : 1);
  row.strip.pixel = folded ? b.terms.pixel : 0;
  row.strip.position = shape.position;
  row.strip.blocks = b.terms.blocks;
  row.strip.block_channels = b.terms.block_channels;
  row.strip.last_block = b.terms.last_block;
  row.strip.block = shape.block;
  row.strip.part = shape.part;
  row.split = run.unit.split(p.dtype, b.terms.parts);
  return row;
}

}  // namespace

InputView view_of_strip(const Run& run, const std::uint16_t* strip) {
  const StripShape& shape = run.blocking.strip;
  return {strip, shape.columns * shape.position, shape.position, shape.block, run.blocking.terms.fold > 1};
}

namespace {

/// A row of windows, without what differs from row to row.
WindowRow window_row(const Run& run, const WorkUnit& work) {
  const Blocking& b = run.blocking;
  const Conv2dProblem& p = run.problem;
  WindowRow row{};
  row.pitch = p.dilation_h * p.w * p.c;
  row.width = p.w;
  row.channels = p.c;
  row.kernel_columns = p.s;
  row.column = work.first_column * p.stride_w - p.pad_left;
  row.stride = p.stride_w;
  row.outputs = work.columns;
  row.position = b.strip.position;
  row.blocks = b.terms.blocks;
  row.block_channels = b.terms.block_channels;
  row.last_block = b.terms.last_block;
  return row;
}

/// Gathers windows of gathered_rows kernel rows, or of all.
void gather_windows(const Run& run, const WorkUnit& work, std::uint16_t* strip) {
  const Blocking& b = run.blocking;
  const Conv2dProblem& p = run.problem;
  const std::int64_t rows = work.rows + b.strip.rows - b.work.rows, pitch = b.strip.columns * b.strip.position;
  WindowRow row = window_row(run, work);
  for (const std::int64_t phase : b.phases.rows) {
    for (std::int64_t i = 0; i < rows; ++i, strip += pitch) {
      const std::int64_t first = (work.first_row + i) * p.stride_h - p.pad_top + phase;
      row.kernel_rows = taps_inside(first, p.h, p.dilation_h, b.terms.gathered_rows);
      const std::int64_t source = work.image * p.h + first + row.kernel_rows.begin * p.dilation_h;
      row.x = static_cast<const std::uint16_t*>(run.x) + source * p.w * p.c;
      row.strip = strip;
      run.kernels.gather(row);
    }
    strip += (b.strip.rows - rows) * pitch;
  }
}

}  // namespace

void stage_strip(const Run& run, const WorkUnit& work, std::uint16_t* strip) {
  if (run.blocking.terms.gathers()) return gather_windows(run, work, strip);
  const Blocking& b = run.blocking;
  const Conv2dProblem& p = run.problem;
  const StripShape& shape = b.strip;
  const std::int64_t rows = work.rows + shape.rows - b.work.rows;
  // All groups but the last one have the same channels.
  StageRow whole = strip_rows(run, work, work.group), last = strip_rows(run, work, work.group + work.groups - 1);
  const std::int64_t elements = strip_elements(shape, b.terms);
  std::uint16_t* first = strip;
  const std::int64_t pitch = shape.columns * shape.position;
  for (const std::int64_t row_phase : b.phases.rows) {
    for (const std::int64_t column_phase : b.phases.columns) {
      whole.source.column = last.source.column = work.first_column * p.stride_w - p.pad_left + column_phase;
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t source = (work.first_row + i) * p.stride_h - p.pad_top + row_phase;
        for (std::int64_t group = 0; group < work.groups; ++group) {
          StageRow& row = group + 1 < work.groups ? whole : last;
          row.source.x = source_row(run, work.group + group, work.image, source);
          row.strip.first = first + group * elements;
          run.kernels.stage(p.dtype, b.terms.parts)(row);
        }
        first += pitch;
      }
      first += (shape.rows - rows) * pitch;
    }
  }
}

void stage_images(const Run& run, const WorkUnit& work, std::int64_t images, std::uint16_t* strip) {
  const Blocking& b = run.blocking;
  const Conv2dProblem& p = run.problem;
  const SourceRange rows = source_rows(p, b.geometry, work), columns = source_columns(p, b.geometry, work);
  StageRow row{};
  row.source.pixel = p.c;
  row.source.width = b.geometry.w;
  row.source.column = columns.first;
  row.source.step = columns.step;
  row.source.channels = b.geometry.channels_of(work.group);
  row.strip.columns = columns.count;
  row.strip.position = b.work.images * kChannels;
  row.strip.blocks = b.terms.blocks;
  row.strip.block_channels = b.terms.block_channels;
  row.strip.last_block = b.terms.last_block;
  row.strip.block = b.strip.block;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    for (std::int64_t image = 0; image < images; ++image) {
      row.source.x = source_row(run, work.group, work.image + image, rows.first + i * rows.step);
      row.strip.first = strip + (i * b.strip.columns * b.work.images + image) * kChannels;
      run.kernels.stage(p.dtype, b.terms.parts)(row);
    }
  }
}

}  // namespace gable::cpu::bf16
