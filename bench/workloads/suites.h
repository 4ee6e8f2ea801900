// The named workloads: fixed lists of convolutions and other ops that studies on different machines share.
#pragma once

#include "bench/workloads/cases.h"

#include <string>
#include <string_view>
#include <vector>

namespace gable::bench {

/// "study", "resnet50", "mobilenet", "primitives".
std::vector<std::string> suite_names();

/// The cases of a suite, each dtype its own case, in NHWC. resnet50 and mobilenet have a batch of 16 for CPUs and of 64
/// for GPUs; the others are the same for both. Throws Error(invalid_argument) that lists the known names.
std::vector<Case> suite(std::string_view name, bool gpu = false);

/// The suite's bandwidths: those of `primitives`, which GPUs and CPUs have their own of; else none. Throws as suite()
/// does.
std::vector<BandwidthCase> bandwidth_cases(std::string_view suite, bool gpu = false);

/// The graphs of `primitives` on GPUs; else none. Throws as suite() does.
std::vector<GraphCase> graph_cases(std::string_view suite, bool gpu = false);

}  // namespace gable::bench
