// x86's units for bf16. Kernels, predicted times and ceilings ask here what this CPU and its system have, so that they
// agree. CPUID is read once: on a virtual machine each of its instructions is a trip to the hypervisor of some
// microseconds, and every choice of a kernel asks for the units.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace gable {

enum class AmxState {
  absent,    ///< the CPU has no tiles for bf16
  withheld,  ///< it has them, but the system lets no process use them: gVisor, a seccomp profile
  usable     ///< a process may use them once it has asked: request_amx()
};

/// What CPUID says.
struct Bf16Units {
  bool pair_products = false;  ///< AVX512-BF16
  bool tiles = false;          ///< AMX for bf16
};

namespace detail {

/// The tiles' kernels need AVX512-BF16 too: it is part of their epilogues. `states` has a bit for each register state
/// that the system lets processes use.
constexpr AmxState amx_state_of(const Bf16Units& units, std::uint64_t states) {
  constexpr std::uint64_t kTileData = 1u << 18;
  if (!units.tiles || !units.pair_products) return AmxState::absent;
  return (states & kTileData) != 0 ? AmxState::usable : AmxState::withheld;
}

#if defined(__x86_64__)
inline Bf16Units read_bf16_units() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // leaf 7, subleaf 0, EDX
  constexpr unsigned kAvx512Bf16 = 1u << 5;                     // leaf 7, subleaf 1, EAX
  Bf16Units units;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return units;
  units.tiles = (edx & kAmxBf16) != 0 && (edx & kAmxTile) != 0;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  if (avx512 && eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0)
    units.pair_products = (eax & kAvx512Bf16) != 0;
  return units;
}

/// Register states that Linux, from 5.16 on, lends to processes that ask.
inline std::uint64_t lent_states() {
  constexpr int kSupported = 0x1021;  // ARCH_GET_XCOMP_SUPP
  std::uint64_t states = 0;
  return syscall(SYS_arch_prctl, kSupported, &states) == 0 ? states : 0;
}

inline bool ask_for_tiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
inline Bf16Units read_bf16_units() { return {}; }
inline std::uint64_t lent_states() { return 0; }
inline bool ask_for_tiles() { return false; }
#endif

}  // namespace detail

inline const Bf16Units& bf16_units() {
  static const Bf16Units units = detail::read_bf16_units();
  return units;
}

/// Asks for nothing.
inline AmxState amx_state() {
  static const AmxState state = detail::amx_state_of(bf16_units(), bf16_units().tiles ? detail::lent_states() : 0);
  return state;
}

/// Asks Linux for the tile registers, once; false where AMX is not usable. The permission holds for all threads of the
/// process and has a price for it: a thread's alternative stack for signals must then be large enough to save the
/// tiles. Linux therefore refuses where a thread's is too small already. So only what is about to use tiles asks.
inline bool request_amx() {
  static const bool granted = amx_state() == AmxState::usable && detail::ask_for_tiles();
  return granted;
}

}  // namespace gable
