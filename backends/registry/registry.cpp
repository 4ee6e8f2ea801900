// The registry: the backends of this process, loaded when they are first asked for. The library's only global state.
#include "backends/registry/auto_options.h"
#include "backends/registry/auto_search.h"
#include "backends/registry/builtin.h"
#include "backends/registry/loaded_backend.h"
#include "backends/registry/loader.h"

#include <gable/backend.h>
#include <gable/device.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

namespace gable {
namespace {

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
    for (const LoadedBackend* entry : by_priority()) {
      for (DeviceInfo& info : probe(*entry)) all.push_back(std::move(info));
    }
    all.insert(all.end(), broken_.begin(), broken_.end());
    return all;
  }

  std::shared_ptr<DeviceImpl> open(const DeviceUri& uri) {
    const std::lock_guard lock(mutex_);
    return uri.backend == "auto" ? open_auto(uri) : open_device(find(uri), uri);
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

  const LoadedBackend* loaded(const std::string& backend) const {
    for (const LoadedBackend& entry : entries_) {
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
        broken_.push_back(unavailable_device(plugin.backend, plugin.path.string(), error.what()));
      } catch (...) {
        broken_.push_back(unavailable_device(plugin.backend, plugin.path.string(), kUnknownException));
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
          unavailable_device("GABLE_BACKEND_PATH", entry,
                             "the entry '" + entry + "' of GABLE_BACKEND_PATH is relative: write an absolute folder"));
    }
    for (const std::string& folder : loader::search_path().missing) {
      broken_.push_back(
          unavailable_device("GABLE_BACKEND_PATH", folder,
                             "the entry '" + folder + "' of GABLE_BACKEND_PATH is no folder that can be read"));
    }
    load_plugins(std::nullopt);
  }

  std::vector<const LoadedBackend*> by_priority() const {
    std::vector<const LoadedBackend*> order;
    for (const LoadedBackend& entry : entries_) order.push_back(&entry);
    std::stable_sort(order.begin(), order.end(), [](const LoadedBackend* a, const LoadedBackend* b) {
      return a->backend->priority() > b->backend->priority();
    });
    return order;
  }

  const LoadedBackend& find(const DeviceUri& uri) {
    if (loaded(uri.backend) == nullptr) load_plugins(uri.backend);
    if (const LoadedBackend* entry = loaded(uri.backend)) return *entry;
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
    for (const LoadedBackend* entry : by_priority()) names += ", " + entry->backend->name();
    return names;
  }

  /// Throws Error(invalid_argument) naming an option that neither `auto` nor a backend of this process has.
  void check_auto_options(const DeviceUri& uri) const {
    std::vector<std::string> known(kAutoOptions.begin(), kAutoOptions.end());
    for (const LoadedBackend& entry : entries_) {
      for (std::string& option : entry.backend->options()) {
        if (std::find(known.begin(), known.end(), option) == known.end()) known.push_back(std::move(option));
      }
    }
    check_options(uri, known);
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

  std::shared_ptr<DeviceImpl> open_auto(const DeviceUri& uri) {
    load_all();
    if (!uri.selector.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  "device '" + to_string(uri) + "': auto has no '" + uri.selector + "'; use 'auto'");
    }
    check_auto_options(uri);
    check_only(uri, only_option(uri));
    return gable::open_auto(uri, by_priority());
  }

  std::mutex mutex_;
  std::vector<LoadedBackend> entries_;
  std::vector<DeviceInfo> broken_;
  bool all_loaded_ = false;
  std::map<std::string, std::shared_ptr<DeviceImpl>> shared_;
};

/// What GABLE_DEVICE names in place of `auto`. The options of both are kept, except options of `auto` that mean nothing
/// to a single device.
DeviceUri named_instead(const DeviceUri& uri, const char* variable) {
  DeviceUri named = parse_device_uri(variable);
  for (const auto& [option, value] : uri.options) {
    if (named.backend != "auto" && is_auto_option(option)) continue;
    const auto [both, added] = named.options.emplace(option, value);
    if (added || both->second == value) continue;
    throw Error(ErrorCode::invalid_argument, "says " + option + "=" + both->second + ", but '" + to_string(uri) +
                                                 "' is asked for: " + option + " contradicts itself; give it once");
  }
  return named;
}

/// use(uri) of the device that is asked for. Where GABLE_DEVICE replaces `auto`, a failure says so: whoever wrote
/// "auto" does not know the variable's device.
template <typename Use>
auto with_requested(std::string_view text, const Use& use) {
  const DeviceUri uri = parse_device_uri(text);
  const char* variable = std::getenv("GABLE_DEVICE");
  if (uri.backend != "auto" || variable == nullptr || *variable == '\0') return use(uri);
  try {
    return use(named_instead(uri, variable));
  } catch (const Error& error) {
    throw Error(error.code(), "GABLE_DEVICE=" + std::string(variable) + ": " + error.what());
  }
}

}  // namespace

std::vector<DeviceInfo> devices() { return Registry::instance().devices(); }

Device open(std::string_view uri) {
  return with_requested(uri, [](const DeviceUri& wanted) { return Device(Registry::instance().open(wanted)); });
}

Ranking choose(const Op& op, Memory memory) {
  const auto device = with_requested("auto?memory=" + to_string(memory),
                                     [](const DeviceUri& wanted) { return Registry::instance().shared(wanted); });
  return choose(device, op);
}

}  // namespace gable
