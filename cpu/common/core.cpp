// See core.h. No bit of CPUID says it, so the family does: AMD's 19h with AVX-512 is Zen 4.
#include "cpu/common/core.h"

#include "common/bf16_units.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gable::cpu {

#if defined(__x86_64__)
namespace {

constexpr unsigned kZen4Family = 0x19;

/// The family of an AMD CPU with AVX-512; 0 of others.
unsigned amd_family() {
  static const unsigned found = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0 || ebx != signature_AMD_ebx) return 0u;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || __builtin_cpu_supports("avx512f") == 0) return 0u;
    return (eax >> 8 & 0xf) + (eax >> 20 & 0xff);
  }();
  return found;
}

}  // namespace

bool splits_512_bits() { return amd_family() == kZen4Family; }
bool widens_by_shifts() { return amd_family() > kZen4Family; }

CoreKind core_kind() {
  static const CoreKind kind = amx_state() != AmxState::absent          ? CoreKind::amx
                               : splits_512_bits()                      ? CoreKind::halved_512
                               : __builtin_cpu_supports("avx512f") != 0 ? CoreKind::whole_512
                                                                        : CoreKind::narrow;
  return kind;
}
#else
CoreKind core_kind() { return CoreKind::narrow; }
bool splits_512_bits() { return false; }
bool widens_by_shifts() { return false; }
#endif

CoreKind core_kind(std::int64_t lanes) { return lanes < 16 ? CoreKind::narrow : core_kind(); }

}  // namespace gable::cpu
