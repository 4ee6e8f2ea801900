// A study as JSON (docs/record.md): one writer, one reader.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/record/study.h"

namespace gable::bench {

/// Throws SchemaError if it would write what no reader accepts.
nlohmann::json to_json(const Study& study, const RunEntry& run);

struct ReadStudy {
  MachineEntry machine;
  Study study;
};
/// Also of older records. Throws SchemaError.
ReadStudy study_from_json(const nlohmann::json& document);

/// The record's `machine`; versions are gable's and those that the devices' plugins state in their names.
nlohmann::json machine_json(const perf::Machine& machine, const std::string& command);

/// The record's `refused`.
nlohmann::json to_json(const std::vector<Refusal>& refused);

nlohmann::json to_json(const CeilingEntry& ceiling);
nlohmann::json to_json(const RateEntry& rate);
/// A quantity of a counter source: what it gives here, or why not.
nlohmann::json to_json(const perf::Ability& ability);

/// JSON text for people: indented, broken UTF-8 replaced.
std::string json_text(const nlohmann::json& document);

}  // namespace gable::bench
