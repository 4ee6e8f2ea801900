// Empties the private caches of this machine's cores, as other layers of a network do between two runs of one.
#pragma once

namespace gable {

/// Pushes what the cores of so many OpenMP threads hold in L1 and L2 out to the last level.
void sweep_private_caches(int threads);

}  // namespace gable
