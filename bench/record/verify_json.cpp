// See verify_json.h.
#include "bench/record/verify_json.h"

#include <nlohmann/json.hpp>

#include "bench/record/row_json.h"
#include "bench/record/study_json.h"

namespace gable::bench {
namespace {

using nlohmann::json;

json result_json(const VerifyEntry& result) {
  const Comparison& comparison = result.comparison;
  json entry = to_json(result.identity);
  entry["device"] = result.device;
  entry["kernel"] = result.kernel;
  entry["passed"] = comparison.passed;
  entry["mismatches"] = comparison.mismatches;
  entry["first_mismatch"] = comparison.passed ? json(nullptr) : json(comparison.first_mismatch);
  entry["max_error"] = comparison.max_error;
  entry["worst_ratio"] = comparison.worst_ratio;
  entry["error_bound"] = {{"accumulation", result.bound.accumulation},
                          {"rounding", result.bound.rounding},
                          {"absolute", result.bound.absolute}};
  return entry;
}

}  // namespace

json to_json(const VerifyDocument& document) {
  json results = json::array();
  int passed = 0;
  for (const VerifyEntry& result : document.results) {
    results.push_back(result_json(result));
    passed += result.comparison.passed ? 1 : 0;
  }
  return {{"schema_version", 1},
          {"passed", passed},
          {"mismatched", static_cast<int>(document.results.size()) - passed},
          {"results", std::move(results)},
          {"refused", to_json(document.refused)}};
}

json to_json(const RandomVerifyDocument& document) {
  json kernels = json::array();
  int checked = 0;
  for (const auto& [kernel, checks] : document.kernels) {
    kernels.push_back({{"kernel", kernel}, {"checked", checks.checked}, {"worst_ratio", checks.worst_ratio}});
    checked += checks.checked;
  }
  json mismatches = json::array();
  for (const RandomMismatch& one : document.mismatches) {
    mismatches.push_back({{"seed", one.seed},
                          {"device", one.device},
                          {"problem", one.problem},
                          {"values", one.values},
                          {"mismatches", one.comparison.mismatches},
                          {"first_mismatch", one.comparison.first_mismatch},
                          {"worst_ratio", one.comparison.worst_ratio}});
  }
  return {{"schema_version", 1},
          {"first_seed", document.first_seed},
          {"problems", document.problems},
          {"seconds", document.seconds},
          {"checked", checked},
          {"mismatched", document.mismatches.size()},
          {"refused", document.refused},
          {"values", document.values},
          {"kernels", std::move(kernels)},
          {"mismatches", std::move(mismatches)}};
}

}  // namespace gable::bench
