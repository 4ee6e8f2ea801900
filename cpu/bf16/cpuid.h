// What this CPU and its system have of the bf16 units.
#pragma once

#include <string>

namespace gable::cpu::bf16 {

/// Empty, or why this machine lacks the unit.
std::string missing_bf16_dot();
std::string missing_amx();

}  // namespace gable::cpu::bf16
