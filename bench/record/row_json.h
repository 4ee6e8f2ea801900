// Rows and refusals as JSON (docs/record.md). The only code that writes or reads these fields.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>

#include "bench/record/row.h"

namespace gable::bench {

nlohmann::json to_json(const Row& row);
nlohmann::json to_json(const Regime& regime);
/// Empty where it is no object with a name.
std::optional<Regime> regime_from_json(const nlohmann::json& entry);
/// Reads a measurement that check_study() accepts, also one of an older gable. Unknown fields are ignored.
Row row_from_json(const nlohmann::json& measurement);

/// suite, name, op, problem and dtype; layout, epilogue, math and tile if the op has them.
nlohmann::json to_json(const Identity& identity);

nlohmann::json to_json(const Refusal& refusal);
Refusal refusal_from_json(const nlohmann::json& refused);

/// `device_kind`, or in an older record the kind from the device's name.
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
