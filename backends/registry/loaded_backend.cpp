// See loaded_backend.h.
#include "backends/registry/loaded_backend.h"

namespace gable {

DeviceInfo unavailable_device(const std::string& backend, const std::string& library, const std::string& reason) {
  return {.uri = backend, .backend = backend, .name = "", .available = false, .reason = reason, .library = library};
}

std::vector<DeviceInfo> probe(const LoadedBackend& loaded) {
  std::string reason = kUnknownException;
  try {
    std::vector<DeviceInfo> found = loaded.backend->probe();
    for (DeviceInfo& info : found) info.library = loaded.library;
    return found;
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
  }
  return {unavailable_device(loaded.backend->name(), loaded.library, "its probe failed: " + reason)};
}

std::shared_ptr<DeviceImpl> open_device(const LoadedBackend& loaded, const DeviceUri& uri) {
  check_options(uri, loaded.backend->options());
  std::shared_ptr<DeviceImpl> device = loaded.backend->open(uri);
  device->set_library(loaded.library);
  return device;
}

}  // namespace gable
