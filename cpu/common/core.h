// What the kernels' choices need to know of a core's arithmetic.
#pragma once

#include <cstdint>

namespace gable::cpu {

/// Kinds of core that choices and estimates tell apart, each with the CPUs on which it was measured. A CPU of another
/// name is taken for the kind that it looks like.
enum class CoreKind {
  narrow,      ///< vectors of 256 bits or fewer; measured as the target avx2 of Zen 4 and Zen 5
  halved_512,  ///< a vector of 512 bits is two of 256; measured: Zen 4 (EPYC 9004)
  whole_512,   ///< whole vectors of 512 bits, no AMX; measured: Zen 5 (EPYC 9005). Also Skylake-X to Rocket Lake
  amx          ///< whole vectors, AMX, a last level behind a mesh; measured: Sapphire Rapids and Emerald Rapids
};

/// The kind of this CPU's cores. The system's refusal to lend AMX's tiles does not change it.
CoreKind core_kind();

/// The same for code whose vectors have so many f32 lanes: narrow below 16.
CoreKind core_kind(std::int64_t lanes);

/// Whether the estimates of NCHW, and those of memory beside arithmetic, were first fitted to this kind. Its clock is
/// lower than that of the others, or its vectors take twice as long.
constexpr bool is_fitted_to_nchw(CoreKind kind) { return kind == CoreKind::halved_512 || kind == CoreKind::amx; }

/// Whether the core issues a 512-bit instruction as two of 256 bits, as Zen 4 does. A tail of half a vector then takes
/// half the time of a whole one.
bool splits_512_bits();

/// Whether an extension and a shift widen 16 bits to 32 faster than one permutation of words, as on Zen 5. Zen 4 issues
/// each of the two twice; on Intel the extension needs the same port as the permutation, and the shift a port of the
/// FMA.
bool widens_by_shifts();

}  // namespace gable::cpu
