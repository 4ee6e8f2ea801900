// Runs of halves, for units that take one half at a time: see loops.h.
#include "cpu/bf16/loops.h"

#include <algorithm>
#include <limits>

#include "cpu/bf16/in_rows.h"
#include "cpu/common/cache.h"
#include "cpu/common/coverage.h"

namespace gable::cpu::bf16 {
namespace {

/// Consecutive halves of equal size, along a row or down the rows. Flat, the run starts at `column` of the work unit's
/// consecutive positions.
struct HalfRun {
  const std::uint16_t* a;
  std::int64_t halves;
  int positions, rows;  // of each half: positions of a row, and rows
  TapRange taps;
  std::int64_t row, column;
  const BorderHalf* border;  // in the image: some of the taps read padding beside it; or null
  bool by_parts;             // and these are more than masks can skip. Then it is one half
  bool down;                 // the rows
};

/// Runs whose accumulators exist at a time, so that all of them use a block of weights while L1 holds it.
class RunGroup {
 public:
  explicit RunGroup(std::int64_t most_halves) : most_halves_(most_halves) {}

  std::int64_t room() const { return most_halves_ - halves_; }
  /// Halves along a row.
  void add(const HalfRun& run) {
    halves_ += run.halves;
    if (count_ > 0 && goes_on(runs_[count_ - 1], run)) {
      HalfRun& last = runs_[count_ - 1];
      last.down = last.column == run.column;
      last.halves += run.halves;
    } else {
      runs_[count_++] = run;
    }
  }
  void clear() { count_ = halves_ = 0; }
  std::int64_t halves() const { return halves_; }
  const HalfRun* begin() const { return runs_; }
  const HalfRun* end() const { return runs_ + count_; }

 private:
  static bool goes_on(const HalfRun& last, const HalfRun& next) {
    if (last.taps.begin != next.taps.begin || last.taps.end != next.taps.end) return false;
    if (last.positions != next.positions || last.rows != next.rows || last.by_parts || next.by_parts) return false;
    if (last.row == next.row) {
      return last.border == nullptr && next.border == nullptr && !last.down &&
             last.column + last.halves * last.positions == next.column;
    }
    return last.column == next.column && last.row + last.halves * last.rows == next.row && next.halves == 1 &&
           (last.down || last.halves == 1);
  }

  std::int64_t most_halves_, count_ = 0, halves_ = 0;
  HalfRun runs_[kMaxHalves];
};

constexpr std::int64_t kHalvesWorthARound = 4;
/// Positions of a half whose products take longer than their weights take from L2.
constexpr int kPositionsWorthL2 = 7;

class RunLoop {
 public:
  RunLoop(TileLoop& loop, const InputView& input, const Chunk& chunk, bool flat)
      : loop_(loop),
        b_(loop.run().blocking),
        input_(input),
        chunk_(chunk),
        flat_(flat),
        rows_together_(flat ? 1 : even_part(loop.work().rows, rows_of_half(b_, loop.run().unit, loop.work().columns))),
        whole_(flat ? whole_positions() : TapRange{}),
        group_(most_halves()) {}

  void run() {
    const WorkUnit& work = loop_.work();
    if (flat_) {
      add_rows({0, 1, {0, b_.terms.tap_count()}}, (work.rows - 1) * b_.strip.columns + work.columns);
    } else if (b_.column_outputs.empty()) {
      for (std::int64_t row = 0; row < work.rows;) {
        const Rows rows = next_rows(row);
        add_rows(rows, work.columns);
        row += rows.count;
      }
    } else {
      add_columns();
    }
    multiply();
  }

 private:
  /// All panels of a chunk take a group's input from L1, beside the weights.
  std::int64_t most_halves() const {
    if (chunk_.end - chunk_.begin == 1) return bf16::most_halves(b_);
    const std::int64_t half_bytes = b_.positions * b_.geometry.group_c * 2;
    return std::clamp<std::int64_t>(l1_bytes() / 2 / half_bytes, 2, bf16::most_halves(b_));
  }
  /// The taps of kernel rows that read the image.
  TapRange taps_of_row(std::int64_t row) const {
    const Conv2dProblem& p = loop_.run().problem;
    const std::int64_t first = (loop_.work().first_row + row) * p.stride_h - p.pad_top;
    if (first >= 0 && first + (p.r - 1) * p.dilation_h < b_.geometry.h) return {0, p.r * b_.terms.tap_columns};
    const TapRange rows = taps_inside(first, b_.geometry.h, p.dilation_h, p.r);
    return {rows.begin * b_.terms.tap_columns, rows.end * b_.terms.tap_columns};
  }

