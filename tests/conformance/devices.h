// The devices that conformance runs on, and small ops of every kind for tests that need one of each.
#pragma once

#include <gable/gable.h>

#include <vector>

namespace gable::conformance {

/// All devices that are available here, or those of the backend that GABLE_TEST_BACKEND names; says which are not.
std::vector<Device> available_devices();

/// Whether a kernel of the device takes the op.
bool takes(const Device& device, const Op& op);

/// The reference has one kernel and no option that names it.
bool names_kernels(const Device& device);

/// 3x3, 18 to 34 channels, with bias, relu and max-pool.
Conv2d small_conv();

std::vector<Op> one_of_each();

/// The ops of the list that the device runs; it may refuse the others with a reason.
std::vector<Op> one_of_each(const Device& device);

}  // namespace gable::conformance
