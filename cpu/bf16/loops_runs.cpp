// Runs of halves, for units that take one half at a time: see loops.h.
#include "cpu/bf16/loops.h"

#include <algorithm>
#include <limits>

#include "cpu/common/cache.h"

namespace gable::cpu::bf16 {
namespace {

/// Consecutive halves of equal size. Flat, the run starts at `column` of the work unit's consecutive positions.
struct HalfRun {
  const std::uint16_t* a;
  std::int64_t halves;
  int positions;  // of each half
  TapRange taps;
  std::int64_t row, column;
  bool on_border;  // in the image: some of the taps read padding beside it. Then it is one half
};

/// Runs whose accumulators exist at a time, so that all of them use a block of weights while L1 holds it.
class RunGroup {
 public:
  explicit RunGroup(std::int64_t most_halves) : most_halves_(most_halves) {}

  bool is_full() const { return halves_ == most_halves_; }
  void add(const HalfRun& half) {
    ++halves_;
    if (count_ > 0) {
      HalfRun& last = runs_[count_ - 1];
      const bool same_taps = last.taps.begin == half.taps.begin && last.taps.end == half.taps.end;
      const bool follows = !last.on_border && !half.on_border && last.row == half.row &&
                           last.positions == half.positions && same_taps &&
                           last.column + last.halves * last.positions == half.column;
      if (follows) {
        ++last.halves;
        return;
      }
    }
    runs_[count_++] = half;
  }
  void clear() { count_ = halves_ = 0; }
  std::int64_t halves() const { return halves_; }
  const HalfRun* begin() const { return runs_; }
  const HalfRun* end() const { return runs_ + count_; }

 private:
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
        whole_(whole_positions()),
        group_(most_halves()) {}

  void run() {
    const WorkUnit& work = loop_.work();
    if (flat_) {
      add_row(0, (work.rows - 1) * b_.strip.columns + work.columns, {0, b_.terms.tap_count()});
    } else {
      for (std::int64_t row = 0; row < work.rows; ++row) add_row(row, work.columns, taps_of_row(row));
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
    const TapRange rows = taps_inside(first, b_.geometry.h, p.dilation_h, p.r);
    return {rows.begin * b_.terms.tap_columns, rows.end * b_.terms.tap_columns};
  }

  /// The taps that some position of the rows from one flat position to another reads.
  TapRange taps_between(std::int64_t first, std::int64_t last) const {
    const TapRange of_first = taps_of_row(first / b_.strip.columns), of_last = taps_of_row(last / b_.strip.columns);
    return {std::min(of_first.begin, of_last.begin), std::max(of_first.end, of_last.end)};
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

  /// `taps` of a row; flat, halves at the image's edges have fewer.
  void add_row(std::int64_t row, std::int64_t columns, const TapRange& taps) {
    const std::int64_t step = even_part(columns, b_.positions);
    for (std::int64_t column = 0; column < columns; column += step) {
      const std::uint16_t* a = input_.first + row * input_.row + column * input_.position;
      const std::int64_t positions = std::min(step, columns - column);
      const bool whole = !flat_ || (column >= whole_.begin && column + positions <= whole_.end);
      group_.add({a, 1, static_cast<int>(positions), whole ? taps : taps_between(column, column + positions - 1), row,
                  column, is_on_border(column, positions)});
      if (group_.is_full()) multiply();
    }
  }

  bool is_on_border(std::int64_t column, std::int64_t positions) const {
    if (b_.input != InputPath::in_rows || b_.terms.fold > 1) return false;
    const Axis axis = column_axis(loop_.run().problem, b_.geometry);
    const std::int64_t first = loop_.work().first_column + column;
    return axis.taps_of(first).begin > 0 || axis.taps_of(first + positions - 1).end < axis.taps;
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
    if (group_.begin()->positions < kPositionsWorthL2) return of_l1;
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
        tile.positions[0] = run.positions;
        tile.repeats = run.halves;
        tile.taps.of_half[0] = run.taps;
        run.on_border ? multiply_border(run, last) : multiply_run(run, last);
        accumulators += run.halves * b_.half_floats;
        tile.first_half += run.halves;
      }
    }
    tile.adds = false;
    tile.operands.b = weights;
  }

  void multiply_run(const HalfRun& run, bool last) {
    const bool one_row = !flat_ || loop_.work().rows == 1;
    if (last && one_row && loop_.runs_epilogue_in_registers()) {
      const Epilogue epilogue = loop_.epilogue(loop_.row_of(run.row, run.column, run.positions));
      return loop_.queue().multiply_half(&epilogue);
    }
    loop_.queue().multiply_half(nullptr);
    if (!last) return;
    const float* accumulators = loop_.queue().tile().accumulators;
    for (std::int64_t half = 0; half < run.halves; ++half, accumulators += b_.half_floats) {
      run_epilogues(run, run.column + half * run.positions, accumulators);
    }
  }

  /// The positions [begin, end) of a half whose taps in a kernel column read the image.
  TapRange positions_inside(const HalfRun& run, std::int64_t kernel_column) const {
    const Axis axis = column_axis(loop_.run().problem, b_.geometry);
    const std::int64_t first = (loop_.work().first_column + run.column) * axis.stride - axis.pad;
    return taps_inside(first + kernel_column * axis.dilation, axis.size, axis.stride, run.positions);
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
    tile.operands.a[0] = a + positions.begin * tile.operands.position;
    tile.accumulators = accumulators + positions.begin * kLanes;
    tile.positions[0] = static_cast<int>(positions.end - positions.begin);
    set_columns(run, columns);
    loop_.queue().multiply_half(nullptr);
    tile.operands.a[0] = a;
    tile.accumulators = accumulators;
    tile.positions[0] = run.positions;
  }
  void set_columns(const HalfRun& run, const TapRange& columns) {
    Taps& taps = loop_.queue().tile().taps;
    const std::int64_t after = b_.terms.tap_columns - columns.end;
    taps.of_half[0] = {run.taps.begin + columns.begin, columns.end == 0 ? run.taps.begin : run.taps.end - after};
    taps.run = columns.end - columns.begin;
    taps.pitch = b_.terms.tap_columns;
  }

  /// A half at the image's left or right border, which skips the padding beside the image. The kernel columns that all
  /// positions read come last, so that the epilogue follows in registers.
  void multiply_border(const HalfRun& run, bool last) {
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
      if (last) run_epilogues(run, run.column, tile.accumulators);
    }
    tile.taps.run = 0;
    tile.adds = added;
  }

  /// The epilogues of a half's positions, from `column` on, except positions that are no outputs.
  void run_epilogues(const HalfRun& run, std::int64_t column, const float* accumulators) const {
    if (!flat_ || loop_.work().rows == 1) {
      return run_epilogue(loop_.row_of(run.row, column, run.positions), accumulators);
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
  TapRange whole_;
  RunGroup group_;
};

}  // namespace

void multiply_runs(TileLoop& loop, const InputView& input, const Chunk& chunk, bool flat) {
  RunLoop(loop, input, chunk, flat).run();
}

}  // namespace gable::cpu::bf16