  /// The taps that some position of `count` rows reads.
  TapRange taps_of_rows(std::int64_t row, std::int64_t count) const {
    const TapRange of_first = taps_of_row(row), of_last = taps_of_row(row + count - 1);
    return {std::min(of_first.begin, of_last.begin), std::max(of_first.end, of_last.end)};
  }
  /// The taps that some position of the rows from one flat position to another reads.
  TapRange taps_between(std::int64_t first, std::int64_t last) const {
    const std::int64_t row = first / b_.strip.columns;
    return taps_of_rows(row, last / b_.strip.columns - row + 1);
  }
  /// The rows of outputs, from one of the work unit on, that a half takes together.
  struct Rows {
    std::int64_t first, count;
    TapRange taps;
  };
  Rows next_rows(std::int64_t row) const {
    const TapRange taps = taps_of_row(row);
    std::int64_t count = 1;
    while (count < std::min(rows_together_, loop_.work().rows - row) && may_join(taps, row + count)) ++count;
    return {row, count, count == 1 ? taps : taps_of_rows(row, count)};
  }
  /// Whether a half of rows with these taps may take one more. Padding is zeros in the strip; in the image no row may
  /// read it.
  bool may_join(const TapRange& taps, std::int64_t row) const {
    if (b_.input != InputPath::in_rows) return true;
    const TapRange others = taps_of_row(row);
    return others.begin == taps.begin && others.end == taps.end;
  }
  /// The flat positions whose rows read no padding above or below the image.
  TapRange whole_positions() const {
    const Conv2dProblem& p = loop_.run().problem;
    if (b_.terms.tap_rows == 1) return {0, std::numeric_limits<std::int64_t>::max()};
    const std::int64_t above = p.pad_top - loop_.work().first_row * p.stride_h;
    const std::int64_t below = b_.geometry.h + above - (p.r - 1) * p.dilation_h;
    return {ceil_div(std::max<std::int64_t>(above, 0), p.stride_h) * b_.strip.columns,
            ceil_div(std::max<std::int64_t>(below, 0), p.stride_h) * b_.strip.columns};
  }

  /// Halves of these rows, which read no padding or have it in the strip. Flat, halves at the image's edges have fewer
  /// taps.
  void add_rows(const Rows& rows, std::int64_t columns) {
    const std::int64_t step = even_part(columns, b_.positions);
    const std::int64_t whole_end = flat_ ? std::min(columns, whole_.end) : columns;
    for (std::int64_t column = 0, halves; column < columns; column += halves * step) {
      const std::int64_t positions = std::min(step, columns - column);
      const bool whole = !flat_ || (column >= whole_.begin && column + positions <= whole_.end);
      halves = whole ? std::clamp<std::int64_t>((whole_end - column) / step, 1, group_.room()) : 1;
      HalfRun run = run_at(rows, column, positions);
      run.halves = halves;
      if (!whole) run.taps = taps_between(column, column + positions - 1);
      add(run);
    }
  }
  /// Halves that read the image: those of the same columns one after another, as they read the same padding.
  void add_columns() {
    const WorkUnit& work = loop_.work();
    const std::int64_t step = even_part(work.columns, b_.positions);
    Rows rows[kMaxHalves];
    for (std::int64_t row = 0; row < work.rows;) {
      int count = 0;
      for (; count < kMaxHalves && row < work.rows; row += rows[count++].count) rows[count] = next_rows(row);
      const BorderHalf* half = b_.border_halves.data() + work.first_column / b_.work.columns * b_.row_halves;
      for (std::int64_t column = 0; column < work.columns; column += step, ++half) {
        const std::int64_t positions = std::min(step, work.columns - column);
        for (int i = 0; i < count; ++i) {
          HalfRun run = run_at(rows[i], column, positions);
          if (half->is_at_border) {
            run.border = half;
            run.by_parts = half->needs_parts || takes_few_in_parts(positions, rows[i].count);
          }
          add(run);
        }
      }
    }
  }
  void note(Path path) const { note_path(path, loop_.run().target, loop_.run().unit.coverage); }
  HalfRun run_at(const Rows& rows, std::int64_t column, std::int64_t positions) const {
    return {.a = input_.first + rows.first * input_.row + column * input_.position,
            .halves = 1,
            .positions = static_cast<int>(positions),
            .rows = static_cast<int>(rows.count),
            .taps = rows.taps,
            .row = rows.first,
            .column = column,
            .border = nullptr,
            .by_parts = false,
            .down = false};
  }
  void add(const HalfRun& run) {
    if (run.rows > 1) note(run.rows > run.positions ? Path::bf16_column_halves : Path::bf16_row_halves);
    if (run.border != nullptr) note(run.by_parts ? Path::bf16_border_in_parts : Path::bf16_masked_border);
    group_.add(run);
    if (group_.room() == 0) multiply();
  }

