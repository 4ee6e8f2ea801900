// The arithmetic rate of a core of this machine. `auto` predicts the times of devices on the host with it.
#pragma once

#include <gable/export.h>

namespace gable {

/// f32 fused multiply-adds a second of one core, from registers: the rate that tune_ceilings() stored on this machine,
/// otherwise measured for 0.5 ms at the first call, where an `auto` was opened before with samples of that time.
GABLE_API double core_multiply_adds();

/// Measures core_multiply_adds() for about `seconds`, stores it for this process and, in the cache of choices, for
/// other processes, and returns it.
GABLE_API double tune_ceilings(double seconds = 0.3);

}  // namespace gable
