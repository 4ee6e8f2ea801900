// Opening "auto": which devices it stands for.
#pragma once

#include <gable/backend.h>

#include <memory>
#include <vector>

#include "backends/registry/loaded_backend.h"

namespace gable {

/// The first available device of each backend, or the one that ?only= names. The devices' tensors must lie in the
/// memory that ?memory= names, by default in that of the best device. With ?memory=host, devices with a memory of their
/// own are staged. `backends` come best first. Throws Error(invalid_argument) for a wrong value of an option of `auto`,
/// and if no device can be opened Error(unavailable), or Error(invalid_argument) where a device refused a value.
std::shared_ptr<DeviceImpl> open_auto(const DeviceUri& uri, const std::vector<const LoadedBackend*>& backends);

}  // namespace gable
