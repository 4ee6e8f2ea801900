// The options of `auto` itself: auto?only=cpu,onednn&memory=host&choose=measured&limit=0.5. All other options are
// passed to the devices.
#pragma once

#include <gable/backend.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/registry/auto_device.h"

namespace gable {

inline constexpr std::array<std::string_view, 4> kAutoOptions{"only", "memory", "choose", "limit"};

bool is_auto_option(std::string_view option);

// All throw Error(invalid_argument) naming a value that is wrong and what would be right.

/// ?only=: devices to choose among, separated by commas or plus signs; empty: all.
std::vector<DeviceUri> only_option(const DeviceUri& uri);
/// ?memory=host or ?memory=cuda:N: where tensors lie.
std::optional<Memory> memory_option(const DeviceUri& uri);
/// ?choose= and ?limit=, with the URI.
AutoOptions auto_options(const DeviceUri& uri);

}  // namespace gable
