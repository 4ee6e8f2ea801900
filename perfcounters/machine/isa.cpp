// SIMD features, vendor and hypervisor: CPUID on x86, the auxiliary vector on Arm.
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <array>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>

#include "perfcounters/machine/files.h"
#include "perfcounters/machine/parts.h"

namespace gable::perf {

#if defined(__x86_64__)

namespace {

struct CpuId {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuId cpuid(unsigned leaf, unsigned subleaf = 0) {
  CpuId id;
  if (static_cast<unsigned>(__get_cpuid_max(leaf & 0x80000000U, nullptr)) >= leaf)
    __cpuid_count(leaf, subleaf, id.eax, id.ebx, id.ecx, id.edx);
  return id;
}

std::string text_of(std::initializer_list<unsigned> words) {
  std::string text;
  for (const unsigned word : words) {
    std::array<char, 4> bytes{};
    std::memcpy(bytes.data(), &word, bytes.size());
    text.append(bytes.data(), bytes.size());
  }
  return text.substr(0, text.find('\0'));
}

// Register states that the operating system saves. Instructions whose state is not saved fault.
unsigned long long saved_states() {
  if ((cpuid(1).ecx >> 27 & 1U) == 0) return 0;
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<unsigned long long>(high) << 32 | low;
}

}  // namespace

void describe_isa(Machine& machine) {
  const CpuId one = cpuid(1);
  const CpuId seven = cpuid(7);
  const CpuId seven_one = seven.eax >= 1 ? cpuid(7, 1) : CpuId{};
  const unsigned long long saved = saved_states();
  const bool ymm = (saved & 0x6) == 0x6;
  const bool zmm = (saved & 0xe6) == 0xe6;
  const bool tiles = (saved & 0x60000) == 0x60000;
  const auto bit = [](unsigned word, int position) { return (word >> position & 1U) != 0; };
  const std::pair<const char*, bool> features[] = {
      {"sse2", true},
      {"ssse3", bit(one.ecx, 9)},
      {"sse4", bit(one.ecx, 19) && bit(one.ecx, 20)},
      {"avx", ymm && bit(one.ecx, 28)},
      {"f16c", ymm && bit(one.ecx, 29)},
      {"fma", ymm && bit(one.ecx, 12)},
      {"avx2", ymm && bit(seven.ebx, 5)},
      {"avx_vnni", ymm && bit(seven_one.eax, 4)},
      {"avx512f", zmm && bit(seven.ebx, 16)},
      {"avx512dq", zmm && bit(seven.ebx, 17)},
      {"avx512bw", zmm && bit(seven.ebx, 30)},
      {"avx512vl", zmm && bit(seven.ebx, 31)},
      {"avx512_vnni", zmm && bit(seven.ecx, 11)},
      {"avx512_bf16", zmm && bit(seven_one.eax, 5)},
      {"avx512_fp16", zmm && bit(seven.edx, 23)},
      {"amx_tile", tiles && bit(seven.edx, 24)},
      {"amx_int8", tiles && bit(seven.edx, 25)},
      {"amx_bf16", tiles && bit(seven.edx, 22)},
      {"amx_fp16", tiles && bit(seven_one.eax, 21)},
  };
  for (const auto& [name, present] : features)
    if (present) machine.cpu.simd.emplace_back(name);

  const CpuId zero = cpuid(0);
  machine.cpu.vendor = text_of({zero.ebx, zero.edx, zero.ecx});
  machine.cpu.family = static_cast<int>((one.eax >> 8 & 0xf) + (one.eax >> 20 & 0xff));
  machine.cpu.model = static_cast<int>((one.eax >> 4 & 0xf) | (one.eax >> 12 & 0xf0));
  machine.system.virtual_machine = bit(one.ecx, 31);
  if (machine.system.virtual_machine) {
    CpuId host;
    __cpuid(0x40000000U, host.eax, host.ebx, host.ecx, host.edx);
    machine.system.hypervisor = text_of({host.ebx, host.ecx, host.edx});
  }
}

#elif defined(__aarch64__)

void describe_isa(Machine& machine) {
  const unsigned long caps = getauxval(AT_HWCAP);
  const unsigned long caps2 = getauxval(AT_HWCAP2);
  const std::pair<const char*, bool> features[] = {
      {"neon", (caps & HWCAP_ASIMD) != 0},        {"fma", (caps & HWCAP_ASIMD) != 0},
      {"neon_fp16", (caps & HWCAP_ASIMDHP) != 0}, {"sve", (caps & HWCAP_SVE) != 0},
      {"neon_bf16", (caps2 & HWCAP2_BF16) != 0},
  };
  for (const auto& [name, present] : features)
    if (present) machine.cpu.simd.emplace_back(name);
  machine.cpu.vendor = value_of("/proc/cpuinfo", "CPU implementer", ':');
  const std::string product = first_line("/sys/class/dmi/id/product_name").value_or("");
  machine.system.virtual_machine =
      product.find("KVM") != std::string::npos || product.find("Virtual") != std::string::npos;
  if (machine.system.virtual_machine) machine.system.hypervisor = product;
}

#else

void describe_isa(Machine&) {}

#endif

Machine describe_isa_only() {
  Machine machine;
  describe_isa(machine);
  return machine;
}

}  // namespace gable::perf
