// See program.h.
#include "bench/report/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench/common/text.h"
#include "bench/report/columns.h"
#include "bench/report/study.h"

namespace gable::bench::report {
namespace {

constexpr std::size_t kPartColumns = 10;
using PartCells = std::array<std::string, kPartColumns>;
const PartCells kPartHeads{"what",  "name", "device",  "calls",     "total",
                           "share", "T",    "GFLOP/s", "FLOP/byte", "% roof, bound"};
constexpr std::array<bool, kPartColumns> kPartRight{false, false, false, true, true, true, true, true, true, false};
constexpr std::size_t kLongestName = 60;
constexpr std::size_t kLongestCommand = 200;

std::string cut(const std::string& name) {
  return name.size() <= kLongestName ? name : "…" + name.substr(name.size() - kLongestName + 1);
}

PartCells cells_of(const ProgramPart& part, const Row* row) {
  PartCells cells{part.kind, printable(cut(part.name)), part.device, std::to_string(part.called.calls),
                  seconds_text(part.called.seconds)};
  if (part.called.share) cells[5] = fmt::format("{:.1f} %", 100 * *part.called.share);
  if (row == nullptr) {
    if (part.time) cells[6] = seconds_text(part.time->seconds);
    if (part.time && part.work) cells[7] = number_text(part.work->flop / part.time->seconds / 1e9);
    return cells;
  }
  cells[6] = seconds_text(row->time.seconds);
  cells[7] = number_text(row->flops() / 1e9);
  cells[8] = intensity_text(*row);
  const Verdict& verdict = row->verdict;
  if (verdict.percent_of_roof) cells[9] = fmt::format("{:.1f} {}", *verdict.percent_of_roof, verdict.bound);
  return cells;
}

/// Each reason once, with the parts that it keeps off the roofline.
std::string reasons(const ProgramEntry& program) {
  struct Lack {
    std::string what, reason;
    int parts = 1;
  };
  std::vector<Lack> lacks;
  for (const ProgramPart& part : program.parts) {
    if (part.reason.empty() || part.kind == "rest") continue;
    const std::string what = part.work ? "FLOP/byte" : "W or Q";
    const auto same = std::find_if(lacks.begin(), lacks.end(),
                                   [&](const Lack& one) { return one.what == what && one.reason == part.reason; });
    if (same == lacks.end()) {
      lacks.push_back({what, part.reason});
    } else {
      ++same->parts;
    }
  }
  std::string text;
  for (const Lack& lack : lacks)
    text += fmt::format("no {} for {} of these lines: {}\n", lack.what, lack.parts, printable(lack.reason));
  return text;
}

/// `head` stands before the first one.
std::string findings(const std::vector<Regime>& found, const std::string& head) {
  std::string text;
  for (const Regime& finding : found) {
    text += fmt::format("{} {}: {}\n", text.empty() ? head : "         and", printable(finding.name),
                        printable(finding.evidence));
    for (const std::string& one : finding.advice) text += fmt::format("             - {}\n", printable(one));
  }
  return text;
}

std::string findings(const ProgramEntry& program) {
  const bool has_kernels = std::any_of(program.parts.begin(), program.parts.end(),
                                       [](const ProgramPart& part) { return part.kind == "kernel"; });
  std::string text = findings(program.findings, has_kernels ? "time on the CPU goes to" : "time goes to");
  for (const ProgramPart& part : program.parts)
    text += findings(part.findings, fmt::format("time of {} goes to", printable(cut(part.name))));
  return text;
}

std::string ending(const ProgramEntry& program) {
  std::string text =
      fmt::format("{}: {}", printable(shortened(program.command, kLongestCommand)), seconds_text(program.seconds));
  if (program.cpu_seconds) text += fmt::format(", {} of CPU time", seconds_text(*program.cpu_seconds));
  if (program.processes > 1) text += fmt::format(", {} processes", program.processes);
  if (program.signal) text += fmt::format(", ended by signal {}", *program.signal);
  if (program.exit_code.value_or(0) != 0) text += fmt::format(", exit code {}", *program.exit_code);
  if (program.interrupted) text += ", interrupted";
  return text + "\n";
}

}  // namespace

std::string program_table(const Study& study) {
  if (!study.program) return "";
  std::vector<PartCells> lines{kPartHeads};
  for (const ProgramPart& part : study.program->parts) lines.push_back(cells_of(part, row_of_part(study.rows, part)));
  for (std::size_t column = 5; column < kPartColumns; ++column) {
    const auto says = [&](const PartCells& cells) { return !cells[column].empty(); };
    if (std::none_of(lines.begin() + 1, lines.end(), says)) lines[0][column].clear();
  }
  std::string text = ending(*study.program) + in_columns(lines, kPartRight);
  text += findings(*study.program) + reasons(*study.program);
  for (const std::string& note : study.program->notes) text += "note: " + printable(note) + "\n";
  for (const ProgramPart& part : study.program->parts) {
    if (row_of_part(study.rows, part) != nullptr) continue;  // its row has them
    for (const std::string& flag : part.flags) text += fmt::format("! {}: {}\n", printable(part.name), printable(flag));
  }
  for (const Row& row : study.rows) {
    for (const std::string& flag : row.verdict.flags) {
      text += fmt::format("! {}: {}\n", printable(row.identity.name), printable(flag));
    }
  }
  text.pop_back();  // whoever prints it ends the last line
  return text;
}

}  // namespace gable::bench::report
