// See core.h. No bit of CPUID says it, so the family does: AMD's 19h with AVX-512 is Zen 4.
#include "cpu/common/core.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gable::cpu {

#if defined(__x86_64__)
bool splits_512_bits() {
  static const bool found = [] {
    constexpr unsigned kZen4Family = 0x19;
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0 || ebx != signature_AMD_ebx) return false;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
    return (eax >> 8 & 0xf) + (eax >> 20 & 0xff) == kZen4Family && __builtin_cpu_supports("avx512f") != 0;
  }();
  return found;
}
#else
bool splits_512_bits() { return false; }
#endif

}  // namespace gable::cpu
