// A plan of cuDNN: which recipe and engine are fastest here, and running them.
#pragma once

#include <memory>
#include <string>

#include "backends/cuda/cuda_device.h"
#include "backends/cudnn/recipes.h"

namespace gable::cudnn {

/// Empty, or why cuDNN can't run the op.
std::string refusal(const Op& op, Session& session);

/// Takes the first recipe and the first engine by cuDNN's heuristics, or, if `measured`, the fastest of some engines of
/// each, run on this GPU, within about a second.
std::unique_ptr<PlanImpl> make_plan(const Op& op, const CudaDevice& device, std::shared_ptr<Session> session,
                                    bool measured);

}  // namespace gable::cudnn
