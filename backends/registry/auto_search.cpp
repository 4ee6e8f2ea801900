// See auto_search.h.
#include "backends/registry/auto_search.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "backends/registry/auto_device.h"
#include "backends/registry/auto_options.h"
#include "backends/registry/choice_cache.h"
#include "backends/registry/choice_identity.h"
#include "backends/registry/core_ceilings.h"
#include "backends/registry/staged_device.h"

namespace gable {
namespace auto_search {

/// The device's URI with those options of `uri` that its backend has. Each other option adds a line to `reasons`.
DeviceUri with_options(const LoadedBackend& loaded, const std::string& device, const DeviceUri& uri,
                       std::string& reasons) {
  DeviceUri result = parse_device_uri(device);
  const std::vector<std::string> known = loaded.backend->options();
  for (const auto& [option, value] : uri.options) {
    if (is_auto_option(option)) continue;
    if (std::find(known.begin(), known.end(), option) != known.end()) {
      result.options[option] = value;
    } else {
      reasons += device + " has no option '" + option + "', which other devices take\n";
    }
  }
  return result;
}

class Search {
 public:
  explicit Search(const DeviceUri& uri)
      : uri_(uri),
        only_(only_option(uri)),
        options_(auto_options(uri)),
        memory_(memory_option(uri)),
        stages_(memory_ == Memory{}) {}

  /// Adds one device of the backend to the candidates, or the reason why it is passed over.
  void consider(const LoadedBackend& loaded) {
    const std::string name = loaded.backend->name();
    const auto named = std::find_if(only_.begin(), only_.end(), [&](const auto& one) { return one.backend == name; });
    if (!only_.empty() && named == only_.end()) return pass_over(name, "option only does not name it");
    const std::vector<DeviceInfo> found = probe(loaded);
    const bool selected = named != only_.end() && !named->selector.empty();
    const DeviceInfo* const device = selected ? with_uri(found, to_string(*named)) : first_usable(found);
    if (device != nullptr && !lies_elsewhere(*device)) add_candidate(loaded, *device);
  }

  std::shared_ptr<DeviceImpl> device() {
    if (candidates_.empty()) {
      throw Error(why_none_, "device '" + to_string(uri_) + "': nothing can be opened\n" + options_.reasons);
    }
    options_.identity = choice_identity(candidates_);
    options_.cache_folder = choice_folder();
    return make_auto_device(std::move(options_), std::move(candidates_));
  }

 private:
  void pass_over(const std::string& device, const std::string& reason) {
    options_.reasons += "passed over " + device + ": " + reason + "\n";
  }

  /// The device that ?only= names; null, with the reason, if it is not available.
  const DeviceInfo* with_uri(const std::vector<DeviceInfo>& found, const std::string& uri) {
    const auto device = std::find_if(found.begin(), found.end(), [&](const auto& info) { return info.uri == uri; });
    if (device != found.end() && device->available) return &*device;
    pass_over(uri, device == found.end() ? why_absent(found) : device->reason);
    return nullptr;
  }

  /// What the backend has instead. A backend without devices says why: a driver is missing, the GPU is hidden.
  static std::string why_absent(const std::vector<DeviceInfo>& found) {
    std::string text = "there is no such device";
    for (const DeviceInfo& info : found) text += info.available ? "; there is " + info.uri : "; " + info.reason;
    return text;
  }

  /// The first available device, one in the wanted memory if there is any; null, with the reasons, if none is
  /// available.
  const DeviceInfo* first_usable(const std::vector<DeviceInfo>& found) {
    const DeviceInfo* first = nullptr;
    for (const DeviceInfo& info : found) {
      if (!info.available) continue;
      if (!memory_ || info.memory == *memory_) return &info;
      if (first == nullptr) first = &info;
    }
    if (first != nullptr) return first;
    for (const DeviceInfo& info : found) pass_over_absent(info);
    return nullptr;
  }

  /// A driver that is missing is the reason of several backends, and has long words for it.
  void pass_over_absent(const DeviceInfo& info) {
    const auto same = absent_.find(info.reason);
    if (same != absent_.end()) return pass_over(info.uri, "as " + same->second);
    absent_.emplace(info.reason, info.uri);
    pass_over(info.uri, info.reason);
  }

  bool is_staged(const DeviceInfo& info) const { return stages_ && info.memory.kind != Memory::Kind::host; }

  /// Whether the device's tensors can't lie in the wanted memory; the reason is noted.
  bool lies_elsewhere(const DeviceInfo& info) {
    if (!memory_ || info.memory == *memory_ || is_staged(info)) return false;
    const std::string whose =
        candidates_.empty() ? "option memory asks for " : "those of " + candidates_.front().device->info().uri + " in ";
    pass_over(info.uri,
              "its tensors lie in " + to_string(info.memory) + " memory, " + whose + to_string(*memory_) + " memory");
    return true;
  }

  void add_candidate(const LoadedBackend& loaded, const DeviceInfo& info) {
    try {
      std::string notes;
      std::shared_ptr<DeviceImpl> device = open_device(loaded, with_options(loaded, info.uri, uri_, notes));
      if (lies_elsewhere(device->info())) return;  // open() knows better than probe()
      const bool staged = is_staged(device->info());
      if (!memory_) memory_ = device->info().memory;
      if (staged) device = make_staged_device(std::move(device));
      candidates_.push_back({std::move(device), staged});
      options_.reasons += notes;
    } catch (const Error& error) {
      pass_over(info.uri, error.what());
      if (error.code() == ErrorCode::invalid_argument) why_none_ = error.code();
    }
  }

  const DeviceUri& uri_;
  std::vector<DeviceUri> only_;
  AutoOptions options_;
  std::optional<Memory> memory_;  // ?memory=, else that of the first candidate
  bool stages_;                   // ?memory=host
  std::vector<AutoCandidate> candidates_;
  std::map<std::string, std::string> absent_;    // the first device that is not there for a reason
  ErrorCode why_none_ = ErrorCode::unavailable;  // invalid_argument if a device refuses the value of an option
};

}  // namespace auto_search

std::shared_ptr<DeviceImpl> open_auto(const DeviceUri& uri, const std::vector<const LoadedBackend*>& backends) {
  auto_search::Search search(uri);
  for (const LoadedBackend* loaded : backends) {
    sample_core_multiply_adds();
    search.consider(*loaded);
  }
  return search.device();
}

}  // namespace gable
