// See timed_parts.h.
#include "bench/diff/timed_parts.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace gable::bench {
namespace {

/// The program's file name, as its rows have it.
std::string suite_of(const ProgramEntry& program) {
  return std::filesystem::path(program.command.substr(0, program.command.find(' '))).filename().string();
}

Row row_of(const ProgramPart& part, const std::string& suite) {
  const bool on_gpu = part.device != "cpu";
  Row row;
  row.identity = {.suite = suite, .name = part.name, .op = part.kind};
  row.place = {.device = part.device,
               .kind = on_gpu ? DeviceKind::gpu : DeviceKind::cpu,
               .kernel = part.name,
               .cache = part.kind == "program" ? "cold" : "warm"};
  row.time = {.source = on_gpu ? "event" : "clock",
              .seconds = part.time->seconds,
              .q1 = part.time->q1,
              .q3 = part.time->q3,
              .runs = static_cast<int>(std::min<std::int64_t>(part.called.calls, 1 << 30))};
  row.called = part.called;
  return row;
}

}  // namespace

void add_timed_parts(Study& study) {
  if (!study.program) return;
  std::vector<Row> rows;
  for (const ProgramPart& part : study.program->parts) {
    if (part.time && part.time->seconds > 0 && row_of_part(study.rows, part) == nullptr)
      rows.push_back(row_of(part, suite_of(*study.program)));
  }
  std::move(rows.begin(), rows.end(), std::back_inserter(study.rows));
}

}  // namespace gable::bench
