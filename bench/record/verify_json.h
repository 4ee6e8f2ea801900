// What `gable verify` found, as JSON.
#pragma once

#include <gable/oracle.h>

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
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

/// Random problems on one kernel of one device.
struct KernelChecks {
  int checked = 0;
  double worst_ratio = 0;  ///< of error and bound
};

/// A random problem that its kernel failed.
struct RandomMismatch {
  std::uint64_t seed = 0;
  std::string device;
  std::string problem;  ///< every attribute
  std::string values;
  Comparison comparison;
};

struct RandomVerifyDocument {
  std::uint64_t first_seed = 0;
  int problems = 0;
  double seconds = 0;
  std::map<std::string, KernelChecks> kernels;  ///< by device and kernel
  std::map<std::string, int> values;            ///< how often each kind of values was checked
  int refused = 0;                              ///< problems that no kernel of the device takes
  std::vector<RandomMismatch> mismatches;
};

nlohmann::json to_json(const RandomVerifyDocument& document);

}  // namespace gable::bench
