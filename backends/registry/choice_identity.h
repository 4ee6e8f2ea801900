// What measured times depend on besides the op.
#pragma once

#include <string>
#include <vector>

#include "backends/registry/auto_device.h"

namespace gable {

/// The CPU's family, model, name, stepping and cache.
std::string cpu_identity();

/// One line: the CPU, gable, and each device with its name (driver and vendor's library are in it), its options, its
/// threads and its plugin's file.
std::string choice_identity(const std::vector<AutoCandidate>& candidates);

}  // namespace gable
