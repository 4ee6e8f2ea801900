// The one exception of the library. Its message names the offending value and what would be right.
#pragma once

#include <gable/export.h>

#include <stdexcept>
#include <string>

namespace gable {

/// The same numbers are the status codes of the C API and stay as they are.
enum class ErrorCode : int {
  invalid_argument = 1,  ///< the caller's value is wrong; the message says which and what would be right
  unsupported = 2,  ///< the device can't run this; the message has the attribute at fault, or a reason for each kernel
  unavailable = 3,  ///< there is no such device, or its plugin or driver is missing; the loader's own words
  device_failure = 4,  ///< the device or its driver failed during the call
  out_of_memory = 5,   ///< host or device memory; the message has the bytes asked for
};
/// Every failure of gable. what() names the value at fault.
class GABLE_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}  ///< for backends too
  ErrorCode code() const noexcept { return code_; }  ///< the kind of failure

 private:
  ErrorCode code_;
};

}  // namespace gable
