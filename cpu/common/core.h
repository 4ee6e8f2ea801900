// What the kernels' choices need to know of a core's arithmetic.
#pragma once

namespace gable::cpu {

/// Whether the core issues a 512-bit instruction as two of 256 bits, as Zen 4 does. A tail of half a vector then takes
/// half the time of a whole one.
bool splits_512_bits();

}  // namespace gable::cpu
