// What a measurement means, for people who want to do something about it: the regime that it is in with what would
// help, how fast the naive algorithm would be, and what a fused epilogue saves. bench/measure/insight.h computes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gable::bench {

/// What takes the time, why it is believed, and what would help. Rows have "overhead", "latency" (most of T does not
/// grow with the work, and is longer than a call without work), "memory:LEVEL", "compute" and "below": far from every
/// roof. Programs have more (bench/program/findings.h).
struct Regime {
  std::string name{};
  std::string evidence{};  ///< a sentence with the measured numbers
  std::vector<std::string> advice{};
};

/// The same convolution with twice the batch, in turn with the row: whether its time grows with its work.
struct Scaling {
  double work = 2;       ///< its W over the row's
  double bytes = 1;      ///< its least Q over the row's
  double time = 1;       ///< its T over the row's
  std::string kernel{};  ///< that ran it; empty: the row's

  /// The share of the row's T that does not grow with the work; none where most of Q does not grow either (weights).
  std::optional<double> fixed_share() const;
};

/// The convolution without any reuse: both operands of each multiplication come from memory.
struct NaiveModel {
  double bytes = 0;                 ///< that it moves
  std::optional<double> seconds{};  ///< bytes / the measured bandwidth; none without ceilings
};

/// What an epilogue inside the kernel saves, against a convolution and a pass of its own over its output.
struct Fusion {
  double bytes_saved = 0;
  std::optional<double> seconds_saved{};  ///< measured row without the pool + its pass at the measured bandwidth - T
};

}  // namespace gable::bench
