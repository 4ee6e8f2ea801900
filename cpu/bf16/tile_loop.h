// State that the four loop nests of a work unit share: the current tile, its panel, its epilogues and its prefetches.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/bf16/prefetch.h"
#include "cpu/bf16/tile_queue.h"
#include "cpu/bf16/work_unit.h"

namespace gable::cpu::bf16 {

/// Consecutive pixels of one row, or of one column, of a work unit's output; counted from the work unit's first pixel.
struct PixelRun {
  std::int64_t row, column, pixels;
  std::int64_t y_pixel;  // elements from one pixel to the next
};

class TileLoop {
 public:
  /// `workspace` starts with accumulators and bias (head_floats).
  TileLoop(const Run& run, const WorkUnit& work, float* workspace)
      : run_(run),
        work_(work),
        queue_(run.unit.tile(run.blocking.terms.products), workspace,
               run.blocking.prefetched.output && !run.non_temporal),
        output_(output_pixels(run.blocking.geometry, work)),
        padded_bias_(workspace + accumulator_floats(run.unit)) {
    const Blocking& b = run.blocking;
    Tile& tile = queue_.tile();
    tile.operands.a_part = b.strip.part;
    tile.operands.tap_offsets = b.tap_offsets.data();
    tile.operands.b_bypasses_l1 = (b.weights.fit_l2 || b.input == InputPath::by_images) && !b.weights.fit_l1;
    tile.taps.count = tile.taps.columns = b.terms.tap_count();
    tile.taps.rows = 1;
    tile.half_floats = b.half_floats;
    tile.blocks = {b.terms.blocks, b.terms.last_pairs, b.terms.last_is_single};
    tile.overlap.y_bytes = kLanes * static_cast<int>(size_of(run.problem.dtype));
    tile.overlap.prefetch = &prefetch_;
    panel_tile_.y_pixel = run.problem.k;
    panel_tile_.relu = run.problem.activation == Activation::relu;
    panel_tile_.non_temporal = run.non_temporal;
    panel_tile_.output_ahead = b.prefetched.output && !run.non_temporal ? kPixelsAhead * run.problem.k : 0;
    panel_tile_.lines_per_step = ceil_div(2 * b.positions, b.terms.blocks);
    panel_tile_.blocks = b.terms.blocks;
    panel_tile_.holds_weights = b.holds_weights();
    panel_tile_.accumulators = workspace;
  }

  /// Elements between blocks of input; `dense`: the channels of all blocks lie together.
  void set_blocks(std::int64_t elements, bool dense) {
    const Terms& terms = run_.blocking.terms;
    queue_.tile().operands.a_block = elements;
    queue_.tile().operands.a_last_block = dense ? terms.last_block : (terms.blocks - 1) * elements;
  }

  const Run& run() const { return run_; }
  const WorkUnit& work() const { return work_; }
  TileQueue& queue() { return queue_; }
  const TileQueue& queue() const { return queue_; }
  PanelTile& panel_tile() { return panel_tile_; }

  /// The tiles that follow are of this group of the work unit.
  void take_group(std::int64_t group) { work_.group = group; }

  /// Sets the weights and lanes of the tiles that follow; weights from tap `first_tap` on.
  void begin_panel(std::int64_t panel, std::int64_t first_tap = 0) {
    const Blocking& b = run_.blocking;
    const std::int64_t index = work_.group * b.geometry.panels + panel;
    queue_.tile().operands.b = run_.packed + (index * b.terms.steps() + first_tap) * b.terms.parts * kWeightBlock;
    first_lane_ = work_.group * b.geometry.group_k + panel * kLanes;
    lanes_ = static_cast<int>(b.geometry.lanes_of(work_.group, panel));
    queue_.tile().vectors = lanes_ <= kVector ? 1 : 2;
    queue_.tile().is_half_a_vector = lanes_ <= kVector / 2;
    if (run_.bias == nullptr) return;
    bias_ = run_.bias + first_lane_;
    if (first_lane_ + kLanes <= run_.problem.k) return;
    if (padded_lane_ != first_lane_) pad_bias();
    bias_ = padded_bias_;
  }

