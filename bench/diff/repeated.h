// Several studies of each build: how far a row's times lie apart from one run of the program to the next is then
// measured for that row. Of one study a side it must be learnt from the other rows (statistics.h), which is wrong where
// rows differ in it, by where their buffers lie or because the machine has other users.
//
//   log T of a row in a study = the row's level for this build + the study's drift + noise of the row
//
// T      The lower quartile: other programs add time to the slower samples. The median must move in the same direction.
// drift  Of each study: the median, over a vendor library's rows or else all rows, of the distance to the row's median
//        over all studies. Without a library, of the drift between the builds no more than `NoiseLimits::drift`.
// noise  The row's variance over the studies of each build, both pooled, with as many degrees of freedom as studies
//        less two. Few studies may agree by chance, so it is moderated: pulled up to the median row's with the weight
//        of 4 degrees of freedom (Smyth 2004, as in statistics.h).
// The interval is Student's at a level divided by the number of rows.
//
// The rounds of one study of each build (measure/rounds.h) are compared in the same way, a round for a study. Two
// studies differ by more than their rounds suggest, since some noise lasts for several rounds, such as another user of
// a shared cache. A row's rounds show how sensitive it is: the more they scatter, the more its interval is widened
// beyond that scatter (repeated.cpp).
#pragma once

#include <span>
#include <vector>

#include "bench/diff/statistics.h"

namespace gable::bench {

/// Fewer studies a side are compared as one pair.
constexpr int kMinStudies = 2;

/// Fewer rounds of a study say too little of their noise.
constexpr int kMinRounds = 8;

enum class Repetition { studies, rounds };

/// A row's times in the studies of one build, in their order; logarithms.
struct RowTimes {
  std::vector<double> lower{}, median{};
};

struct RepeatedRow {
  RowTimes before{}, after{};
  bool is_control = false;
};

/// Log ratio new / old, without drift, with half of its interval.
struct RepeatedChange {
  double lower = 0, median = 0;
  double half_width = 0;

  /// That of the lower quartiles; 0 where the medians moved the other way.
  double moved() const { return lower * median > 0 ? lower : 0; }
};

struct RepeatedResult {
  std::vector<RepeatedChange> rows;
  Noise noise;  ///< drift between the builds; `between` of the median row
};

/// All rows have the times of every study; there are at least kMinStudies on each side.
RepeatedResult compare_repeated(std::span<const RepeatedRow> rows, const NoiseLimits& limits,
                                Repetition repetition = Repetition::studies);

}  // namespace gable::bench
