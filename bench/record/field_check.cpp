// See field_check.h.
#include "bench/record/field_check.h"

#include <cmath>

namespace gable::bench {
namespace {

using nlohmann::json;

bool is_number_from(const json& value, double least) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= least;
}

}  // namespace

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr size_t kMost = 80;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "…";
}

std::string pointer_token(std::string_view key) {
  std::string token;
  for (char c : key) token += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return token;
}

std::string one_of(Names names) {
  std::string text = "one of";
  for (const char* name : names) text += fmt::format(" \"{}\"", name);
  return text;
}

bool is_one_of(const json& value, Names names) {
  if (!value.is_string()) return false;
  for (const char* name : names) {
    if (value.get_ref<const std::string&>() == name) return true;
  }
  return false;
}

bool is_positive(const json& value) { return is_number_from(value, 0) && value.get<double>() > 0; }

bool is_in_range(const json& value) { return value.get<double>() >= kMinDrawn && value.get<double>() <= kMaxDrawn; }

bool is_count(const json& value, double most) {
  return value.is_number_integer() && value.get<double>() >= 1 && value.get<double>() <= most;
}

bool is_pair_of_counts(const json& v) {
  return v.is_array() && v.size() == 2 && is_count(v[0], kMaxExact) && is_count(v[1], kMaxExact);
}

void Checker::report(std::string pointer, const json& value, std::string expected) {
  violations_.push_back({std::move(pointer), shown(value), std::move(expected)});
}

void Checker::missing(std::string pointer, std::string expected) {
  violations_.push_back({std::move(pointer), "missing", std::move(expected)});
}

void Checker::text(const Field& field) {
  value(
      field, [](const json& v) { return v.is_string(); }, "a string");
}

void Checker::nonempty(const Field& field) {
  const auto right = [](const json& v) { return v.is_string() && !v.get_ref<const std::string&>().empty(); };
  value(field, right, "a string that is not empty");
}

const json* Checker::choice(const Field& field, Names names) {
  const auto right = [&](const json& v) { return is_one_of(v, names); };
  return value(field, right, one_of(names));
}

const json* Checker::positive(const Field& field) { return in_range(field, value(field, is_positive, "a number > 0")); }

const json* Checker::not_negative(const Field& field) {
  return value(
      field, [](const json& v) { return is_number_from(v, 0); }, "a number >= 0");
}

const json* Checker::zero_or_positive(const Field& field) {
  const json* number = not_negative(field);
  return number && *number == 0 ? number : in_range(field, number);
}

void Checker::count(const Field& field, double most) {
  const auto right = [&](const json& v) { return is_count(v, most); };
  value(field, right, fmt::format("an integer from 1 to {:.0f}", most));
}

void Checker::flag(const Field& field) {
  value(
      field, [](const json& v) { return v.is_boolean(); }, "true or false");
}

const json* Checker::object(const Field& field) {
  return value(
      field, [](const json& v) { return v.is_object(); }, "an object");
}

void Checker::quartiles(const Field& median) {
  const json* q1 = positive({median.holder, median.at, "q1", median.presence});
  const json* q3 = positive({median.holder, median.at, "q3", median.presence});
  const json* middle = positive({median.holder, median.at, median.key});
  if (q1 && middle && q1->get<double>() > middle->get<double>()) {
    report(median.at + "/q1", *q1, fmt::format("at most {}, which is {}", median.key, shown(*middle)));
  }
  if (q3 && middle && q3->get<double>() < middle->get<double>()) {
    report(median.at + "/q3", *q3, fmt::format("at least {}, which is {}", median.key, shown(*middle)));
  }
}

const json* Checker::in_range(const Field& field, const json* number) {
  if (!number || is_in_range(*number)) return number;
  report(field.pointer(), *number, fmt::format("a number from {:g} to {:g}", kMinDrawn, kMaxDrawn));
  return nullptr;
}

}  // namespace gable::bench
