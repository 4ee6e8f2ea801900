// What the kernels' choices need to know of a core's arithmetic.
#pragma once

namespace gable::cpu {

/// Whether the core issues a 512-bit instruction as two of 256 bits, as Zen 4 does. A tail of half a vector then takes
/// half the time of a whole one.
bool splits_512_bits();

/// Whether an extension and a shift widen 16 bits to 32 faster than one permutation of words, as on Zen 5. Zen 4 issues
/// each of the two twice; on Intel the extension needs the same port as the permutation, and the shift a port of the
/// FMA.
bool widens_by_shifts();

}  // namespace gable::cpu
