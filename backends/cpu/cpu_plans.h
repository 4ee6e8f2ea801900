// From gable's ops to the kernels of cpu/: one PlanImpl an op.
#pragma once

#include <gable/backend.h>

#include <memory>
#include <string>

#include "cpu/target.h"

namespace gable {

/// Why cpu's kernels can't run `op`; empty if they can.
std::string cpu_refusal(const Op& op);

/// Ops that cpu_refusal() lets pass.
std::unique_ptr<PlanImpl> make_cpu_plan(const Op& op, const cpu::Target& target, int threads);

}  // namespace gable