  /// The tiles that follow take these taps of the strip alone; begin_panel() then wants the first of them.
  void take_taps(const TapRange& taps) {
    queue_.tile().operands.tap_offsets = run_.blocking.tap_offsets.data() + taps.begin;
    queue_.tile().taps.columns = taps.end - taps.begin;
  }

  /// Makes an epilogue; the caller sets its accumulators.
  Epilogue epilogue(const PixelRun& pixels) const {
    const Conv2dProblem& p = run_.problem;
    const std::int64_t pixel = output_.first + pixels.row * output_.row + pixels.column;
    const std::int64_t bytes = (pixel * p.k + first_lane_) * static_cast<std::int64_t>(size_of(p.dtype));
    const bool takes = run_.unit.takes_epilogue(p.dtype, p.activation);
    return {.accumulators = nullptr,
            .accumulators_below = nullptr,
            .pixels = pixels.pixels,
            .lanes = lanes_,
            .bias = bias_,
            .activation = p.activation,
            .y = static_cast<char*>(run_.y) + bytes,
            .y_pixel = pixels.y_pixel,
            .non_temporal = run_.non_temporal,
            .run = takes ? run_.unit.epilogue(p.dtype) : run_.kernels.epilogue(p.dtype)};
  }
  bool runs_epilogue_in_registers() const {
    return run_.unit.runs_epilogue_in_registers && run_.blocking.geometry.pool == 1 &&
           run_.unit.takes_epilogue(run_.problem.dtype, run_.problem.activation);
  }

  /// An epilogue of the next tile; `below` is null without a pool.
  void add_epilogue(const float* accumulators, const float* below, const PixelRun& pixels) {
    Epilogue call = epilogue(pixels);
    call.accumulators = accumulators;
    call.accumulators_below = below;
    queue_.add(call);
  }

  /// `count` pixels of one output row, from the first pixel of the row's tile on.
  PixelRun row_of(std::int64_t row, std::int64_t column, std::int64_t count) const {
    return {row, column, count, run_.problem.k};
  }
  const OutputPixels& output() const { return output_; }

  Chunk first_chunk() const { return chunk_at(work_, work_.first_panel, run_.blocking.weights.chunk); }
  Chunk chunk_after(const Chunk& chunk) const { return chunk_at(work_, chunk.end, run_.blocking.weights.chunk); }

  /// The tiles after this call prefetch the input of work unit `index`.
  void begin_input_prefetch(std::int64_t index) { prefetch_ = prefetch_input(run_, work_, index); }
  /// Tiles of the chunk before `next` prefetch its weights; those of the last chunk, the next work unit's input.
  void begin_chunk_prefetch(const Chunk& next) {
    if (!prefetches_chunks(run_.blocking, work_)) return;
    if (next.begin == next.end) return begin_input_prefetch(work_.index + 1);
    if (run_.unit.loads_full_halves) prefetch_ = prefetch_weights(run_, work_, next);
  }

 private:
  void pad_bias() {
    queue_.drain();  // pending epilogues may read the padded bias of another panel
    std::fill(std::copy_n(bias_, lanes_, padded_bias_), padded_bias_ + kLanes, 0.0f);
    padded_lane_ = first_lane_;
  }

  const Run& run_;
  WorkUnit work_;
  TileQueue queue_;
  PanelTile panel_tile_{};
  OutputPixels output_;
  float* padded_bias_;  // the bias of a panel after whose first lane the problem has fewer than 32
  const float* bias_ = nullptr;
  std::int64_t first_lane_ = 0, padded_lane_ = -1;  // of the panel, and of the one with a padded bias
  int lanes_ = 0;
  Prefetch prefetch_;
};

}  // namespace gable::cpu::bf16