  /// The group's halves, panel by panel.
  void multiply() {
    for (std::int64_t panel = chunk_.begin; panel < chunk_.end; ++panel) {
      loop_.begin_panel(panel);
      multiply_panel();
    }
    group_.clear();
  }

  /// Blocks of channels in a round of the group's halves. A round loads and stores all accumulators: 2 to 3 % of the
  /// time of a 3x3 block's products. Few halves do not pay for it, nor do blocks of a single tap, which have too few
  /// products.
  std::int64_t blocks_at_a_time() const {
    const bool few = group_.halves() < kHalvesWorthARound || b_.terms.tap_count() == 1;
    if (b_.weights.fit_l1 || few) return b_.terms.blocks;
    const std::int64_t block_bytes = b_.terms.panel_bytes() / b_.terms.blocks;
    return even_part(b_.terms.blocks, std::clamp<std::int64_t>(round_bytes() / block_bytes, 1, b_.terms.blocks));
  }
  /// Room for a round's weights: L2 beside the strip, from where each half prefetches them into L1. If weights come
  /// from the last level, those of the next round are there too. Short halves would wait for L2, so L1 keeps their
  /// weights.
  std::int64_t round_bytes() const {
    const std::int64_t of_l1 = l1_bytes() / 2;
    if (group_.begin()->positions * group_.begin()->rows < kPositionsWorthL2) return of_l1;
    const std::int64_t beside_strip = l2_bytes() * 3 / 4 - static_cast<std::int64_t>(b_.thread_bytes);
    return std::max(of_l1, beside_strip / (b_.weights.fit_l2 ? 1 : 2));
  }

  void multiply_panel() {
    Tile& tile = loop_.queue().tile();
    const std::int64_t step = blocks_at_a_time(), blocks = b_.terms.blocks;
    const std::uint16_t* const weights = tile.operands.b;
    for (std::int64_t first = 0; first < blocks; first += step) {
      const bool last = first + step >= blocks;
      tile.blocks = {last ? blocks - first : step, last ? b_.terms.last_pairs : kChannels / 2,
                     last && b_.terms.last_is_single};
      tile.operands.b = weights + first * b_.terms.tap_count() * kWeightBlock;
      tile.adds = first > 0;
      // A single half would prefetch only half of the lines.
      const bool prefetches = !b_.weights.fit_l2 && group_.halves() > 1;
      tile.next_weights = prefetches ? step * b_.terms.tap_count() * kWeightBlock : 0;
      tile.first_half = 0;
      float* accumulators = loop_.queue().first_accumulators();
      for (const HalfRun& run : group_) {
        tile.accumulators = accumulators;
        tile.operands.a[0] = run.a + first * tile.operands.a_block;
        tile.repeats = run.halves;
        take_columns(run, run.positions);
        tile.taps.of_half[0] = run.taps;
        if (run.border == nullptr) {
          multiply_run(run, last);
        } else if (run.by_parts) {
          multiply_by_parts(run, last);
        } else {
          multiply_masked(run, last);
        }
        accumulators += run.halves * b_.half_floats;
        tile.first_half += run.halves;
      }
    }
    tile.adds = false;
    tile.operands.b = weights;
  }

