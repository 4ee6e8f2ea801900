// "auto": several devices. Each op goes to the one that runs it fastest, by measured times of this machine where the op
// was tuned, else by the devices' models of their time.
#pragma once

#include <gable/backend.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gable {

struct AutoOptions {
  std::string uri{};
  bool measures = false;        ///< ?choose=measured: plans of new ops are tuned first
  double tuning_seconds = 0.3;  ///< ?limit=, the time for tuning an op
  std::filesystem::path cache_folder{};
  std::string identity{};  ///< of the machine and the devices, for the cache
  std::string reasons{};   ///< a line for each device that was passed over and each option that a device does not know
};

struct AutoCandidate {
  std::shared_ptr<DeviceImpl> device{};
  bool staged = false;  ///< made by make_staged_device()
};

/// `candidates` is not empty and in order of preference, which decides if times are not known. The plans of all
/// candidates take tensors in the same memory. info(), memory, streams, events and studies are those of the first
/// candidate that is not staged.
std::shared_ptr<DeviceImpl> make_auto_device(AutoOptions options, std::vector<AutoCandidate> candidates);

}  // namespace gable
