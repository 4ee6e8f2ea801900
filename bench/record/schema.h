// Checks a study against its schema (docs/record.md, schema_version 1) before it is read: a report of a malformed study
// would be a wrong picture instead of an error. Unknown fields are allowed, since the schema only grows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace gable::bench {

inline constexpr int kSchemaVersion = 1;

// One violation: the place (JSON pointer), the value there, and what is expected.
struct Violation {
  std::string pointer;
  std::string value;
  std::string expected;
};

class SchemaError : public std::runtime_error {
 public:
  explicit SchemaError(std::vector<Violation> violations);
  const std::vector<Violation>& violations() const { return violations_; }

 private:
  std::vector<Violation> violations_;
};

// Every violation of `study`, in document order; empty when it is well formed.
std::vector<Violation> check_study(const nlohmann::json& study);

// Throws SchemaError (its message lists the first violations) unless check_study finds nothing.
void validate_study(const nlohmann::json& study);

}  // namespace gable::bench
