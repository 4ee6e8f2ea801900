// A backend of this process, and what the registry and `auto` ask of it.
#pragma once

#include <gable/backend.h>

#include <memory>
#include <string>
#include <vector>

namespace gable {

inline constexpr const char* kUnknownException = "the plugin threw something that is no std::exception";

struct LoadedBackend {
  std::unique_ptr<Backend> backend;
  std::string library;  ///< the plugin's file; empty for the backends inside libgable
};

DeviceInfo unavailable_device(const std::string& backend, const std::string& library, const std::string& reason);

/// Backend::probe(). If it throws, the result is one unavailable device with the reason.
std::vector<DeviceInfo> probe(const LoadedBackend& loaded);

/// Throws Error(invalid_argument) for an option that the backend does not have, and what Backend::open() throws.
std::shared_ptr<DeviceImpl> open_device(const LoadedBackend& loaded, const DeviceUri& uri);

}  // namespace gable
