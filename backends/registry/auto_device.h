// "auto": several devices whose tensors lie in the same memory, best first. Each op goes to the first that can run it.
#pragma once

#include <gable/backend.h>

#include <memory>
#include <string>
#include <vector>

namespace gable {

/// `candidates` is not empty; all have the memory of the first. `reasons` has a line for each device that was passed
/// over and for each option that a candidate does not know.
std::shared_ptr<DeviceImpl> make_auto_device(const std::string& uri,
                                             std::vector<std::shared_ptr<DeviceImpl>> candidates, std::string reasons);

}  // namespace gable
