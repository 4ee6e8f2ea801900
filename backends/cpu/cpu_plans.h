// From gable's ops to the kernels of cpu/: one PlanImpl an op.
#pragma once

#include <gable/backend.h>

#include <memory>
#include <string>
#include <vector>

#include "cpu/common/target.h"

namespace gable {

/// The kernels' names, as ?kernel= takes them.
std::vector<std::string> cpu_kernels();

/// Those that a target of this CPU has.
std::vector<std::string> cpu_kernels(const cpu::Target& target);

/// The answers of the kernels that are made for this kind of op, best first, or of `only` alone if it is not empty.
std::vector<KernelSupport> query_cpu(const Op& op, const cpu::Target& target, const std::string& only);

/// The plan of the first kernel that supports `op`; there is one, says query_cpu().
std::unique_ptr<PlanImpl> make_cpu_plan(const Op& op, const cpu::Target& target, int threads, const std::string& only);

}  // namespace gable
