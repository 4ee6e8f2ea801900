// Kernels whose work and traffic are known by construction, as PTX that the driver compiles: what the counters must
// read back before they are believed. PTX, so that neither nvcc nor another room is needed, and so that nothing of what
// they do is left to an optimiser: the loops hold the instructions that are counted.
#pragma once

#include <vector>

#include "perfcounters/sources/source.h"

namespace gable::cupti {

/// A copy beyond the caches, a chain of fused multiply-adds, and a chain of bf16 matrix instructions. They live on the
/// GPU's primary context as long as the returned workloads.
std::vector<perf::KnownWork> known_work(int gpu);

}  // namespace gable::cupti
