// Small random problems with difficult values: odd shapes, and NaN, infinities, denormals, -0 and extreme scales among
// the inputs. The same seed gives the same problem and data on every machine.
#pragma once

#include <gable/ops.h>

#include <cstdint>
#include <string_view>

#include "bench/workloads/data.h"

namespace gable::bench {

/// What the inputs hold.
enum class Values {
  uniform,      ///< [-1, 1)
  scaled,       ///< x and weights each times a power of two, as far as products stay normal
  tiny,         ///< x: denormals, the least normal number, zeros of both signs
  overflowing,  ///< x up to the greatest finite number
  infinite,     ///< x: some infinities of both signs
  nan,          ///< x: some NaN
  odd_weights   ///< weights: some NaN and infinities; no padding, whose taps a kernel may multiply by zero or leave out
};
std::string_view to_string(Values values);
/// Some input is no number or infinite.
constexpr bool are_non_finite(Values values) { return values >= Values::infinite; }

struct RandomProblem {
  Op op;  ///< valid, of at most 4 MFLOP: convolutions (85 %) and every other op
  Values values = Values::uniform;
};

RandomProblem random_problem(std::uint64_t seed);
OpData data_of(const RandomProblem& problem, std::uint64_t seed);

}  // namespace gable::bench
