// The devices that a command works on: which, with how many threads, opened.
#pragma once

#include <gable/device.h>
#include <gable/plan.h>

#include <string>
#include <vector>

#include "bench/record/row.h"

namespace gable::bench {

struct OpenDevice {
  Device device;
  std::string uri;  ///< as it was asked for
  DeviceKind kind = DeviceKind::cpu;
  int threads = 0;  ///< of a CPU device; 0 on a GPU

  bool on_gpu() const { return kind == DeviceKind::gpu; }
};

DeviceKind kind_of(const Memory& memory);

/// Where a plan of this device runs; `auto` is what it chose. Kernel, fusion and cache are not filled in.
Placement placement_of(const OpenDevice& device);
Placement placement_of(const OpenDevice& device, const Plan& plan);

/// What `--device` means when it is not given: of the available devices `cpu`, `onednn` and every GPU.
std::vector<std::string> default_devices();

/// Opens each once. `threads` above 0 becomes the CPU devices' ?threads=. Throws what gable::open() throws, and
/// Error(invalid_argument) for a device that is named twice, or whose own ?threads= contradicts `threads`.
std::vector<OpenDevice> open_devices(const std::vector<std::string>& uris, int threads);

}  // namespace gable::bench
