// Runs last in its executable (doctest orders by file name): every kernel path that was compiled for a target which
// this CPU supports must have run in the tests before. Paths of the bf16 units must have run on each unit of this
// machine, and everywhere on the emulation of AMX.
#include <doctest/doctest.h>

#include <string>

#include "cpu/bf16/unit.h"
#include "cpu/common/coverage.h"

namespace gable::cpu {
namespace {

std::string missing_of(const PathCoverage& entry) {
  if (!entry.supported) return "this CPU lacks the target";
  if (entry.unit == PathUnit::amx) return amx_unit().missing;
  if (entry.unit == PathUnit::bf16_dot) return bf16_dot_unit().missing;
  return "";
}

}  // namespace

TEST_CASE("every kernel path ran on every supported target and unit") {
  for (const PathCoverage& entry : path_coverage()) {
    const std::string missing = missing_of(entry);
    if (!missing.empty()) {
      MESSAGE("not run, " << missing << ": " << entry.path << " on " << entry.target << ", " << name_of(entry.unit));
      // The emulation's runs must not count for the unit.
      CHECK_MESSAGE(!entry.ran, "ran without its unit: " << entry.path << " on " << name_of(entry.unit));
      continue;
    }
    CHECK_MESSAGE(entry.ran, "never ran: " << entry.path << " on " << entry.target << ", " << name_of(entry.unit));
  }
}

TEST_CASE("each bf16 path is expected of AMX, apart from its emulation") {
  int amx = 0, emulated = 0;
  for (const PathCoverage& entry : path_coverage()) {
    if (entry.target != best_target().name) continue;
    amx += entry.unit == PathUnit::amx ? 1 : 0;
    emulated += entry.unit == PathUnit::emulated ? 1 : 0;
    if (entry.path == "narrow_groups" || entry.path == "few_outputs") continue;  // in vectors of f32, and by pairs
    CHECK((entry.unit == PathUnit::vectors) == (entry.path.substr(0, 5) != "bf16_"));
  }
  CHECK(amx == emulated);
  CHECK(amx > 0);
}

}  // namespace gable::cpu
