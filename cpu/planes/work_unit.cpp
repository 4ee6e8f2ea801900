// See work_unit.h.
#include "cpu/planes/work_unit.h"

#include <algorithm>
#include <limits>

#include "cpu/common/cache.h"
#include "cpu/common/coverage.h"
#include "cpu/common/strides.h"
#include "cpu/common/unit_window.h"

namespace gable::cpu::planes {
namespace {

/// Where a work unit lies.
struct Place {
  std::int64_t image, row, column, group, first_panel;  // rows and columns of y
  std::int64_t images, rows, columns, end_panel;
};

Place place_at(const Blocking& b, std::int64_t index) {
  const Conv2dProblem& p = b.problem;
  const WorkCut& cut = b.work;
  const std::int64_t weights = p.groups * cut.panel_blocks, inputs = cut.inputs();
  const std::int64_t of_weights = cut.weights_outermost ? index / inputs : index % weights;
  const std::int64_t of_inputs = cut.weights_outermost ? index % inputs : index / weights;
  Place at{};
  at.group = of_weights / cut.panel_blocks;
  at.first_panel = of_weights % cut.panel_blocks * cut.panels;
  at.column = of_inputs % cut.column_blocks * cut.columns;
  at.row = of_inputs / cut.column_blocks % cut.row_blocks * cut.rows;
  at.image = of_inputs / cut.column_blocks / cut.row_blocks * cut.images;
  at.images = std::min(cut.images, p.n - at.image);
  at.rows = std::min(cut.rows, p.out_h() - at.row);
  at.columns = std::min(cut.columns, p.out_w() - at.column);
  at.end_panel = std::min(b.panels.count, at.first_panel + cut.panels);
  return at;
}

class WorkUnit {
 public:
  WorkUnit(const Run& run, std::int64_t index, Scratch& scratch)
      : run_(run),
        b_(run.blocking),
        p_(run.blocking.problem),
        unit_(run.unit),
        scratch_(scratch),
        at_(place_at(run.blocking, index)),
        outputs_{at_.images, conv_extent(at_.rows, p_.pool.h, p_.pool.stride_h),
                 conv_extent(at_.columns, p_.pool.w, p_.pool.stride_w)},
        // Inputs of fewer positions than a vector are not read in place.
        in_place_(b_.in_place && (b_.by_lanes || at_.columns >= unit_.positions)),
        pools_(!p_.pool.none()) {}

  void compute() {
    note_paths();
    if (!in_place_) stage();
    cut_tiles();
    for (std::int64_t panel = at_.first_panel; panel < at_.end_panel; ++panel) {
      b_.by_lanes ? compute_panel_by_lanes(panel) : compute_panel(panel);
    }
  }

 private:
  void note_paths() const {
    if (unit_.coverage != PathUnit::vectors) {
      note_path(b_.terms.parts > 1 ? Path::bf16_planes_split : Path::bf16_planes, run_.target, unit_.coverage);
      return;
    }
    note_path(in_place_ ? Path::planes_in_place : Path::planes_staged, run_.target);
    if (pools_) note_path(Path::planes_pool, run_.target);
    if (run_.non_temporal) note_path(Path::planes_non_temporal, run_.target);
    if (b_.by_lanes) note_path(Path::planes_by_lanes, run_.target);
    if (!b_.by_lanes && rows_apart()) note_path(Path::planes_rows, run_.target);
  }

  bool rows_apart() const { return prefers_rows(b_, unit_, outputs_); }

  // ---- Input.
  const void* image(std::int64_t index) const {
    const std::int64_t channel = at_.group * p_.group_c();
    return advance(run_.x, p_.dtype, ((at_.image + index) * p_.c + channel) * p_.h * p_.w);
  }
  std::int64_t strip_step() const { return in_place_ ? p_.h * p_.w : b_.in_place ? staged_tail_step() : b_.strip.step; }
  /// The last work unit of a problem in place may have fewer positions than a vector.
  std::int64_t staged_tail_step() const { return 2 * kMaxPositions; }
  /// Of the tile that begins at this position.
  const void* input(std::int64_t position) const {
    if (!in_place_) return scratch_.strip + position;
    return advance(image(0), p_.dtype, at_.column + position);
  }

