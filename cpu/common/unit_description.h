// Descriptions of plans whose units read strips (unit_input.h) and may store into strips (unit_output.h).
#pragma once

#include <gable/problem.h>

#include <string>

#include "cpu/common/description.h"
#include "cpu/common/unit_input.h"
#include "cpu/common/unit_window.h"

namespace gable::cpu {

/// "2x4x28 outputs, 7 units"
std::string describe_units(const UnitGrid& units);

/// Where pool, bias and activation happen. `tile_pools`: in the register tile; `tile_stores`: it stores the result.
std::string describe_epilogue(const Conv2dProblem& problem, bool tile_pools, bool tile_stores);

/// Says how many units read all or some of their pixels in strips.
struct StagedUnits {
  bool any_in_place, any_staged, any_without_in_place;
};
std::string describe_input(const StagedUnits& units);

/// Calls in_place(window, place), which returns the pixels that a unit reads in place, for the units of an image.
template <class InPlace>
std::string describe_input(const Conv2dProblem& problem, UnitGrid units, const InPlace& in_place) {
  units.image_blocks = 1;
  StagedUnits staged{};
  for_described_units(units.count(), [&](std::int64_t unit) {
    const UnitPlace place = units.at(unit);
    const UnitWindow window = unit_window(problem, units, place);
    const PixelRange pixels = in_place(window, place);
    staged.any_in_place |= pixels.any();
    staged.any_staged |= !pixels.all(window.conv_pixels);
    staged.any_without_in_place |= !pixels.any();
  });
  return describe_input(staged);
}

}  // namespace gable::cpu
