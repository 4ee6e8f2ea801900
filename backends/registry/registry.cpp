// The registry: the backends of this process, loaded when they are first asked for. The library's only global state.
#include "backends/registry/auto_device.h"
#include "backends/registry/auto_options.h"
#include "backends/registry/builtin.h"
#include "backends/registry/choice_cache.h"
#include "backends/registry/choice_identity.h"
#include "backends/registry/loader.h"
#include "backends/registry/staged_device.h"

#include <gable/backend.h>
#include <gable/device.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

namespace gable {
namespace {

constexpr const char* kUnknownException = "the plugin threw something that is no std::exception";

struct Entry {
  std::unique_ptr<Backend> backend;
  std::string library;
};

DeviceInfo unavailable(const std::string& backend, const std::string& library, const std::string& reason) {
  return {.uri = backend, .backend = backend, .name = "", .available = false, .reason = reason, .library = library};
}

class Registry {
 public:
  static Registry& instance() {
    // Never destroyed: plugins and the devices they made may outlive main().
    static Registry* registry = new Registry();
    return *registry;
  }

  std::vector<DeviceInfo> devices() {
    const std::lock_guard lock(mutex_);
    load_all();
    std::vector<DeviceInfo> all;
    for (const Entry* entry : by_priority()) {
      for (DeviceInfo& info : probe(*entry)) all.push_back(std::move(info));
    }
    all.insert(all.end(), broken_.begin(), broken_.end());
    return all;
  }

  std::shared_ptr<DeviceImpl> open(const DeviceUri& uri) {
    const std::lock_guard lock(mutex_);
    return uri.backend == "auto" ? open_auto(uri) : open_from(find(uri), uri);
  }

  /// The device that all calls with this URI share.
  Device shared(const DeviceUri& uri) {
    const std::string text = to_string(uri);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = shared_.find(text); found != shared_.end()) return Device(found->second);
    }
    std::shared_ptr<DeviceImpl> device = open(uri);
    const std::lock_guard lock(mutex_);
    return Device(shared_.emplace(text, std::move(device)).first->second);
  }

 private:
  Registry() {
    entries_.push_back({make_cpu_backend(), ""});
    entries_.push_back({make_reference_backend(), ""});
  }

  const Entry* loaded(const std::string& backend) const {
    for (const Entry& entry : entries_) {
      if (entry.backend->name() == backend) return &entry;
    }
    return nullptr;
  }

  /// Loads the plugin files of one backend, or of every backend, until one file of each works.
  void load_plugins(const std::optional<std::string>& only) {
    for (const loader::PluginFile& plugin : loader::find_plugins(loader::search_path())) {
      if (only && plugin.backend != *only) continue;
      if (loaded(plugin.backend) != nullptr || is_broken(plugin)) continue;
      try {
        entries_.push_back({loader::load(plugin), plugin.path.string()});
      } catch (const std::exception& error) {
        broken_.push_back(unavailable(plugin.backend, plugin.path.string(), error.what()));
      } catch (...) {
        broken_.push_back(unavailable(plugin.backend, plugin.path.string(), kUnknownException));
      }
    }
  }

  bool is_broken(const loader::PluginFile& plugin) const {
    return std::any_of(broken_.begin(), broken_.end(),
                       [&](const DeviceInfo& info) { return info.library == plugin.path.string(); });
  }

  void load_all() {
    if (all_loaded_) return;
    all_loaded_ = true;
    for (const std::string& entry : loader::search_path().refused) {
      broken_.push_back(
          unavailable("GABLE_BACKEND_PATH", entry,
                      "the entry '" + entry + "' of GABLE_BACKEND_PATH is relative: write an absolute folder"));
    }
    for (const std::string& folder : loader::search_path().missing) {
      broken_.push_back(unavailable("GABLE_BACKEND_PATH", folder,
                                    "the entry '" + folder + "' of GABLE_BACKEND_PATH is no folder that can be read"));
    }
    load_plugins(std::nullopt);
  }

  std::vector<const Entry*> by_priority() const {
    std::vector<const Entry*> order;
    for (const Entry& entry : entries_) order.push_back(&entry);
    std::stable_sort(order.begin(), order.end(),
                     [](const Entry* a, const Entry* b) { return a->backend->priority() > b->backend->priority(); });
    return order;
  }

