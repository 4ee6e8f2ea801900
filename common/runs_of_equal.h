// Finds where a function of whole numbers changes its value, without evaluating it for each number.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace gable {

/// `value` from `first` on, to where the next run begins.
template <typename Value>
struct EqualRun {
  std::int64_t first = 0;
  Value value{};
};

namespace detail {

/// Adds the runs that begin behind `low` and not behind `high`.
template <typename Value, typename Function>
void add_runs(std::int64_t low, const Value& at_low, std::int64_t high, const Value& at_high, const Function& function,
              std::vector<EqualRun<Value>>& runs) {
  if (at_low == at_high) return;
  if (low + 1 == high) return runs.push_back({high, at_high});
  const std::int64_t middle = low + (high - low) / 2;
  const Value at_middle = function(middle);
  add_runs(low, at_low, middle, at_middle, function, runs);
  add_runs(middle, at_middle, high, at_high, function, runs);
}

}  // namespace detail

/// The runs of `function` over least...most. The function is evaluated at both ends and at the powers of two between
/// them. If two neighbouring values differ, the places where it changes are searched by halving. Equal neighbours count
/// as one run.
template <typename Function>
auto runs_of_equal(std::int64_t least, std::int64_t most, const Function& function) {
  using Value = decltype(function(least));
  std::int64_t low = least;
  Value at_low = function(low);
  std::vector<EqualRun<Value>> runs{{low, at_low}};
  std::int64_t power = 1;
  while (low < most) {
    while (power <= low) power *= 2;
    const std::int64_t high = power < most ? power : most;
    Value at_high = function(high);
    detail::add_runs(low, at_low, high, at_high, function, runs);
    low = high;
    at_low = std::move(at_high);
  }
  return runs;
}

}  // namespace gable
