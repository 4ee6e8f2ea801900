// See kernel_list.h.
#include "backends/kernel_list.h"

#include <gable/error.h>

namespace gable {

std::string requested_kernel(const DeviceUri& uri, const std::vector<std::string>& known) {
  const auto option = uri.options.find("kernel");
  if (option == uri.options.end()) return "";
  std::string names;
  for (const std::string& kernel : known) {
    if (kernel == option->second) return kernel;
    names += (names.empty() ? "" : ", ") + kernel;
  }
  throw Error(ErrorCode::invalid_argument,
              "device '" + to_string(uri) + "': kernel is '" + option->second + "'; it must be one of " + names);
}

}  // namespace gable
