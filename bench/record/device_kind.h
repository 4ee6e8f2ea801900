// Whether a device is a GPU or a CPU. The memory that a row's tensors lie in decides. The record has it as
// `device_kind`.
#pragma once

#include <string_view>

namespace gable::bench {

enum class DeviceKind { cpu, gpu };

constexpr std::string_view to_string(DeviceKind kind) { return kind == DeviceKind::gpu ? "gpu" : "cpu"; }

/// Only for records older than `device_kind`: names that begin with `cuda`, `cudnn` or `pytorch` are GPUs, all others
/// CPUs.
constexpr DeviceKind device_kind_of_old_name(std::string_view device) {
  for (const std::string_view gpu : {"cuda", "cudnn", "pytorch"}) {
    if (device.starts_with(gpu)) return DeviceKind::gpu;
  }
  return DeviceKind::cpu;
}

}  // namespace gable::bench
