// What the kernels' choices need to know of a core's arithmetic.
#pragma once

namespace gable::cpu {

/// Whether the core issues a 512-bit instruction as two of 256 bits, as Zen 4 does. A tail of half a vector then takes
/// half the time of a whole one.
bool splits_512_bits();

/// Whether 16 bits are widened to 32 faster by an extension and a shift than by one permutation of words, as on Zen 5.
/// Zen 4 takes two turns for each of the two; Intel's extension takes the permutation's port, and the shift the FMA's.
bool widens_by_shifts();

}  // namespace gable::cpu
