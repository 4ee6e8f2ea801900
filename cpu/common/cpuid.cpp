// See cpuid.h. Highway's targets do not name these units, so CPUID is read here, once: on a virtual machine each of its
// instructions is a trip to the hypervisor of some microseconds, and every choice of a kernel asks for the units.
#include "cpu/common/cpuid.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace gable::cpu {

#if defined(__x86_64__)
namespace {

struct Leaf7 {
  unsigned subleaf0_edx = 0, subleaf1_eax = 0;
  bool avx512 = false;
};
Leaf7 read_leaf7() {
  Leaf7 leaf;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return leaf;
  leaf.subleaf0_edx = edx;
  const unsigned subleaves = eax;
  leaf.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  if (subleaves >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) leaf.subleaf1_eax = eax;
  return leaf;
}

const Leaf7& leaf7() {
  static const Leaf7 leaf = read_leaf7();
  return leaf;
}

constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // leaf 7, subleaf 0, EDX
constexpr unsigned kAvx512Bf16 = 1u << 5;                     // leaf 7, subleaf 1, EAX

}  // namespace

std::string missing_bf16_dot() {
  const Leaf7& leaf = leaf7();
  return leaf.avx512 && (leaf.subleaf1_eax & kAvx512Bf16) != 0 ? "" : "this CPU has no AVX512-BF16";
}

namespace {

/// Linux gives a process the tile registers only on request; the permission holds for all of its threads.
std::string request_amx() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  constexpr unsigned kNeeded = kAmxBf16 | kAmxTile;
  if ((leaf7().subleaf0_edx & kNeeded) != kNeeded) return "this CPU has no AMX with bf16";
  if (const std::string missing = missing_bf16_dot(); !missing.empty()) return missing;  // AMX's epilogues use it
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return "the system grants no AMX tile registers";
  return "";
}

}  // namespace

std::string missing_amx() {
  static const std::string missing = request_amx();
  return missing;
}

#else

std::string missing_bf16_dot() { return "AVX512-BF16 is x86's"; }
std::string missing_amx() { return "AMX is x86's"; }

#endif

}  // namespace gable::cpu
