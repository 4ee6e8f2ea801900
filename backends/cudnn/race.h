// Which recipe and engine is fastest on this GPU: all that compile in time run in turn, after the GPU's clocks have
// risen, on random data (on constants an H100 ran a tenth faster, as they take less power).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "backends/cuda/cuda_device.h"
#include "backends/cudnn/recipes.h"

namespace gable::cudnn {

using Clock = std::chrono::steady_clock;

struct Choice {
  Recipe recipe;
  std::string how;  ///< for people
};

/// Bytes of the recipe's own workspace and, behind it, of the tensor between two steps.
std::size_t workspace_bytes(const Recipe& recipe);

/// On `stream`, with pointers to everything but what lies in the workspace.
void run_steps(Session& session, Recipe& recipe, Pointers pointers, void* workspace, cudaStream_t stream);

/// Of recipes of a convolution or a matrix product, most likely first. The first engine of the first one, which cuDNN's
/// heuristics name, takes part in every round and stays chosen unless another one is faster beyond doubt. Planning,
/// which began at `begin`, ends about three seconds after it; nearly all of that goes into compiling.
Choice fastest(const Op& op, const CudaDevice& device, Session& session, std::vector<Recipe> recipes,
               Clock::time_point begin);

}  // namespace gable::cudnn