  static std::vector<DeviceInfo> probe(const Entry& entry) {
    try {
      std::vector<DeviceInfo> found = entry.backend->probe();
      for (DeviceInfo& info : found) info.library = entry.library;
      return found;
    } catch (const std::exception& error) {
      return {unavailable(entry.backend->name(), entry.library, std::string("its probe failed: ") + error.what())};
    } catch (...) {
      return {unavailable(entry.backend->name(), entry.library, std::string("its probe failed: ") + kUnknownException)};
    }
  }

  static std::shared_ptr<DeviceImpl> open_from(const Entry& entry, const DeviceUri& uri) {
    check_options(uri, entry.backend->options());
    std::shared_ptr<DeviceImpl> device = entry.backend->open(uri);
    device->set_library(entry.library);
    return device;
  }

  const Entry& find(const DeviceUri& uri) {
    if (loaded(uri.backend) == nullptr) load_plugins(uri.backend);
    if (const Entry* entry = loaded(uri.backend)) return *entry;
    for (const DeviceInfo& info : broken_) {
      if (info.backend == uri.backend) {
        throw Error(ErrorCode::unavailable, "device '" + to_string(uri) + "': " + info.reason);
      }
    }
    std::string folders;
    for (const auto& folder : loader::search_path().folders) folders += (folders.empty() ? "" : ", ") + folder.string();
    throw Error(ErrorCode::unavailable, "device '" + to_string(uri) + "': no backend '" + uri.backend +
                                            "'; there are " + known() + ", and no libgable_" + uri.backend + ".so in " +
                                            folders);
  }

  std::string known() {
    load_all();
    std::string names = "auto";
    for (const Entry* entry : by_priority()) names += ", " + entry->backend->name();
    return names;
  }

  /// Throws Error(invalid_argument) naming an option that neither `auto` nor a backend of this process has.
  void check_auto_options(const DeviceUri& uri) const {
    std::vector<std::string> known(kAutoOptions.begin(), kAutoOptions.end());
    for (const Entry& entry : entries_) {
      for (std::string& option : entry.backend->options()) {
        if (std::find(known.begin(), known.end(), option) == known.end()) known.push_back(std::move(option));
      }
    }
    check_options(uri, known);
  }

