// A device with memory of its own, for tensors that lie in the host's: its plans copy input and bias there and the
// output back. Packed weights stay in the device's memory.
#pragma once

#include <gable/backend.h>

#include <memory>

namespace gable {

/// Seconds of the copies of a run between pageable host memory and a device.
double staging_seconds(const Op& op);

std::shared_ptr<DeviceImpl> make_staged_device(std::shared_ptr<DeviceImpl> inner);

}  // namespace gable
