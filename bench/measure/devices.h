// Opens the devices that a command works on.
#pragma once

#include <gable/device.h>
#include <gable/plan.h>

#include <string>
#include <vector>

#include "bench/record/row.h"

namespace gable::bench {

struct OpenDevice {
  Device device;
  std::string uri;  ///< as the user wrote it
  DeviceKind kind = DeviceKind::cpu;
  int threads = 0;  ///< of a CPU device; 0 on a GPU

  bool on_gpu() const { return kind == DeviceKind::gpu; }
};

DeviceKind kind_of(const Memory& memory);
std::vector<DeviceKind> kinds_of(const std::vector<OpenDevice>& devices);

/// Where a plan of this device runs; for `auto`, the chosen device, with "from the host" behind a GPU to which the
/// tensors are copied. Kernel, fusion and cache are left unset.
Placement placement_of(const OpenDevice& device);
Placement placement_of(const OpenDevice& device, const Plan& plan);

/// The devices without `--device`: `cpu`, `onednn` and every GPU, as far as they are available.
std::vector<std::string> default_devices();

/// Opens the devices that were asked for. Without any, the default ones: those of them that can't be opened now, as a
/// GPU that another process has for itself, are left out, each with a line in `left_out`. Throws as open_devices()
/// does, and Error(unavailable) where none is left.
std::vector<OpenDevice> open_asked(const std::vector<std::string>& asked, int threads,
                                   std::vector<std::string>& left_out);

/// Opens each device. `threads` above 0 becomes the CPU devices' ?threads=. Throws like gable::open(), and
/// Error(invalid_argument) for a device that is named twice, or whose own ?threads= contradicts `threads`.
std::vector<OpenDevice> open_devices(const std::vector<std::string>& uris, int threads);

}  // namespace gable::bench
