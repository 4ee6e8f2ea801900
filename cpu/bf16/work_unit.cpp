// See work_unit.h; compute_work_unit() is in loops.cpp.
#include "cpu/bf16/work_unit.h"

namespace gable::cpu::bf16 {
namespace {

/// Outputs [first_out, first_out + outs) along one axis, whose taps lie within `reach` pixels.
SourceRange source_range(std::int64_t first_out, std::int64_t outs, std::int64_t stride, std::int64_t pad,
                         std::int64_t reach, std::int64_t size) {
  const std::int64_t step = reach == 0 ? stride : 1;
  const std::int64_t low = std::max<std::int64_t>(0, first_out * stride - pad);
  const std::int64_t high = std::min(size, (first_out + outs - 1) * stride - pad + reach + 1);
  return {low, ceil_div(high - low, step), step};
}

}  // namespace

WorkUnit work_unit_at(const Blocking& b, std::int64_t index) {
  const WorkCut& cut = b.work;
  const std::int64_t weights = b.geometry.groups * cut.panel_blocks;  // work units of the same outputs
  const std::int64_t inputs = cut.count / weights;                    // work units of the same weights
  const std::int64_t of_weights = cut.weights_outermost ? index / inputs : index % weights;
  const std::int64_t of_inputs = cut.weights_outermost ? index % inputs : index / weights;
  WorkUnit work{};
  work.index = index;
  work.group = of_weights / cut.panel_blocks;
  work.first_panel = of_weights % cut.panel_blocks * cut.panels;
  work.end_panel = std::min(b.geometry.panels, work.first_panel + cut.panels);
  work.first_column = of_inputs % cut.column_blocks * cut.columns;
  work.columns = std::min(cut.columns, b.geometry.columns - work.first_column);
  const std::int64_t of_rows = of_inputs / cut.column_blocks;
  work.first_row = of_rows % cut.row_blocks * cut.rows;
  work.rows = std::min(cut.rows, b.geometry.rows - work.first_row);
  work.image = of_rows / cut.row_blocks * cut.images;
  return work;
}

OutputPixels output_pixels(const Geometry& g, const WorkUnit& work) {
  const std::int64_t row = g.columns / g.pool, image = g.rows / g.pool * row;
  return {work.image * image + work.first_row / g.pool * row + work.first_column / g.pool, row, image};
}

bool may_read_in_place(const Blocking& b, const Bf16Unit& unit, const WorkUnit& work) {
  if (b.input != InputPath::in_place) return false;
  if (!unit.loads_full_halves) return true;
  return work.first_column + round_up(work.columns, b.positions) <= b.geometry.w;
}

SourceRange source_rows(const Conv2dProblem& p, const Geometry& g, const WorkUnit& work) {
  return source_range(work.first_row, work.rows, p.stride_h, p.pad_top, (p.r - 1) * p.dilation_h, g.h);
}
SourceRange source_columns(const Conv2dProblem& p, const Geometry& g, const WorkUnit& work) {
  return source_range(work.first_column, work.columns, p.stride_w, p.pad_left, (p.s - 1) * p.dilation_w, g.w);
}

}  // namespace gable::cpu::bf16
