// --resume: what an interrupted run of the same command has left in its record.
#pragma once

#include <optional>
#include <string>

#include "bench/record/study.h"
#include "bench/record/study_json.h"

namespace gable::bench {

/// The study in `file`; nothing if there is no such file. Throws Error(invalid_argument) if it is no study, or one of
/// another command, machine or gable than `run`: the error names what differs.
std::optional<ReadStudy> study_to_resume(const std::string& file, const RunEntry& run);

/// "3 of the rows are from the run of 2026-11-22T12:00:00Z", for the record's mode.
std::string resumed_text(std::size_t kept, const ReadStudy& before);

}  // namespace gable::bench
