// A plan of cuDNN: which recipe and engine are fastest here, and running them.
#pragma once

#include <memory>
#include <string>

#include "backends/cuda/cuda_device.h"
#include "backends/cudnn/recipes.h"

namespace gable::cudnn {

/// Makes a device's plans.
class Planner {
 public:
  /// `measured`: of ops with enough work, the fastest of many engines, run on this GPU; else the first engine by
  /// cuDNN's heuristics.
  Planner(std::shared_ptr<Session> session, bool measured);
  ~Planner();

  /// Empty, or why cuDNN can't run the op.
  std::string refusal(const Op& op);
  std::unique_ptr<PlanImpl> plan(const Op& op, const CudaDevice& device);

 private:
  struct Known;
  std::unique_ptr<Known> taken(const Op& op);

  std::shared_ptr<Session> session_;
  bool measured_;
  std::mutex mutex_;
  std::unique_ptr<Known> known_;  ///< what the last refusal() found: a plan for the same op often follows
};

}  // namespace gable::cudnn
