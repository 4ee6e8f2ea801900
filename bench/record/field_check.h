// A small checker of JSON fields. Each field is looked up by name and has a predicate and a sentence that states what
// is expected, so that messages are as good as the documentation.
#pragma once

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/record/schema.h"

namespace gable::bench {

// The values that a field may have.
struct Names : std::span<const char* const> {
  template <size_t N>
  Names(const std::array<const char*, N>& names) : span(names) {}
  Names(std::initializer_list<const char*> names) : span(names.begin(), names.size()) {}
};

// What can be measured lies far inside, in any unit of the record. The axes of a figure span what a study has, so
// 5e-324 FLOP would be an axis of 300 decades.
constexpr double kMinDrawn = 1e-18, kMaxDrawn = 1e30;
constexpr double kMaxInt = 2147483647;
constexpr double kMaxExact = 9007199254740992;  // 2^53

// For people, cut where it is long.
std::string shown(const nlohmann::json& value);
// A key as a part of a JSON pointer.
std::string pointer_token(std::string_view key);
// "one of "a" "b"".
std::string one_of(Names names);

bool is_one_of(const nlohmann::json& value, Names names);
bool is_positive(const nlohmann::json& value);
// Whether a number lies between kMinDrawn and kMaxDrawn.
bool is_in_range(const nlohmann::json& value);
bool is_count(const nlohmann::json& value, double most);
bool is_pair_of_counts(const nlohmann::json& value);

enum class Presence { required, optional };

/// A field of an object, by its key. `at` is the object's JSON pointer.
struct Field {
  const nlohmann::json& holder;
  std::string at;
  const char* key;
  Presence presence = Presence::required;

  std::string pointer() const { return at + "/" + pointer_token(key); }
};

// Collects violations. A function that returns a pointer gives the field's value, or null where it is absent or wrong.
class Checker {
 public:
  explicit Checker(std::vector<Violation>& violations) : violations_(violations) {}

  void report(std::string pointer, const nlohmann::json& value, std::string expected);
  void missing(std::string pointer, std::string expected);

  // The field's value if it satisfies the predicate, else null. An optional field may be missing or null; any other
  // failure is a violation.
  template <class Predicate>
  const nlohmann::json* value(const Field& field, Predicate right, const std::string& expected) {
    const bool optional = field.presence == Presence::optional;
    auto it = field.holder.find(field.key);
    const bool absent = it == field.holder.end() || (optional && it->is_null());
    if (absent) {
      if (!optional) missing(field.pointer(), expected);
      return nullptr;
    }
    if (!right(*it)) {
      report(field.pointer(), *it, expected + (optional ? ", or null" : ""));
      return nullptr;
    }
    return &*it;
  }

  void text(const Field& field);
  void nonempty(const Field& field);
  void flag(const Field& field);
  const nlohmann::json* choice(const Field& field, Names names);
  const nlohmann::json* object(const Field& field);
  const nlohmann::json* positive(const Field& field);
  const nlohmann::json* not_negative(const Field& field);
  // A number >= 0 that a figure draws where it is not 0.
  const nlohmann::json* zero_or_positive(const Field& field);
  void count(const Field& field, double most = kMaxInt);
  // The median is required; q1 and q3 of the same object enclose it. `median.presence` is that of q1 and q3.
  void quartiles(const Field& median);

 private:
  // `number`, or null and a violation where it is out of the range of what can be measured.
  const nlohmann::json* in_range(const Field& field, const nlohmann::json* number);

  std::vector<Violation>& violations_;
};

// Checks each object of a list.
template <class CheckEntry>
void check_list(Checker& check, const Field& field, CheckEntry check_entry) {
  const nlohmann::json* list = check.value(
      field, [](const nlohmann::json& v) { return v.is_array(); }, "a list");
  if (!list) return;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string at = fmt::format("{}/{}", field.pointer(), i);
    if ((*list)[i].is_object()) {
      check_entry(check, (*list)[i], at);
    } else {
      check.report(at, (*list)[i], "an object");
    }
  }
}

}  // namespace gable::bench
