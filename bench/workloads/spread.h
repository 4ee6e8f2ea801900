// The order in which a study with little time measures its cases: wherever the time ends, as many kinds of layers as
// possible were measured.
#pragma once

#include <vector>

#include "bench/workloads/cases.h"

namespace gable::bench {

/// Each next case has the most that no case before it had: a family (a layer's name up to "_", "+" or ":"), a dtype, a
/// pool, a kind of convolution (dense, grouped, depthwise, few channels; 1x1, larger; strided), and pairs of these.
/// Equal ones keep their order; cases that differ only in their math stay neighbours.
std::vector<Case> spread(const std::vector<Case>& cases);

}  // namespace gable::bench
