// See unit_description.h.
#include "cpu/common/unit_description.h"

namespace gable::cpu {

std::string describe_units(const UnitGrid& units) {
  return (units.images > 1 ? text(units.images) + "x" : "") + text(units.rows) + "x" + text(units.pixels) +
         " outputs, " + text(units.count()) + " units";
}

std::string describe_epilogue(const Conv2dProblem& p, bool tile_pools, bool tile_stores) {
  const char* pool = p.pool.none() ? "no pool" : tile_pools ? "max-pool in the tile" : "max-pool in an L2 strip";
  return std::string(pool) + ", bias and activation " + (tile_stores ? "in registers" : "in an L2 strip");
}

std::string describe_input(const StagedUnits& units) {
  if (!units.any_staged) return "input in place";
  if (!units.any_in_place) return "input staged";
  return units.any_without_in_place ? "input staged in some units and elsewhere where tiles touch padding"
                                    : "input staged where tiles touch padding";
}

}  // namespace gable::cpu
