// Device URIs: backend[:selector][?option=value[&option=value]].
#include <gable/backend.h>
#include <gable/error.h>

#include <algorithm>
#include <charconv>

namespace gable {
namespace {

[[noreturn]] void refuse(std::string_view uri, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "device '" + std::string(uri) + "': " + what);
}

void parse_options(std::string_view uri, std::string_view text, std::map<std::string, std::string>& options) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size()) {
      refuse(uri, "'" + std::string(item) + "' is not an option: write option=value");
    }
    if (!options.emplace(item.substr(0, equals), item.substr(equals + 1)).second) {
      refuse(uri, "option '" + std::string(item.substr(0, equals)) + "' is given twice");
    }
  }
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

DeviceUri parse_device_uri(std::string_view text) {
  DeviceUri uri;
  const std::size_t question = text.find('?');
  const std::string_view path = text.substr(0, question);
  const std::size_t colon = path.find(':');
  uri.backend = path.substr(0, colon);
  if (uri.backend.empty()) refuse(text, "no backend is named; write backend[:selector][?option=value], e.g. 'cpu'");
  const auto is_name_character = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  if (!std::all_of(uri.backend.begin(), uri.backend.end(), is_name_character)) {
    const bool holds_options = uri.backend.find_first_of("&=") != std::string::npos;
    refuse(text, "'" + uri.backend + "' is no backend's name: they have lower-case letters, digits and '_'" +
                     (holds_options ? ". Options stand behind '?'. In a list of devices a comma parts them: write "
                                      "only=cuda+cudnn there"
                                    : ""));
  }
  if (colon != std::string_view::npos) {
    uri.selector = path.substr(colon + 1);
    if (uri.selector.empty()) refuse(text, "nothing follows ':'; leave it out, or write e.g. 'cpu:avx2'");
  }
  if (question != std::string_view::npos) parse_options(text, text.substr(question + 1), uri.options);
  return uri;
}

std::string to_string(const DeviceUri& uri) {
  std::string text = uri.backend + (uri.selector.empty() ? "" : ":" + uri.selector);
  char separator = '?';
  for (const auto& [option, value] : uri.options) {
    text += separator + option + "=" + value;
    separator = '&';
  }
  return text;
}

void check_options(const DeviceUri& uri, const std::vector<std::string>& known) {
  for (const auto& [option, value] : uri.options) {
    if (std::find(known.begin(), known.end(), option) == known.end()) {
      refuse(to_string(uri), "unknown option '" + option + "'; " + uri.backend + " has " + join(known));
    }
  }
}

int integer_option(const DeviceUri& uri, const std::string& option, int low, int high, int missing) {
  const auto found = uri.options.find(option);
  if (found == uri.options.end()) return missing;
  const std::string& text = found->second;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    refuse(to_string(uri), option + " is '" + text + "'; it must be a whole number between " + std::to_string(low) +
                               " and " + std::to_string(high));
  }
  return value;
}

}  // namespace gable
