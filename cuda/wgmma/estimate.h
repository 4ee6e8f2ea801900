// How long a tile of the wgmma kernel takes, as a model whose constants are fitted to an H200 (see Wgmma::seconds()).
#pragma once

#include "cuda/wgmma/geometry.h"

namespace gable::cuda {

/// Blocks that a multiprocessor runs at once: as many as fit into its registers, but one that has all of the shared
/// memory where each step has a box and there are no more blocks than multiprocessors.
int wgmma_blocks_of_multiprocessor(const WgmmaGeometry& geometry, int multiprocessors);

/// Sets what the estimate needs of the grid, items and ctas, and `cycles`. False, without `cycles`, if the slowest part
/// alone takes `limit` cycles or more: most tiles of a search are known to be worse by then.
bool estimate_wgmma(const Conv2dProblem& problem, int multiprocessors, double limit, WgmmaGeometry& geometry);

}  // namespace gable::cuda
