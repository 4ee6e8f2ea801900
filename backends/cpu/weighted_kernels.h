// The convolution kernels of cpu/, best first. Matrix products are 1x1 convolutions to them, so one list serves both.
//
// A kernel is a class with description(), workspace_bytes(), packed_bytes(), pack() and run() as cpu::Conv2dPlan has
// them, and an entry in this list: its name, why it refuses an op, and how to make its plan.
#pragma once

#include <gable/backend.h>

#include <memory>
#include <span>
#include <string>

#include "backends/problems.h"
#include "cpu/common/target.h"

namespace gable {

struct WeightedKernel {
  const char* name;
  std::string (*missing)(const cpu::Target& target);  ///< why the target of this CPU has no such kernel; empty: it has
  std::string (*refusal)(const WeightedOp& op, const cpu::Target& target);  ///< empty: it can run the op
  std::unique_ptr<PlanImpl> (*make)(const WeightedOp& op, const cpu::Target& target, int threads);
};

std::span<const WeightedKernel> weighted_kernels();

/// Empty, or why the kernel can't run the op on the target.
inline std::string refusal(const WeightedKernel& kernel, const WeightedOp& op, const cpu::Target& target) {
  const std::string missing = kernel.missing(target);
  return missing.empty() ? kernel.refusal(op, target) : missing;
}

}  // namespace gable
