// What a core of this machine reaches, as `auto` takes it for the predicted times of devices on the host.
#pragma once

#include <gable/export.h>

namespace gable {

/// Fused multiply-adds of f32 a second of one core, from registers: what tune_ceilings() remembered on this machine,
/// else measured in 0.5 ms when it is first asked for.
GABLE_API double core_multiply_adds();

/// Measures core_multiply_adds() for about `seconds` and remembers it, for this process and, in the cache of choices,
/// for others.
GABLE_API double tune_ceilings(double seconds = 0.3);

}  // namespace gable
