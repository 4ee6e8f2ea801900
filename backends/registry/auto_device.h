// "auto": several devices that share one memory, best first. Each op goes to the first that can run it.
#pragma once

#include <gable/backend.h>

#include <memory>
#include <string>
#include <vector>

namespace gable {

/// `candidates` is not empty; `refused` says in words which devices were passed over, and why.
std::shared_ptr<DeviceImpl> make_auto_device(std::vector<std::shared_ptr<DeviceImpl>> candidates, std::string refused);

}  // namespace gable
