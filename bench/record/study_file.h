// Studies in files that anyone may have written: whatever they hold, the answer is a study or an error that names the
// file and what is wrong.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gable::bench {

/// Objects and lists inside each other that a study may have; those that gable writes have fewer than ten.
inline constexpr int kMaxLevels = 64;

/// Parses JSON. Throws Error(invalid_argument), with `name` in its message, for text that is no JSON or is nested
/// deeper than kMaxLevels (what walks a document calls itself for each level).
nlohmann::json parse_document(const std::string& text, const std::string& name);

/// The study in this file, valid by its schema. Throws Error(invalid_argument).
nlohmann::json read_study_file(const std::string& path);

}  // namespace gable::bench
