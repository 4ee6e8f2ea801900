// `gable verify`: every device's result against the f64 oracle.
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

/// Runs each case on every device that supports it. The data are the same for all of them, the oracle runs once a case,
/// and outputs start as NaNs. `report` gets each result as it comes; refusals go to `outcome`.
void verify(const std::vector<Case>& cases, const std::vector<OpenDevice>& devices, Outcome& outcome,
            const std::function<void(const VerifyResult&)>& report);

}  // namespace gable::bench
