// See kernel_list.h.
#include "backends/kernel_list.h"

#include <gable/error.h>

#include <algorithm>
#include <limits>

namespace gable {

void put_fastest_first(std::vector<KernelOffer>& offers) {
  const auto key = [](const KernelOffer* offer) {
    return offer->seconds.value_or(std::numeric_limits<double>::infinity());
  };
  std::vector<KernelOffer*> left;
  std::vector<KernelOffer> sorted;
  left.reserve(offers.size());
  sorted.reserve(offers.size());
  for (KernelOffer& offer : offers) left.push_back(&offer);
  // Offers are few, large to move, and std::stable_sort would be code that a first choice has to load.
  while (!left.empty()) {
    const auto first = std::min_element(left.begin(), left.end(), [&](auto* a, auto* b) { return key(a) < key(b); });
    sorted.push_back(std::move(**first));
    left.erase(first);
  }
  offers = std::move(sorted);
}

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
