// `gable verify`: compares every device's result with the f64 oracle.
#pragma once

#include <gable/oracle.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/measure/devices.h"
#include "bench/measure/outcome.h"
#include "bench/workloads/cases.h"

namespace gable::bench {

/// One case on one device.
struct VerifyResult {
  const Case* one = nullptr;
  std::string device;
  std::string kernel;
  Comparison comparison;
  ErrorBound bound;
};

/// Runs each case on every device that supports it. All devices get the same data, the oracle runs once for each case,
/// and outputs start as NaNs. `report` is called with each result; refusals go to `outcome`.
void verify(const std::vector<Case>& cases, const std::vector<OpenDevice>& devices, Outcome& outcome,
            const std::function<void(const VerifyResult&)>& report);

}  // namespace gable::bench
