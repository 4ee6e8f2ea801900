// Rows and refusals as JSON (docs/record.md). The only code that writes or reads these fields.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>

#include "bench/record/row.h"

namespace gable::bench {

nlohmann::json to_json(const Row& row);
/// Of a measurement that check_study() accepts, also of an older gable. Unknown fields are ignored.
Row row_from_json(const nlohmann::json& measurement);

/// suite, name, op, problem, dtype, and what the op has of layout, epilogue, math and tile.
nlohmann::json to_json(const Identity& identity);

nlohmann::json to_json(const Refusal& refusal);
Refusal refusal_from_json(const nlohmann::json& refused);

/// `device_kind`, or what the device's name says where an old record lacks it.
DeviceKind device_kind_of(const nlohmann::json& entry);

/// The text or number of a field; empty where it is missing, null or of another type.
std::string text_or_empty(const nlohmann::json& object, const char* key);
template <class T>
std::optional<T> number_or_empty(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  if (std::is_integral_v<T> && !found->is_number_integer()) return std::nullopt;
  return found->get<T>();
}

}  // namespace gable::bench
