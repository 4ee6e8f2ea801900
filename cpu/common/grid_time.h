// parallel_time() (tiling.h) for searches, which compare hundreds of cuts of one problem: units that are a grid have
// few kinds, and most cuts are seen to be slower than the best one without following each unit. Searches find the
// same cuts in less time (bench/results/tried.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>

#include "cpu/common/tiling.h"

namespace gable::cpu {

/// The times of up to kManyUnits units.
using UnitTimes = std::array<double, kManyUnits>;

/// A cut is left out early only if it is slower by more than rounding.
constexpr double kAboutEnough = 1 - 1e-9;

/// The time until the last of `threads` threads has finished units of these times. As in parallel_units(), a thread
/// takes the units of its own share, then those that others have left. Infinite if it is not below `enough`.
inline double last_thread_time(int threads, std::int64_t units, const UnitTimes& times, double enough) {
  std::array<std::int64_t, kManyUnits> next, end;
  UnitTimes spent{};
  // Until the first thread is idle, all of them take their own units.
  double first_idle = std::numeric_limits<double>::infinity();
  for (int thread = 0; thread < threads; ++thread) {
    const auto t = static_cast<std::size_t>(thread);
    next[t] = thread == 0 ? 0 : end[t - 1];
    end[t] = units * (thread + 1) / threads;
    first_idle =
        std::min(first_idle, std::accumulate(&times[static_cast<std::size_t>(next[t])], times.data() + end[t], 0.0));
  }
  std::int64_t left = 0;
  for (std::size_t t = 0; t < static_cast<std::size_t>(threads); ++t) {
    while (next[t] < end[t] && spent[t] < first_idle) spent[t] += times[static_cast<std::size_t>(next[t]++)];
    left += end[t] - next[t];
    if (spent[t] * kAboutEnough >= enough) return std::numeric_limits<double>::infinity();
  }
  for (; left > 0; --left) {
    const auto first =
        static_cast<std::size_t>(std::min_element(spent.begin(), spent.begin() + threads) - spent.begin());
    std::size_t share = first;
    while (next[share] == end[share]) share = share + 1 == static_cast<std::size_t>(threads) ? 0 : share + 1;
    spent[first] += times[static_cast<std::size_t>(next[share]++)];
    if (spent[first] * kAboutEnough >= enough) return std::numeric_limits<double>::infinity();
  }
  return *std::max_element(spent.begin(), spent.begin() + threads);
}

/// Units that are a grid: the blocks along each axis, outermost first.
template <std::size_t kAxes>
using UnitAxes = std::array<std::int64_t, kAxes>;

/// parallel_time() of a grid of units in which all blocks of an axis take equally long, but the last may take less.
/// Calls work(unit) once for each kind of unit. Infinite if it is seen not to be below `enough`.
template <std::size_t kAxes, class Work>
double grid_time(int threads, const UnitAxes<kAxes>& blocks, const Work& work,
                 double enough = std::numeric_limits<double>::infinity()) {
  UnitAxes<kAxes> cut{}, step{};  // of the axes with several blocks, innermost first
  std::size_t axes = 0;
  std::int64_t units = 1;
  for (std::size_t axis = kAxes; axis-- > 0; units *= blocks[axis]) {
    if (blocks[axis] == 1) continue;
    cut[axes] = blocks[axis];
    step[axes++] = units;
  }
  if (units > kManyUnits || threads > kManyUnits) return parallel_time(threads, units, work);
  std::array<double, std::size_t{1} << kAxes> times_of_kinds;  // a bit for each axis: whether the block is its last
  double all = 0, longest = 0, shortest = std::numeric_limits<double>::infinity();
  for (std::size_t kind = 0; kind < std::size_t{1} << axes; ++kind) {
    std::int64_t count = 1, unit = 0;
    for (std::size_t axis = 0; axis < axes; ++axis) {
      const bool last = (kind >> axis & 1) != 0;
      unit += last ? (cut[axis] - 1) * step[axis] : 0;
      count *= last ? 1 : cut[axis] - 1;
    }
    times_of_kinds[kind] = work(unit);
    all += static_cast<double>(count) * times_of_kinds[kind];
    longest = std::max(longest, times_of_kinds[kind]);
    shortest = std::min(shortest, times_of_kinds[kind]);
  }
  const double wait = unit_wait(threads) * longest;
  // Some thread takes this many units, and some thread this part of all.
  const double turns = static_cast<double>(ceil_div(units, std::int64_t{threads})) * shortest;
  if ((std::max(all / threads, turns) + wait) * kAboutEnough >= enough) return std::numeric_limits<double>::infinity();
  UnitTimes times;
  UnitAxes<kAxes> at{};
  std::size_t kind = 0;
  for (std::int64_t unit = 0; unit < units; ++unit) {
    times[static_cast<std::size_t>(unit)] = times_of_kinds[kind];
    for (std::size_t axis = 0; axis < axes; ++axis) {
      const std::size_t bit = std::size_t{1} << axis;
      const bool over = ++at[axis] == cut[axis];
      if (over) at[axis] = 0;
      kind = at[axis] + 1 == cut[axis] ? kind | bit : kind & ~bit;
      if (!over) break;
    }
  }
  return last_thread_time(threads, units, times, enough - wait) + wait;
}

}  // namespace gable::cpu
