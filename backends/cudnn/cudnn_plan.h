// Plans of cuDNN: they choose a recipe and an engine, and run it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/cuda_device.h"
#include "backends/cudnn/recipes.h"

namespace gable::cudnn {

/// The recipes that cuDNN accepts for an op.
struct Found {
  std::vector<Recipe> recipes;
  std::string refused;  ///< why it refuses the others
};

/// What races found in this process. A network has the same op several times, and each further plan of it takes the
/// engine as it was compiled then: a race takes seconds, and cuDNN may refuse to compile an engine again.
class Winners {
 public:
  struct Winner {
    std::string program;
    double seconds;  ///< that its race had
    std::size_t recipe, engine;
    ExecutionPlan compiled;
  };

  /// The winner of an earlier race of at least `seconds`, or the one that `program` names.
  std::optional<Winner> find(const Op& op, const PlanSearch& search) const;
  void keep(const Op& op, Winner winner);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Winner> by_op_;
};

/// Makes a device's plans.
class Planner {
 public:
  /// `measured`: ops with enough work get the fastest of many engines, measured on this GPU. All others get the first
  /// engine of cuDNN's heuristics.
  Planner(std::shared_ptr<Session> session, bool measured);

  /// Why cuDNN can't run the op, as far as that is known without a call of cuDNN; empty if nothing is known against it.
  std::string known_refusal(const Op& op) const;
  /// The first recipe that cuDNN takes, if there is one. Takes tens of milliseconds.
  std::shared_ptr<Found> find(const Op& op) const;
  /// Empty, or why cuDNN can't run the op.
  std::string refusal(const Found& found) const;
  /// Whether plan() measures the op's engines.
  bool searches(const Op& op) const;
  /// Plans find()'s recipe. Takes it out of `found`.
  std::unique_ptr<PlanImpl> plan(const Op& op, Found& found, const CudaDevice& device) const;
  /// Plans the fastest of all recipes and engines, or the one that `search` names. Throws Error(unsupported).
  std::unique_ptr<PlanImpl> plan(const Op& op, const PlanSearch& search, const CudaDevice& device) const;

 private:
  std::shared_ptr<Session> session_;
  bool measured_;
  mutable Winners winners_;
};

}  // namespace gable::cudnn
