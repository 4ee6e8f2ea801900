// The named workloads: fixed lists of convolutions and other ops, the same for studies on all machines.
#pragma once

#include "bench/workloads/cases.h"

#include <string>
#include <string_view>
#include <vector>

namespace gable::bench {

/// "study", "resnet50", "mobilenet", "primitives", "random".
std::vector<std::string> suite_names();

/// The cases of a suite, each dtype its own case, in NHWC. resnet50 and mobilenet have a batch of 16 for CPUs and of 64
/// for GPUs, `random` has larger layers for GPUs; the others are the same for both. Throws Error(invalid_argument) that
/// lists the known names.
std::vector<Case> suite(std::string_view name, bool gpu = false);

/// The bandwidths of `primitives`, which differ between GPUs and CPUs; none for other suites. Throws like suite().
std::vector<BandwidthCase> bandwidth_cases(std::string_view suite, bool gpu = false);

/// The graphs of `primitives` on GPUs; none otherwise. Throws like suite().
std::vector<GraphCase> graph_cases(std::string_view suite, bool gpu = false);

}  // namespace gable::bench
