// What this CPU and its system have of the units for bf16.
#pragma once

#include <string>

namespace gable::cpu {

/// Empty, or why this machine lacks the unit.
std::string missing_bf16_dot();
std::string missing_amx();

}  // namespace gable::cpu
