// See auto_options.h.
#include "backends/registry/auto_options.h"

#include <gable/error.h>

#include <algorithm>
#include <charconv>

namespace gable {
namespace {

[[noreturn]] void refuse(const DeviceUri& uri, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "device '" + to_string(uri) + "': " + what);
}

}  // namespace

bool is_auto_option(std::string_view option) {
  return std::find(kAutoOptions.begin(), kAutoOptions.end(), option) != kAutoOptions.end();
}

std::vector<DeviceUri> only_option(const DeviceUri& uri) {
  const auto option = uri.options.find("only");
  std::vector<DeviceUri> all;
  if (option == uri.options.end()) return all;
  for (std::string_view rest = option->second; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find_first_of(",+"));
    rest.remove_prefix(name.size());
    const bool ends_here = rest.empty();
    if (!ends_here) rest.remove_prefix(1);
    if (name.empty() || (rest.empty() && !ends_here))
      refuse(uri, "only is '" + option->second + "'; write devices with commas, e.g. only=cpu,onednn");
    DeviceUri one = parse_device_uri(name);
    if (one.backend == "auto") refuse(uri, "only names 'auto'; it takes devices, e.g. only=cpu,onednn");
    if (!one.options.empty())
      refuse(uri, "only names '" + to_string(one) + "'; options are auto's own, e.g. auto?only=cpu&threads=2");
    const auto same = [&](const DeviceUri& other) { return other.backend == one.backend; };
    if (std::any_of(all.begin(), all.end(), same)) refuse(uri, "only names '" + one.backend + "' twice");
    all.push_back(std::move(one));
  }
  return all;
}

std::optional<Memory> memory_option(const DeviceUri& uri) {
  const auto option = uri.options.find("memory");
  if (option == uri.options.end()) return std::nullopt;
  const std::string& text = option->second;
  if (text == "host") return Memory{};
  Memory memory{Memory::Kind::cuda, 0};
  if (text == "cuda") return memory;
  constexpr std::string_view kCuda = "cuda:";
  if (text.starts_with(kCuda)) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + kCuda.size(), end, memory.index);
    if (error == std::errc() && stop == end && memory.index >= 0) return memory;
  }
  refuse(uri, "memory is '" + text + "'; it must be host or cuda:N");
}

AutoOptions auto_options(const DeviceUri& uri) {
  AutoOptions options{.uri = to_string(uri)};
  if (const auto choose = uri.options.find("choose"); choose != uri.options.end()) {
    options.measures = choose->second == "measured";
    if (!options.measures && choose->second != "model") {
      refuse(uri, "choose is '" + choose->second + "'; it must be model or measured");
    }
  }
  if (const auto limit = uri.options.find("limit"); limit != uri.options.end()) {
    const std::string& text = limit->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), options.tuning_seconds);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (!whole || !(options.tuning_seconds > 0 && options.tuning_seconds <= 3600)) {
      refuse(uri, "limit is '" + text + "'; it must be the seconds to tune an op, above 0 and at most 3600");
    }
  }
  return options;
}

}  // namespace gable
