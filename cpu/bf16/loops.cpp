// Chooses the loop nest of a work unit.
#include "cpu/bf16/loops.h"

#include "cpu/common/coverage.h"

namespace gable::cpu::bf16 {
namespace {

void note(const Run& run, Path path) { note_path(path, run.target, run.unit.coverage); }

std::uint16_t* strip_in(const Run& run, float* workspace) {
  return reinterpret_cast<std::uint16_t*>(workspace + head_floats(run.unit));
}

/// Work units with other panels of the same input follow one another: the strip still holds it for the second one.
InputView input_of(const Run& run, const WorkUnit& work, float* workspace) {
  if (run.blocking.input == InputPath::in_rows) {
    note(run, Path::bf16_in_rows);
    return view_in_rows(run, work);
  }
  if (may_read_in_place(run.blocking, run.unit, work)) {
    note(run, Path::bf16_in_place);
    return view_in_place(run, work);
  }
  const Terms& terms = run.blocking.terms;
  note(run, terms.parts > 1   ? Path::bf16_split
            : terms.fold > 1  ? Path::bf16_fold
            : terms.gathers() ? terms.gathers_windows() ? Path::bf16_gather : Path::bf16_gather_rows
                              : Path::bf16_stage);
  auto& staged = *reinterpret_cast<StagedInput*>(workspace + staged_input_offset(run.unit));
  std::uint16_t* const strip = strip_in(run, workspace);
  if (staged.run != run.number || staged.input != work.input) stage_strip(run, work, strip);
  staged = {run.number, work.input};
  return view_of_strip(run, strip);
}

/// The loop nest for staged and for pointwise input, of one group.
void compute_rows_or_flat(TileLoop& loop, const InputView& input, bool staged) {
  const Run& run = loop.run();
  const WorkUnit& work = loop.work();
  loop.queue().tile().operands.position = input.position;
  loop.set_blocks(input.block, input.dense);
  const bool flat = prefers_flat(run.blocking, run.unit, work.rows, work.columns);
  if (run.blocking.multiplies_panels) {
    const PanelWeights weights = run.blocking.panel_weights();
    note(run, weights == PanelWeights::held                ? Path::bf16_held_weights
              : weights == PanelWeights::held_and_streamed ? Path::bf16_streamed_weights
                                                           : Path::bf16_panels);
  }
  note(run, run.blocking.geometry.pool == 2 ? Path::bf16_pool : flat ? Path::bf16_flat : Path::bf16_rows);
  if (run.blocking.positions > kHalfPositions) note(run, Path::bf16_narrow_halves);
  if (flat && run.blocking.weights.chunk > 1) note(run, Path::bf16_panels_inside);
  const bool reads_x_once = !staged && run.blocking.weights.chunk == run.blocking.work.panels;
  loop.begin_input_prefetch(reads_x_once ? work.index : work.index + 1);
  for (Chunk chunk = loop.first_chunk(); chunk.begin < chunk.end; chunk = loop.chunk_after(chunk)) {
    loop.begin_chunk_prefetch(loop.chunk_after(chunk));
    if (!run.unit.loads_full_halves && run.blocking.geometry.pool == 1) {
      multiply_runs(loop, input, chunk, flat);
      continue;
    }
    if (run.blocking.multiplies_panels) {
      multiply_panels(loop, input, chunk, staged);
      continue;
    }
    if (flat) {
      multiply_flat(loop, input, chunk);
      continue;
    }
    for (std::int64_t panel = chunk.begin; panel < chunk.end; ++panel) multiply_rows(loop, input, panel);
  }
  if (run.blocking.multiplies_panels) finish_panels(loop);
}

/// The groups of a work unit, one after another. The epilogues of a group's last tile overlap with the next group.
void compute_groups(const Run& run, const WorkUnit& work, float* workspace) {
  InputView input = input_of(run, work, workspace);
  const bool staged = input.first == strip_in(run, workspace);
  TileLoop loop(run, work, workspace);
  for (std::int64_t group = work.group; group < work.group + work.groups; ++group) {
    loop.take_group(group);
    compute_rows_or_flat(loop, input, staged);
    input.first += strip_elements(run.blocking.strip, run.blocking.terms);
  }
  loop.queue().drain();
}

void compute_in_image(TileLoop& loop) {
  note(loop.run(), Path::bf16_in_image);
  loop.begin_input_prefetch(loop.work().index);
  multiply_regions(loop);
}

void compute_by_images(TileLoop& loop, std::uint16_t* strip) {
  note(loop.run(), Path::bf16_by_images);
  const Blocking& b = loop.run().blocking;
  const std::int64_t images = std::min(b.work.images, b.geometry.n - loop.work().image);
  stage_images(loop.run(), loop.work(), images, strip);
  multiply_images(loop, strip, images);
}

}  // namespace

void compute_work_unit(const Run& run, std::int64_t index, float* workspace) {
  const WorkUnit work = work_unit_at(run.blocking, index);
  if (reads_rows(run.blocking)) return compute_groups(run, work, workspace);
  TileLoop loop(run, work, workspace);
  if (run.blocking.input == InputPath::in_image) {
    compute_in_image(loop);
  } else {
    compute_by_images(loop, strip_in(run, workspace));
  }
  loop.queue().drain();
}

}  // namespace gable::cpu::bf16
