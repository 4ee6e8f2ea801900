// Runs last in its executable (doctest orders by file name): every kernel path that was compiled for a target which
// this CPU supports must have run in the tests before.
#include <doctest/doctest.h>

#include "cpu/common/coverage.h"

TEST_CASE("every kernel path ran on every supported target") {
  for (const gable::cpu::PathCoverage& entry : gable::cpu::path_coverage()) {
    if (!entry.supported) {
      MESSAGE("not run, this CPU lacks the target: " << entry.path << " on " << entry.target);
      continue;
    }
    CHECK_MESSAGE(entry.ran, "never ran: " << entry.path << " on " << entry.target);
  }
}
