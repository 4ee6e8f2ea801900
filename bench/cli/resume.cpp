// See resume.h.
#include "bench/cli/resume.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "bench/common/text.h"
#include "bench/record/study_file.h"

namespace gable::bench {
namespace {

using nlohmann::json;

/// The machine's fields that differ from run to run.
bool may_differ(std::string_view field) {
  constexpr std::array<std::string_view, 5> kFields{"date", "mode", "notes", "clock_hz", "memory_bytes"};
  return std::find(kFields.begin(), kFields.end(), field) != kFields.end();
}

std::string text_of(const json& machine, const std::string& field) {
  const auto found = machine.find(field);
  if (found == machine.end()) return "none";
  return printable(found->is_string() ? found->get<std::string>()
                                      : found->dump(-1, ' ', false, json::error_handler_t::replace));
}

void require_same(const std::string& file, const std::string& field, const json& before, const json& now) {
  const std::string old_text = text_of(before, field), new_text = text_of(now, field);
  if (old_text == new_text) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("--resume: '{}' is of another run: its {} is '{}', here it is '{}'; give what it was measured "
                  "with, or another file",
                  printable(file), field, old_text, new_text));
}

}  // namespace

std::optional<ReadStudy> study_to_resume(const std::string& file, const RunEntry& run) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  const json document = read_study_file(file);
  const json now = machine_json(run.machine, run.command);
  const json& before = document["machine"];
  require_same(file, "command", before, now);
  for (const json& fields : {before, now}) {
    for (const auto& [field, value] : fields.items()) {
      if (!may_differ(field)) require_same(file, field, before, now);
    }
  }
  return study_from_json(document);
}

std::string resumed_text(std::size_t kept, const ReadStudy& before) {
  return fmt::format("resumed: {} of the rows are from the run of {}", kept, before.machine.date);
}

}  // namespace gable::bench