  /// The tile takes so many columns of the half's rows. Of rows and columns, the fewer are its runs.
  void take_columns(const HalfRun& run, int columns) {
    Tile& tile = loop_.queue().tile();
    tile.positions[0] = run.rows * columns;
    if (run.halves > 1) {
      tile.repeat_input = run.down ? run.rows * input_.row : run.positions * input_.position;
      tile.repeat_y = run.down ? run.rows * row_outputs() : run.positions * loop_.run().problem.k;
    }
    if (run.rows == 1 && is_plain_) return;
    is_plain_ = run.rows == 1;
    PositionRuns& runs = tile.runs;
    runs.are_columns = run.rows > columns;
    runs.count = runs.are_columns ? columns : run.rows;
    const std::int64_t row_sums = run.positions * kLanes, pixel = loop_.run().problem.k;
    tile.operands.position = runs.are_columns ? input_.row : input_.position;
    runs.input = runs.are_columns ? input_.position : input_.row;
    runs.position_sums = runs.are_columns ? row_sums : kLanes;
    runs.sums = runs.are_columns ? kLanes : row_sums;
    runs.y = runs.are_columns ? pixel : row_outputs();
  }
  bool runs_are_columns(const HalfRun& run) const { return run.rows > run.positions; }
  /// Elements of output from row to row.
  std::int64_t row_outputs() const { return loop_.output().row * loop_.run().problem.k; }

  void multiply_run(const HalfRun& run, bool last) {
    const bool one_row = !flat_ || loop_.work().rows == 1;
    if (last && one_row && loop_.runs_epilogue_in_registers()) {
      Epilogue epilogue = loop_.epilogue(loop_.row_of(run.row, run.column, run.positions));
      if (runs_are_columns(run)) epilogue.y_pixel = row_outputs();
      return loop_.queue().multiply_half(&epilogue);
    }
    loop_.queue().multiply_half(nullptr);
    if (!last) return;
    const float* accumulators = loop_.queue().tile().accumulators;
    HalfRun one = run;
    for (std::int64_t half = 0; half < run.halves; ++half, accumulators += b_.half_floats) {
      run_epilogues(one, accumulators);
      (run.down ? one.row : one.column) += run.down ? run.rows : run.positions;
    }
  }

  /// Columns of the output, of those of the work unit.
  TapRange columns_of(std::int64_t column, std::int64_t positions) const {
    const std::int64_t first = loop_.work().first_column + column;
    return {first, first + positions};
  }
  /// The positions [begin, end) of a half whose taps in a kernel column read the image.
  TapRange positions_inside(const HalfRun& run, std::int64_t kernel_column) const {
    return columns_inside(b_, columns_of(run.column, run.positions), kernel_column);
  }
  /// Calls use(positions, kernel columns) for each run of kernel columns that read the image at the same positions.
  template <class Use>
  void for_column_parts(const HalfRun& run, const Use& use) const {
    for (std::int64_t first = 0, next; first < b_.terms.tap_columns; first = next) {
      const TapRange positions = positions_inside(run, first);
      for (next = first + 1; next < b_.terms.tap_columns; ++next) {
        const TapRange others = positions_inside(run, next);
        if (others.begin != positions.begin || others.end != positions.end) break;
      }
      if (positions.begin < positions.end) use(positions, TapRange{first, next});
    }
  }
  /// Part of a half: some positions and the kernel columns that all of them read in the image, or none, for sums of
  /// zero. Sums pass through memory from part to part, in whole vectors, which loads then need not wait for.
  static constexpr TapRange kNoColumns{0, 0};
  void multiply_part(const HalfRun& run, const TapRange& positions, const TapRange& columns) {
    if (positions.begin == positions.end) return;
    Tile& tile = loop_.queue().tile();
    const std::uint16_t* const a = tile.operands.a[0];
    float* const accumulators = tile.accumulators;
    tile.operands.a[0] = a + positions.begin * input_.position;
    tile.accumulators = accumulators + positions.begin * kLanes;
    take_columns(run, static_cast<int>(positions.end - positions.begin));
    set_columns(run, columns);
    loop_.queue().multiply_half(nullptr);
    tile.operands.a[0] = a;
    tile.accumulators = accumulators;
    take_columns(run, run.positions);
  }
  void set_columns(const HalfRun& run, const TapRange& columns) {
    Taps& taps = loop_.queue().tile().taps;
    const std::int64_t after = b_.terms.tap_columns - columns.end;
    taps.of_half[0] = {run.taps.begin + columns.begin, columns.end == 0 ? run.taps.begin : run.taps.end - after};
    taps.run = columns.end - columns.begin;
    taps.pitch = b_.terms.tap_columns;
  }

