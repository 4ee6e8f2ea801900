// What `gable verify` found, as JSON.
#pragma once

#include <gable/oracle.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/record/row.h"

namespace gable::bench {

/// One case on one device, compared with the f64 oracle.
struct VerifyEntry {
  Identity identity;
  std::string device;
  std::string kernel;
  Comparison comparison;
  ErrorBound bound;
};

struct VerifyDocument {
  std::vector<VerifyEntry> results;
  std::vector<Refusal> refused;
};

nlohmann::json to_json(const VerifyDocument& document);

}  // namespace gable::bench