  void stage() const {
    StageCall call{};
    call.plane = p_.h * p_.w;
    call.channels = p_.group_c();
    call.steps = b_.terms.strip_steps;
    call.step = strip_step();
    call.part = b_.strip.part;
    call.strip = scratch_.strip;
    const bool is_far = p_.x_elements() * static_cast<std::int64_t>(size_of(p_.dtype)) > l2_bytes();
    const std::int64_t first_row = at_.row * p_.pool.stride_h * p_.stride_h - p_.pad_top;
    const std::int64_t first_column = at_.column * p_.pool.stride_w * p_.stride_w - p_.pad_left;
    const StageFunction function = stage_kernels(run_.target).function(unit_, p_.dtype, b_.terms.parts);
    for (const std::int64_t row_phase : b_.phases.rows) {
      for (const std::int64_t column_phase : b_.phases.columns) {
        float* const phase = call.strip;
        call.prefetches = is_far && column_phase == b_.phases.columns.front();  // the others read the same lines
        for (std::int64_t i = 0; i < at_.images; ++i) {
          call.x = image(i);
          call.rows = {first_row + row_phase, p_.stride_h, outputs_.rows + b_.strip.rows - full_rows(), p_.h};
          call.columns = {first_column + column_phase, p_.stride_w, b_.strip.columns, p_.w};
          if (b_.in_place) call.columns.count = at_.columns;
          call.strip = phase + i * b_.strip.image;
          function(call);
        }
        call.strip = phase + b_.strip.phase;
      }
    }
  }
  std::int64_t full_rows() const { return conv_extent(b_.work.rows, p_.pool.h, p_.pool.stride_h); }

  // ---- Tiles and pieces of output rows.
  std::int64_t y_width() const { return p_.out_w(); }
  std::int64_t y_plane() const { return p_.out_h() * p_.out_w(); }

  void cut_tiles() {
    scratch_.tiles.clear();
    scratch_.pieces.clear();
    if (b_.by_lanes) return cut_pixels();
    if (rows_apart()) {
      for (std::int64_t i = 0; i < outputs_.images; ++i) {
        for (std::int64_t row = 0; row < outputs_.rows; ++row) {
          cut_run(i * b_.strip.image + row * b_.strip.columns, outputs_.columns);
        }
      }
    } else {
      cut_run(0, flat_positions(b_, outputs_));
    }
    if (pools_) add_pooled_pieces();
  }

  /// Tiles of pixels of one row. Rows that follow one another in y are finished together.
  void cut_pixels() {
    const bool whole_rows = at_.columns == p_.out_w();
    std::int64_t waiting = 0;  // pixels that are not finished yet
    for (std::int64_t row = 0; row < at_.rows; ++row) {
      const Tiles tiles(at_.columns, unit_.most_pixels);
      for (std::int64_t i = 0; i < tiles.count; ++i) {
        const std::int64_t column = tiles.begin(i), width = tiles.width(i);
        const auto pieces = static_cast<std::int64_t>(scratch_.pieces.size());
        TileAt tile{row * b_.strip.columns + column, static_cast<int>(width), pieces, 0, waiting, row};
        waiting += width;
        const bool last = i + 1 == tiles.count && (row + 1 == at_.rows || !whole_rows);
        if (waiting >= kMaxPositions || last) {
          scratch_.pieces.push_back({0, row * y_width() + column + width - waiting, waiting});
          tile.pieces = 1;
          waiting = 0;
        }
        scratch_.tiles.push_back(tile);
      }
    }
  }

