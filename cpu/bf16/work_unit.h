// One run of a plan, and the share of it that one thread takes at a time: a work unit.
#pragma once

#include <algorithm>
#include <cstdint>

#include <gable/problem.h>
#include "cpu/bf16/axis.h"
#include "cpu/bf16/blocking.h"
#include "cpu/bf16/kernels.h"
#include "cpu/bf16/unit.h"

namespace gable::cpu::bf16 {

/// What all work units of a run share.
struct Run {
  const Conv2dProblem& problem;
  const Bf16Unit& unit;
  const Bf16Kernels& kernels;
  const Target& target;
  const Blocking& blocking;
  const void* x;
  const std::uint16_t* packed;
  const float* bias;  // or null
  void* y;
  bool non_temporal;  // stores
  int threads;
  std::int64_t number;  // of the plan's runs, from 1
};

/// Rows and columns are of the convolution's output, before a pool.
struct WorkUnit {
  std::int64_t index, image, group, groups;  // the first group, and how many
  std::int64_t input;                        // the same for work units that read the same input
  std::int64_t first_row, first_column, rows, columns;
  std::int64_t first_panel, end_panel;  // of each group
};
WorkUnit work_unit_at(const Blocking& blocking, std::int64_t index);

/// Panels that are computed for a tile's positions before the next tile; none where begin is end.
struct Chunk {
  std::int64_t begin, end;
};
inline Chunk chunk_at(const WorkUnit& work, std::int64_t first_panel, std::int64_t chunk) {
  return {first_panel, std::min(work.end_panel, first_panel + chunk)};
}

/// A work unit's outputs (of the pool where one is fused), counted in pixels of y.
struct OutputPixels {
  std::int64_t first;  // of the work unit
  std::int64_t row;    // from one row to the next
  std::int64_t image;  // from one image to the next
};
OutputPixels output_pixels(const Geometry& geometry, const WorkUnit& work);

/// Whether x holds every position that tiles of this work unit load in place. Units that load full halves read past the
/// last position of the work unit.
bool may_read_in_place(const Blocking& blocking, const Bf16Unit& unit, const WorkUnit& work);

/// The source of the work unit's rows and columns.
SourceRange source_rows(const Conv2dProblem& problem, const Geometry& geometry, const WorkUnit& work);
SourceRange source_columns(const Conv2dProblem& problem, const Geometry& geometry, const WorkUnit& work);

/// Computes the outputs of work unit `index`. `workspace` is the thread's own, of Blocking::thread_bytes.
void compute_work_unit(const Run& run, std::int64_t index, float* workspace);

}  // namespace gable::cpu::bf16
