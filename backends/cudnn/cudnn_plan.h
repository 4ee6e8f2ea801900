// A plan of cuDNN: which recipe and engine are fastest here, and running them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/cuda_device.h"
#include "backends/cudnn/recipes.h"

namespace gable::cudnn {

/// The recipes of an op that cuDNN takes.
struct Found {
  std::vector<Recipe> recipes;
  std::string refused;  ///< why it does not take the others
};

/// Makes a device's plans.
class Planner {
 public:
  /// `measured`: of ops with enough work, the fastest of many engines, run on this GPU; else the first engine by
  /// cuDNN's heuristics.
  Planner(std::shared_ptr<Session> session, bool measured);

  /// The first recipe that cuDNN takes, if there is one.
  std::shared_ptr<Found> find(const Op& op) const;
  /// Empty, or why cuDNN can't run the op.
  std::string refusal(const Found& found) const;
  /// Of find()'s recipe, or, where it measures, of the fastest of all recipes. Takes the recipe out of `found`.
  std::unique_ptr<PlanImpl> plan(const Op& op, Found& found, const CudaDevice& device) const;

 private:
  std::shared_ptr<Session> session_;
  bool measured_;
};

}  // namespace gable::cudnn
