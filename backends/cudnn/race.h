// Finds the recipe and engine that is fastest on this GPU. All that compile in time run in turn on random data, after
// the GPU's clocks have risen. (On constants, which take less power, an H100 ran a tenth faster.)
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
  std::string how;        ///< how it was chosen, for explain()
  bool measured = false;  ///< among all recipes and engines, now or when the op was tuned
};

/// When planning began and about how long it may take; at most kMaxSeconds, most of which is compilation.
struct RaceTime {
  Clock::time_point begin;
  double seconds;
};

/// Until when further recipes, and engines that need no compiling, are tried: at least a second, even in shorter races.
Clock::time_point ready_end(const RaceTime& time);

/// Bytes of the recipe's own workspace and, behind it, of the tensor between two steps.
std::size_t workspace_bytes(const Recipe& recipe);

/// Runs the recipe on `stream`. `pointers` has every tensor outside the workspace.
void run_steps(Session& session, Recipe& recipe, Pointers pointers, void* workspace, cudaStream_t stream);

/// Measures the recipes of a convolution or a matrix product, which come most promising first. The first engine of the
/// first recipe is the choice of cuDNN's heuristics. It takes part in every round and stays chosen unless another one
/// is clearly faster.
Choice fastest(const Op& op, const CudaDevice& device, Session& session, std::vector<Recipe> recipes, RaceTime time);

}  // namespace gable::cudnn