  void cut_run(std::int64_t start, std::int64_t length) {
    for (std::int64_t done = 0; done < length;) {
      int vectors = b_.vectors;
      while (vectors > 1 && (vectors / 2) * unit_.positions >= length - done) vectors /= 2;
      if (vectors == kMaxVectors && 3 * unit_.positions >= length - done) vectors = 2;
      const std::int64_t width = vectors * unit_.positions;
      // In place, the last tile starts earlier, so that it reads nothing beyond the image.
      while (in_place_ && vectors > 1 && vectors * unit_.positions > length) vectors /= 2;
      const std::int64_t reads = in_place_ ? std::min(done, length - vectors * unit_.positions) : done;
      add_tile(start + reads, vectors, std::min(width, length - reads));
      done = reads + vectors * unit_.positions;
    }
  }

  void add_tile(std::int64_t start, int vectors, std::int64_t count) {
    TileAt tile{start, vectors, static_cast<std::int64_t>(scratch_.pieces.size()), 0, 0, 0};
    if (!pools_) add_pieces(start, count);
    tile.pieces = static_cast<std::int64_t>(scratch_.pieces.size()) - tile.first_piece;
    if (pools_ || tile.pieces > 0) scratch_.tiles.push_back(tile);
  }

  /// The outputs among the positions [start, start + count).
  void add_pieces(std::int64_t start, std::int64_t count) {
    const std::size_t first = scratch_.pieces.size();
    for (std::int64_t position = start; position < start + count;) {
      const std::int64_t i = position / b_.strip.image, of_image = position % b_.strip.image;
      const std::int64_t row = of_image / b_.strip.columns, column = of_image % b_.strip.columns;
      const std::int64_t here = std::min(b_.strip.columns - column, start + count - position);
      if (row < outputs_.rows && column < outputs_.columns) {
        add_piece(first, {position - start, y_pixel(i, row) + column, std::min(here, outputs_.columns - column)});
      }
      position += here;
    }
  }
  /// Adds a piece, or extends the tile's previous piece if both are consecutive.
  void add_piece(std::size_t first, const Piece& piece) {
    if (scratch_.pieces.size() > first) {
      Piece& before = scratch_.pieces.back();
      if (before.sums + before.count == piece.sums && before.y + before.count == piece.y) {
        before.count += piece.count;
        return;
      }
    }
    scratch_.pieces.push_back(piece);
  }
  std::int64_t y_pixel(std::int64_t i, std::int64_t row) const { return i * p_.k * y_plane() + row * y_width(); }

  void add_pooled_pieces() {
    for (std::int64_t i = 0; i < at_.images; ++i) {
      for (std::int64_t row = 0; row < at_.rows; ++row) {
        const std::int64_t sums = i * b_.strip.image + row * p_.pool.stride_h * b_.strip.columns;
        scratch_.pieces.push_back({sums, y_pixel(i, row), at_.columns});
      }
    }
  }

  // ---- One panel.
  struct PanelOutput {
    int lanes;
    const float* bias;
    void* y;
  };

  PanelOutput output_of(std::int64_t panel) const {
    const std::int64_t first = panel * b_.panels.lanes;
    const std::int64_t channel = at_.group * p_.group_k() + first;
    const std::int64_t pixel = (at_.image * p_.k + channel) * y_plane() + at_.row * y_width() + at_.column;
    return {static_cast<int>(std::min(b_.panels.lanes, p_.group_k() - first)),
            run_.bias == nullptr ? nullptr : run_.bias + channel, advance(run_.y, p_.dtype, pixel)};
  }

  TileFunction function_of(int vectors, int lanes) const {
    if (in_place_) return unit_.in_place[static_cast<int>(p_.dtype)][vectors][lanes];
    return unit_.tile[vectors][unit_.whole_tiles ? b_.terms.products : lanes];
  }

  bool stores_directly(const TileAt& at) const {
    if (pools_ || unit_.whole_tiles || run_.non_temporal || at.pieces != 1) return false;
    return unit_.stores[static_cast<int>(p_.dtype)] && p_.activation != Activation::tanh &&
           scratch_.pieces[static_cast<std::size_t>(at.first_piece)].sums == 0;
  }

