// The record's `program` and a measurement's `called` (docs/record.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "bench/record/program.h"

namespace gable::bench {

nlohmann::json to_json(const CallFields& called);
/// Empty where the field is missing or of another type.
std::optional<CallFields> called_from_json(const nlohmann::json& measurement);

nlohmann::json to_json(const ProgramEntry& program);
/// Reads what check_study() accepts.
ProgramEntry program_from_json(const nlohmann::json& program);

}  // namespace gable::bench
