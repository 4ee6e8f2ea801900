// Kernels whose work and traffic are known by construction. Counters are calibrated with them before they are trusted.
// The driver compiles them from PTX, so neither nvcc nor another room is needed, and no optimiser changes the counted
// instructions.
#pragma once

#include <vector>

#include "perfcounters/sources/source.h"

namespace gable::cupti {

/// A copy larger than the caches, a chain of fused multiply-adds, and a chain of bf16 matrix instructions. They use the
/// GPU's primary context and live as long as the returned workloads.
std::vector<perf::KnownWork> known_work(int gpu);

}  // namespace gable::cupti
