// What tests of several programs ask of errors, texts and devices.
#pragma once

#include <doctest/doctest.h>
#include <gable/device.h>
#include <gable/error.h>

#include <functional>
#include <string>
#include <string_view>

namespace gable {

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// The message of the Error that `call` throws, which must have this code; empty if it throws none.
inline std::string message_if_thrown(const std::function<void()>& call, ErrorCode code = ErrorCode::invalid_argument) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

/// The same where throwing none is a failure.
inline std::string message_of(const std::function<void()>& call, ErrorCode code = ErrorCode::invalid_argument) {
  const std::string message = message_if_thrown(call, code);
  if (message.empty()) FAIL_CHECK("nothing was thrown");
  return message;
}

/// The backend's first device as it is listed.
inline DeviceInfo first_device(const std::string& backend) {
  for (const DeviceInfo& info : devices()) {
    if (info.backend == backend) return info;
  }
  return {};
}

/// True, and says so, where the backend has no device to run on.
inline bool is_missing(const std::string& backend) {
  const DeviceInfo info = first_device(backend);
  if (!info.available) MESSAGE("skipped, no ", backend, ": ", info.reason);
  return !info.available;
}

}  // namespace gable
