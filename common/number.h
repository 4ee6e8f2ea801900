// Numbers in text as C writes them, whatever locale the process has set: std::strtod, std::stod, printf and
// std::to_string follow it.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

namespace gable {

/// The number that the text begins with; returns how many characters it has, 0 if there is none.
inline std::size_t parse_number(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? static_cast<std::size_t>(end - text.data()) : 0;
}

/// printf's %.Ng: at most so many significant digits, 17 at most.
inline std::string short_number(double value, int digits) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value, std::chars_format::general, digits);
  return {text, end};
}

}  // namespace gable