  std::int64_t sums_lane() const { return pools_ ? (b_.sums_floats - kMaxPositions) / b_.panels.lanes : kMaxPositions; }

  Tile tile_of(std::int64_t panel) const {
    Tile tile{};
    tile.x_step = strip_step();
    tile.x_part = b_.strip.part;
    tile.taps = b_.taps.data();
    tile.tap_count = tile.end_tap = static_cast<std::int64_t>(b_.taps.size());
    tile.steps = b_.terms.steps;
    tile.weights = run_.packed + at_.group * run_.group_elements + panel * run_.panel_elements;
    return tile;
  }

  void compute_panel_by_lanes(std::int64_t panel) const {
    const PanelOutput out = output_of(panel);
    Tile tile = tile_of(panel);
    const std::int64_t vectors = ceil_div(out.lanes, unit_.positions);
    tile.sums_lane = vectors * unit_.positions;
    for (const TileAt& at : scratch_.tiles) {
      const TapRange rows = row_axis(p_).inside(at_.row + at.row);
      tile.first_tap = rows.begin * p_.s;
      tile.end_tap = rows.end * p_.s;
      tile.x = input(at.start);
      tile.sums = scratch_.sums + at.sums * tile.sums_lane;
      unit_.pixel_tile[vectors][at.vectors](tile);
      if (at.pieces == 0) continue;
      FinishCall call = finish_call(out, scratch_.pieces.data() + at.first_piece, at.pieces);
      call.lane = tile.sums_lane;
      call.transposed = scratch_.sums + (kMaxPositions + kMaxPixels) * b_.panels.lanes;
      finish_kernels(run_.target).pixels[static_cast<std::size_t>(p_.dtype)](call);
    }
  }

  void compute_panel(std::int64_t panel) const {
    const PanelOutput out = output_of(panel);
    Tile tile = tile_of(panel);
    tile.sums_lane = sums_lane();
    for (const TileAt& at : scratch_.tiles) {
      tile.x = input(at.start);
      tile.sums = scratch_.sums + (pools_ ? at.start : 0);
      const bool direct = stores_directly(at);
      const Piece* pieces = scratch_.pieces.data() + at.first_piece;
      if (direct) {
        const float least = p_.activation == Activation::relu ? 0.0f : -std::numeric_limits<float>::infinity();
        tile.direct = {advance(out.y, p_.dtype, pieces->y), p_.dtype, y_plane(), pieces->count, out.bias, least};
      } else {
        tile.direct = {};
      }
      tile.prefetch = in_place_ && panel == at_.first_panel ? at.vectors * unit_.positions : 0;
      function_of(at.vectors, out.lanes)(tile);
      if (!direct && !pools_) finish(out, pieces, at.pieces);
    }
    if (pools_) finish(out, scratch_.pieces.data(), static_cast<std::int64_t>(scratch_.pieces.size()));
  }

  void finish(const PanelOutput& out, const Piece* pieces, std::int64_t count) const {
    finish_kernels(run_.target).lanes[static_cast<std::size_t>(p_.dtype)](finish_call(out, pieces, count));
  }
  FinishCall finish_call(const PanelOutput& out, const Piece* pieces, std::int64_t count) const {
    return {.sums = scratch_.sums,
            .lane = sums_lane(),
            .lanes = out.lanes,
            .pieces = pieces,
            .piece_count = count,
            .bias = out.bias,
            .activation = p_.activation,
            .pool = p_.pool,
            .row = b_.strip.columns,
            .y = out.y,
            .plane = y_plane(),
            .non_temporal = run_.non_temporal,
            .transposed = nullptr};
  }

  const Run& run_;
  const Blocking& b_;
  const Conv2dProblem& p_;
  const TileUnit& unit_;
  Scratch& scratch_;
  Place at_;
  Outputs outputs_;
  bool in_place_, pools_;
};

}  // namespace

void compute_work_unit(const Run& run, std::int64_t index, Scratch& scratch) {
  WorkUnit(run, index, scratch).compute();
}

}  // namespace gable::cpu::planes
