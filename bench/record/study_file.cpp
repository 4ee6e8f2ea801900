// See study_file.h.
#include "bench/record/study_file.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "bench/common/files.h"
#include "bench/common/text.h"
#include "bench/record/schema.h"

namespace gable::bench {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("study '{}': {}", printable(name), what));
}

}  // namespace

json parse_document(const std::string& text, const std::string& name) {
  std::vector<std::unordered_set<std::string>> keys;  // of each object around the place
  const auto check = [&](int depth, json::parse_event_t event, const json& parsed) {
    if (depth > kMaxLevels)
      fail(name, fmt::format("is nested more than {} levels deep, which no study is", kMaxLevels));
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      fail(name, fmt::format("an object has the field '{}' twice", printable(parsed.get<std::string>())));
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::exception& error) {
    fail(name, fmt::format("is no JSON: {}", printable(error.what())));
  }
}

json read_study_file(const std::string& path) {
  json study = parse_document(read_whole("study", path), path);
  if (!study.is_object() || !study.contains("schema_version")) {
    fail(path, "is JSON, but no study: expected an object with a schema_version (docs/record.md)");
  }
  try {
    validate_study(study);
  } catch (const SchemaError& error) {
    fail(path, error.what());
  }
  return study;
}

}  // namespace gable::bench
