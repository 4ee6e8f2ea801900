// See prefetch.h.
#include "cpu/bf16/prefetch.h"

#include "cpu/common/tiling.h"

namespace gable::cpu::bf16 {
namespace {

// Prefetch distance of input that is not staged.
constexpr std::int64_t kPositionsAhead = 4 * kHalfPositions;
constexpr std::int64_t kRowsAhead = 4;
constexpr std::int64_t kManyTiles = 4;
// More prefetches between the products of two steps cost more than they save, if a term has one product. The same holds
// for one tap and fewer than 80 lanes.
constexpr std::int64_t kMaxLinesPerStep = 12;
constexpr std::int64_t kLine = 64;

std::int64_t panel_steps(const Blocking& b, const WorkUnit& work) { return tiles_of(b, work) * b.terms.steps(); }

}  // namespace

std::int64_t tiles_of(const Blocking& b, const WorkUnit& work) {
  const std::int64_t positions = b.input == InputPath::by_images ? 2 : 2 * b.positions;
  return ceil_div(work.rows * work.columns, positions);
}

Prefetch prefetch_input(const Run& run, const WorkUnit& current, std::int64_t index) {
  const Blocking& b = run.blocking;
  if (!b.prefetched.input) return {};
  const Conv2dProblem& p = run.problem;
  if (!run.unit.loads_full_halves || b.input == InputPath::by_images || b.terms.fold > 1 || b.terms.gathers() ||
      index >= b.work.count) {
    return {};
  }
  if (share_of(b.work.count, index, run.threads) != share_of(b.work.count, current.index, run.threads)) return {};
  WorkUnit work = work_unit_at(b, index);
  if (work.input == current.input && index != current.index) return {};
  // Each group prefetches the group in the same place of the other work unit.
  const std::int64_t place = current.group - work_unit_at(b, current.index).group;
  if (place >= work.groups) return {};
  work.group += place;
  SourceRange h = source_rows(p, b.geometry, work), w = source_columns(p, b.geometry, work);
  if (index == current.index && b.input == InputPath::in_image) h = h.without_first(kRowsAhead, b.geometry.h);
  if (index == current.index && b.input != InputPath::in_image) w = w.without_first(kPositionsAhead, b.geometry.w);
  if (h.count <= 0 || w.count <= 0) return {};
  const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
  const std::int64_t pixel = p.c * bytes, channels = b.geometry.channels_of(work.group) * bytes;
  const std::int64_t first = ((work.image * b.geometry.h + h.first) * b.geometry.w + w.first) * pixel;
  const bool dense = w.step == 1 && b.geometry.groups == 1;  // a row is one run
  Prefetch prefetch;
  prefetch.row = static_cast<const char*>(run.x) + first + work.group * channels;
  prefetch.run_lines = ceil_div(dense ? w.count * pixel : channels, kLine);
  prefetch.runs = dense ? 1 : w.count;
  prefetch.run_pitch = w.step * pixel;
  prefetch.rows = h.count;
  prefetch.row_pitch = h.step * b.geometry.w * pixel;
  const std::int64_t lines = prefetch.rows * prefetch.runs * prefetch.run_lines;
  prefetch.lines_per_step = ceil_div(lines, panel_steps(b, current) * (current.end_panel - current.first_panel));
  if (prefetch.lines_per_step > kMaxLinesPerStep * b.terms.products) return {};
  prefetch.begin();
  return prefetch;
}

Prefetch prefetch_weights(const Run& run, const WorkUnit& current, const Chunk& next) {
  const Blocking& b = run.blocking;
  if (!run.unit.loads_full_halves) return {};
  const std::int64_t panels = next.end - next.begin;
  const std::int64_t first_panel = current.group * b.geometry.panels + next.begin;
  Prefetch prefetch;
  prefetch.row = reinterpret_cast<const char*>(run.packed + first_panel * b.terms.panel_elements());
  prefetch.run_lines = panels * b.terms.panel_bytes() / kLine;
  prefetch.runs = prefetch.rows = 1;
  prefetch.lines_per_step = ceil_div(prefetch.run_lines, panel_steps(b, current) * panels);
  prefetch.begin();
  return prefetch;
}

bool prefetches_chunks(const Blocking& b, const WorkUnit& work) {
  return b.weights.from_last_level && tiles_of(b, work) >= kManyTiles;
}

}  // namespace gable::cpu::bf16
