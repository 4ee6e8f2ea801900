// Whether this run should be short: GABLE_TEST_FAST is set for the run under sanitizers, which is ten times slower.
#pragma once

#include <cstdlib>
#include <string>

namespace gable {

inline bool is_fast() {
  const char* value = std::getenv("GABLE_TEST_FAST");
  return value != nullptr && std::string(value) != "0";
}

}  // namespace gable