  /// Halves at the image's left or right border, by masks for the columns that some kernel columns read in padding.
  void multiply_masked(const HalfRun& run, bool last) {
    Taps& taps = loop_.queue().tile().taps;
    const BorderHalf& border = *run.border;
    if (border.read.end - border.read.begin < b_.terms.tap_columns) set_columns(run, border.read);
    taps.border = border.masks.data();
    taps.border_columns = border.read.end - border.read.begin;
    taps.border_is_outermost = border.masks_are_outermost;
    multiply_run(run, last);
    taps.border = nullptr;
    taps.run = 0;
  }

  /// A half at the image's left or right border, which skips the padding beside the image. The kernel columns that all
  /// positions read come last, so that the epilogue follows in registers.
  void multiply_by_parts(const HalfRun& run, bool last) {
    Tile& tile = loop_.queue().tile();
    const bool added = tile.adds;
    TapRange of_all{0, 0};
    for_column_parts(run, [&](const TapRange& positions, const TapRange& columns) {
      if (positions.end - positions.begin == run.positions) {
        of_all = columns;
        return;
      }
      multiply_part(run, positions, columns);
      if (tile.adds) return;
      multiply_part(run, {0, positions.begin}, kNoColumns);
      multiply_part(run, {positions.end, run.positions}, kNoColumns);
      tile.adds = true;
    });
    if (of_all.begin < of_all.end) {
      set_columns(run, of_all);
      multiply_run(run, last);
    } else {
      if (!tile.adds) multiply_part(run, {0, run.positions}, kNoColumns);
      if (last) run_epilogues(run, tile.accumulators);
    }
    tile.taps.run = 0;
    tile.adds = added;
  }

  /// The epilogues of one half's positions, except positions that are no outputs.
  void run_epilogues(const HalfRun& run, const float* accumulators) const {
    const std::int64_t column = run.column;
    if (!flat_ || loop_.work().rows == 1) {
      for (std::int64_t row = 0; row < run.rows; ++row, accumulators += run.positions * kLanes) {
        run_epilogue(loop_.row_of(run.row + row, column, run.positions), accumulators);
      }
      return;
    }
    const std::int64_t columns = b_.strip.columns;
    for (std::int64_t i = 0; i < run.positions;) {
      const std::int64_t row = (column + i) / columns, of_row = (column + i) % columns;
      const std::int64_t here = std::min<std::int64_t>(run.positions - i, columns - of_row);
      const std::int64_t outputs = std::min(here, loop_.work().columns - of_row);
      if (outputs > 0) run_epilogue(loop_.row_of(row, of_row, outputs), accumulators + i * kLanes);
      i += here;
    }
  }
  void run_epilogue(const PixelRun& pixels, const float* accumulators) const {
    Epilogue call = loop_.epilogue(pixels);
    call.accumulators = accumulators;
    call.run(call);
  }

  TileLoop& loop_;
  const Blocking& b_;
  const InputView& input_;
  const Chunk& chunk_;
  bool flat_;
  std::int64_t rows_together_;  // the most rows of a half
  bool is_plain_ = false;       // the tile's positions are one run, along a row
  TapRange whole_;
  RunGroup group_;
};

}  // namespace

void multiply_runs(TileLoop& loop, const InputView& input, const Chunk& chunk, bool flat) {
  RunLoop(loop, input, chunk, flat).run();
}

}  // namespace gable::cpu::bf16
