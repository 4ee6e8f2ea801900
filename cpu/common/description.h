// A description of a convolution's plan: the text of explain().
#pragma once

#include <cstdint>
#include <string>

namespace gable::cpu {

/// The number as text, for descriptions and refusals.
inline std::string text(std::int64_t value) { return std::to_string(value); }

/// Calls use(unit) for the units of work that a description looks at: all of `count`, or if there are more than 3 *
/// kDescribedUnits, kDescribedUnits each at the beginning, in the middle and at the end, so that a plan of 10^9 units
/// is made at once. Returns whether these are all.
inline constexpr std::int64_t kDescribedUnits = 1 << 14;
template <class Use>
bool for_described_units(std::int64_t count, const Use& use) {
  if (count <= 3 * kDescribedUnits) {
    for (std::int64_t unit = 0; unit < count; ++unit) use(unit);
    return true;
  }
  for (const std::int64_t first : {std::int64_t{0}, (count - kDescribedUnits) / 2, count - kDescribedUnits}) {
    for (std::int64_t unit = first; unit < first + kDescribedUnits; ++unit) use(unit);
  }
  return false;
}

struct Conv2dDescription {
  std::string kernel;    // "direct", "depthwise_staged", ...
  std::string target;    // "avx512", ...
  std::string tile;      // register tile: rows × pixels × lanes
  std::string blocking;  // out tile, in tile, chunk, unit of work
  std::string fusion;    // where pool, bias and activation happen, and whether the input is staged
  int threads;
};

}  // namespace gable::cpu
