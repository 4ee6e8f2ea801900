// A study as JSON (docs/record.md): one writer, one reader.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/record/study.h"

namespace gable::bench {

/// Throws SchemaError if the result would break the schema.
nlohmann::json to_json(const Study& study, const RunEntry& run);

struct ReadStudy {
  MachineEntry machine;
  Study study;
};
/// Reads older records, too. Throws SchemaError.
ReadStudy study_from_json(const nlohmann::json& document);

/// The record's `machine`. Versions are gable's and those in the names of the plugins' devices.
nlohmann::json machine_json(const perf::Machine& machine, const std::string& command);

/// The record's `refused`.
nlohmann::json to_json(const std::vector<Refusal>& refused);

nlohmann::json to_json(const CeilingEntry& ceiling);
nlohmann::json to_json(const RateEntry& rate);
/// A quantity of a counter source: whether it is available, and the reason if not.
nlohmann::json to_json(const perf::Ability& ability);

/// JSON text for people: indented, broken UTF-8 replaced.
std::string json_text(const nlohmann::json& document);

}  // namespace gable::bench
