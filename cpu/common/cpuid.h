// Why kernels can't use this machine's units for bf16.
#pragma once

#include <string>

namespace gable::cpu {

/// Empty, or why this machine lacks the unit.
std::string missing_bf16_dot();
std::string missing_amx();

/// Empty, or why the system refuses this process the tiles, which this asks it for.
std::string refused_amx();

}  // namespace gable::cpu
