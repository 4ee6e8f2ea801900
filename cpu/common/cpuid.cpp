// See cpuid.h. Highway's targets do not name these units.
#include "cpu/common/cpuid.h"

#include "common/bf16_units.h"

namespace gable::cpu {

#if defined(__x86_64__)
std::string missing_bf16_dot() { return bf16_units().pair_products ? "" : "this CPU has no AVX512-BF16"; }

std::string missing_amx() {
  if (amx_state() == AmxState::usable) return "";
  if (amx_state() == AmxState::withheld) return "the system grants no AMX tile registers";
  return bf16_units().tiles ? missing_bf16_dot() : "this CPU has no AMX with bf16";
}
#else
std::string missing_bf16_dot() { return "AVX512-BF16 is x86's"; }
std::string missing_amx() { return "AMX is x86's"; }
#endif

std::string refused_amx() { return request_amx() ? "" : "the system refuses AMX tile registers to this process"; }

}  // namespace gable::cpu
