// Limits that several rooms check.
#pragma once

namespace gable {

inline constexpr int kMaxThreads = 1024;  // of a device

}  // namespace gable
