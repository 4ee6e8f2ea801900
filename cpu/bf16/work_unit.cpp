// See work_unit.h; compute_work_unit() is in loops.cpp.
#include "cpu/bf16/work_unit.h"

namespace gable::cpu::bf16 {
WorkUnit work_unit_at(const Blocking& b, std::int64_t index) {
  const WorkCut& cut = b.work;
  const std::int64_t weights = cut.group_blocks * cut.panel_blocks;  // work units of the same outputs
  const std::int64_t inputs = cut.count / weights;                   // work units of the same weights
  const std::int64_t of_weights = cut.weights_outermost ? index / inputs : index % weights;
  const std::int64_t of_inputs = cut.weights_outermost ? index % inputs : index / weights;
  WorkUnit work{};
  work.index = index;
  work.group = of_weights / cut.panel_blocks * cut.groups;
  work.input = of_inputs * cut.group_blocks + of_weights / cut.panel_blocks;
  work.groups = std::min(cut.groups, b.geometry.groups - work.group);
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
  if (!unit.loads_full_halves || b.multiplies_panels) return true;
  return work.first_column + round_up(work.columns, b.positions) <= b.geometry.w;
}

SourceRange source_rows(const Conv2dProblem& p, const Geometry& g, const WorkUnit& work) {
  return source_range(row_axis(p, g), work.first_row, work.rows);
}
SourceRange source_columns(const Conv2dProblem& p, const Geometry& g, const WorkUnit& work) {
  return source_range(column_axis(p, g), work.first_column, work.columns);
}

}  // namespace gable::cpu::bf16