  /// The device's URI with the options that its backend has. Each other option adds a line to `reasons`.
  static DeviceUri with_options(const Entry& entry, const std::string& device, const DeviceUri& uri,
                                std::string& reasons) {
    DeviceUri result = parse_device_uri(device);
    const std::vector<std::string> known = entry.backend->options();
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

  /// Throws Error(invalid_argument) for a name of ?only= that is no backend's.
  void check_only(const DeviceUri& uri, const std::vector<DeviceUri>& only) {
    for (const DeviceUri& one : only) {
      const bool broken = std::any_of(broken_.begin(), broken_.end(),
                                      [&](const DeviceInfo& info) { return info.backend == one.backend; });
      if (loaded(one.backend) != nullptr || broken) continue;
      throw Error(ErrorCode::invalid_argument, "device '" + to_string(uri) + "': only names '" + one.backend +
                                                   "', which is no backend; there are " + known());
    }
  }

  /// The first available device of each backend, or the one that ?only= names. Its tensors must lie in the memory that
  /// ?memory= names, by default that of the best device; with ?memory=host, devices with a memory of their own are
  /// staged.
  std::shared_ptr<DeviceImpl> open_auto(const DeviceUri& uri) {
    load_all();
    if (!uri.selector.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  "device '" + to_string(uri) + "': auto has no '" + uri.selector + "'; use 'auto'");
    }
    check_auto_options(uri);
    const std::vector<DeviceUri> only = only_option(uri);
    check_only(uri, only);
    AutoOptions options = auto_options(uri);
    std::optional<Memory> memory = memory_option(uri);
    std::string& reasons = options.reasons;
    std::vector<AutoCandidate> candidates;
    const auto pass_over = [&](const std::string& device, const std::string& reason) {
      reasons += "passed over " + device + ": " + reason + "\n";
    };
    const auto is_staged = [&](const DeviceInfo& info) {
      return uri.options.contains("memory") && memory == Memory{} && info.memory.kind != Memory::Kind::host;
    };
    const auto lies_elsewhere = [&](const DeviceInfo& info) {
      if (!memory || info.memory == *memory || is_staged(info)) return false;
      const std::string whose =
          candidates.empty() ? "option memory asks for " : "those of " + candidates.front().device->info().uri + " in ";
      pass_over(info.uri,
                "its tensors lie in " + to_string(info.memory) + " memory, " + whose + to_string(*memory) + " memory");
      return true;
    };
    ErrorCode why_none = ErrorCode::unavailable;  // where a device refuses the value of an option, that is the reason
    for (const Entry* entry : by_priority()) {
      const std::string name = entry->backend->name();
      const auto named = std::find_if(only.begin(), only.end(), [&](const auto& one) { return one.backend == name; });
      if (!only.empty() && named == only.end()) {
        pass_over(name, "option only does not name it");
        continue;
      }
      const bool selected = named != only.end() && !named->selector.empty();
      const std::vector<DeviceInfo> found = probe(*entry);
      const auto usable = std::find_if(found.begin(), found.end(), [&](const DeviceInfo& info) {
        return selected ? info.uri == to_string(*named) : info.available && (!memory || info.memory == *memory);
      });
      const auto any = std::find_if(found.begin(), found.end(), [](const auto& info) { return info.available; });
      const auto taken = usable != found.end() ? usable : selected ? found.end() : any;
      if (taken == found.end() || !taken->available) {
        if (selected && taken == found.end()) pass_over(to_string(*named), "there is no such device");
        for (const DeviceInfo& info : found) {
          if (!selected || info.uri == to_string(*named)) pass_over(info.uri, info.reason);
        }
        continue;
      }
      if (lies_elsewhere(*taken)) continue;
      try {
        std::string notes;
        std::shared_ptr<DeviceImpl> device = open_from(*entry, with_options(*entry, taken->uri, uri, notes));
        if (lies_elsewhere(device->info())) continue;  // open() knows better than probe()
        const bool staged = is_staged(device->info());
        if (!memory) memory = device->info().memory;
        if (staged) device = make_staged_device(std::move(device));
        candidates.push_back({std::move(device), staged});
        reasons += notes;
      } catch (const Error& error) {
        pass_over(taken->uri, error.what());
        if (error.code() == ErrorCode::invalid_argument) why_none = error.code();
      }
    }
    if (candidates.empty()) {
      throw Error(why_none, "device '" + to_string(uri) + "': nothing can be opened\n" + reasons);
    }
    options.identity = choice_identity(candidates);
    options.cache_folder = choice_folder();
    return make_auto_device(std::move(options), std::move(candidates));
  }

  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<DeviceInfo> broken_;
  bool all_loaded_ = false;
  std::map<std::string, std::shared_ptr<DeviceImpl>> shared_;
};

/// GABLE_DEVICE replaces `auto`. The options of both are kept, except options of `auto` that mean nothing to a single
/// device.
DeviceUri requested(std::string_view text) {
  const DeviceUri uri = parse_device_uri(text);
  const char* variable = std::getenv("GABLE_DEVICE");
  if (uri.backend != "auto" || variable == nullptr || *variable == '\0') return uri;
  try {
    DeviceUri named = parse_device_uri(variable);
    for (const auto& [option, value] : uri.options) {
      if (named.backend != "auto" && is_auto_option(option)) continue;
      const auto [both, added] = named.options.emplace(option, value);
      if (added || both->second == value) continue;
      throw Error(ErrorCode::invalid_argument, "says " + option + "=" + both->second + ", but '" + std::string(text) +
                                                   "' is asked for: " + option + " contradicts itself; give it once");
    }
    return named;
  } catch (const Error& error) {
    throw Error(error.code(), "GABLE_DEVICE=" + std::string(variable) + ": " + error.what());
  }
}

}  // namespace

std::vector<DeviceInfo> devices() { return Registry::instance().devices(); }

Device open(std::string_view uri) { return Device(Registry::instance().open(requested(uri))); }

Ranking choose(const Op& op, Memory memory) {
  return choose(Registry::instance().shared(requested("auto?memory=" + to_string(memory))), op);
}

}  // namespace gable
