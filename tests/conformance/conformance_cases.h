// The ops that every device is held against: hand-picked odd shapes crossed with dtypes, layouts and epilogues, and
// random ones from a fixed seed.
#pragma once

#include <gable/ops.h>

#include <vector>

namespace gable::conformance {

/// All are valid. With `fast`, a spread-out fraction of them, for sanitizers and emulators.
std::vector<Op> cases(bool fast);

}  // namespace gable::conformance
