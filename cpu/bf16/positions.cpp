// See positions.h. Fitted to 91 windows on AMX, each with halves of 9 to 16 positions.
#include "cpu/bf16/positions.h"

#include <algorithm>
#include <vector>

#include "cpu/bf16/axis.h"
#include "cpu/common/tiling.h"

namespace gable::cpu::bf16 {
namespace {

constexpr double kTile = 60;                    // besides its steps
constexpr double kStep = 36, kPosition = 1.75;  // a step of two halves, and each position of a half
constexpr double kSingleHalf = 0.78;            // the share of a step that a tile of one half takes
constexpr double kStagedBlock = 7.5;            // a block of channels of a position
// Times a step of fewer positions than usual: an image's lines lie further apart than a strip's. With 14 or 16
// positions 99 windows show no difference.
constexpr double kImageSteps = 1.4;

/// Tiles of two halves, and of one.
struct Tiles {
  std::int64_t pairs, singles;
};
Tiles tiles_of_halves(std::int64_t halves) { return {halves / 2, halves % 2}; }

/// Tiles of `lines` lines of `halves` halves each, where the two halves of a tile lie on neighbouring lines.
Tiles tiles_of_lines(std::int64_t lines, std::int64_t halves) { return {lines / 2 * halves, lines % 2 * halves}; }

double cycles_of(const Tiles& tiles, std::int64_t steps, int positions) {
  const double step = static_cast<double>(steps) * (kStep + kPosition * positions);
  return static_cast<double>(tiles.pairs) * (kTile + step) +
         static_cast<double>(tiles.singles) * (kTile + step * kSingleHalf);
}

Tiles tiles_of_region(std::int64_t rows, std::int64_t columns, int positions) {
  const bool narrow = columns < positions && rows > 1;
  const std::int64_t lines = narrow ? columns : rows;
  const std::int64_t halves = ceil_div(narrow ? rows : columns, std::int64_t{positions});
  const Tiles last_line = tiles_of_halves(lines % 2 * halves);
  return {lines / 2 * halves + last_line.pairs, last_line.singles};
}

/// Consecutive outputs along an axis that read the same taps.
struct Lines {
  std::int64_t count;
  TapRange taps;
  std::int64_t count_taps() const { return taps.end - taps.begin; }
};
/// All outputs of an axis. Those between the borders, however many, are not looked at one by one.
std::vector<Lines> lines_of(const Axis& axis, std::int64_t outputs) {
  std::vector<Lines> all;
  const auto add = [&](std::int64_t count, const TapRange& taps) {
    const bool same = !all.empty() && all.back().taps.begin == taps.begin && all.back().taps.end == taps.end;
    if (same) all.back().count += count;
    if (!same && count > 0) all.push_back({count, taps});
  };
  const std::int64_t first = std::min(outputs, ceil_div(axis.pad, axis.stride));
  const std::int64_t inside = std::clamp<std::int64_t>(outputs_inside(axis), 0, outputs - first);
  for (std::int64_t out = 0; out < first; ++out) add(1, axis.taps_of(out));
  add(inside, {0, axis.taps});
  for (std::int64_t out = first + inside; out < outputs; ++out) add(1, axis.taps_of(out));
  return all;
}

}  // namespace

double staged_cycles(const Blocking& b, const StripShape& whole, int positions) {
  const Geometry& g = b.geometry;
  const auto halves = [&](std::int64_t count) { return ceil_div(count, std::int64_t{positions}); };
  const double by_rows = cycles_of(tiles_of_lines(g.rows, halves(g.columns)), b.terms.steps(), positions);
  const double flat =
      cycles_of(tiles_of_halves(halves((g.rows - 1) * whole.columns + g.columns)), b.terms.steps(), positions);
  const std::int64_t staged = b.phases.count() * whole.rows * whole.columns * b.terms.blocks;
  return std::min(by_rows, flat) * static_cast<double>(g.panels) + static_cast<double>(staged) * kStagedBlock;
}

double in_image_cycles(const Conv2dProblem& p, const Blocking& b, int positions) {
  const Geometry& g = b.geometry;
  double cycles = 0;
  const std::vector<Lines> columns = lines_of(column_axis(p, g), g.columns);
  for (const Lines& rows : lines_of(row_axis(p, g), g.rows)) {
    for (const Lines& of_row : columns) {
      cycles += cycles_of(tiles_of_region(rows.count, of_row.count, positions),
                          rows.count_taps() * of_row.count_taps() * b.terms.blocks, positions);
    }
  }
  return cycles * static_cast<double>(g.panels) * (positions < kUsualPositions ? kImageSteps : 1);
}

}  // namespace gable::cpu::bf16
