// The terminal's table.
#include "bench/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/common/text.h"
#include "bench/record/headroom.h"
#include "bench/report/against.h"
#include "bench/report/columns.h"

namespace gable::bench::report {
namespace {

enum Column : size_t {
  kName,
  kDtype,
  kCache,
  kDevice,
  kKernel,
  kTime,
  kRate,
  kIntensity,
  kPercent,
  kBound,
  kRoof,
  kNext,
  kEnergy,
  kSources,
  kAgainst,
  kFlags,
  kSamples
};
constexpr size_t kColumns = kSamples + 1;
constexpr int kFewSamples = 5;             // with fewer, the median of a busy machine may be any of its times
constexpr size_t kMaxNameCharacters = 80;  // a name may be as long as a command line
using Cells = std::array<std::string, kColumns>;

constexpr std::array<const char*, kColumns> kHeads = {
    "name",  "dtype", "cache",      "device",  "kernel",    "T",       "GFLOP/s", "FLOP/byte", "% roof",
    "bound", "roof",  "next limit", "GFLOP/J", "W, Q from", "against", "flags",   "samples"};
constexpr std::array<bool, kColumns> kRight = {false, false, false, false, false, true,  true,  true, true,
                                               false, false, false, true,  false, false, false, true};

// Empty if everything is analytic.
bool was_counted(const Measurement& m) {
  return !m.work.is_analytic() ||
         std::any_of(m.traffic.begin(), m.traffic.end(), [](const auto& level) { return !level.second.is_analytic(); });
}

Cells cells_of(const Measurement& m, const Measurement& baseline) {
  const bool is_other = m.series != baseline.series;
  const RoofLimit* next = next_limit(m.verdict);
  return {shortened(printable(m.label), kMaxNameCharacters),
          m.identity.dtype,
          m.place.cache,
          printable(m.series),
          printable(m.place.kernel),
          seconds_text(m.time.seconds),
          number_text(m.flops() / 1e9),
          number_text(m.intensity()),
          m.verdict.percent_of_roof ? fmt::format("{:.1f}", *m.verdict.percent_of_roof) : "-",
          m.verdict.bound.empty() ? "-" : m.verdict.bound,
          printable(m.verdict.roof),
          next != nullptr ? fmt::format("{} {:.0f} %", printable(next->roof), next->percent) : "",
          m.flop_per_joule() ? number_text(*m.flop_per_joule() / 1e9) : "",
          m.work.source + ", " + source_of(m),
          is_other ? fmt::format("{:.2f}x {}", baseline.time.seconds / m.time.seconds, printable(baseline.series)) : "",
          m.flagged() ? fmt::format("! {}", m.verdict.flags.size()) : "",
          m.time.runs < kFewSamples ? std::to_string(m.time.runs) : ""};
}

// The sentences for the marks in the last column.
std::string flags(const Studies& studies) {
  std::string text;
  for (const Measurement& m : studies.measurements) {
    for (const std::string& flag : m.verdict.flags) {
      text += fmt::format("! {} {} on {}: {}\n", printable(m.label), m.identity.dtype, printable(m.series),
                          printable(flag));
    }
  }
  return text.empty() ? "" : "Numbers that can't all be true (a counter or a ceiling is wrong):\n" + text;
}

/// Cases that a device refused for the same reason share a line: a device without f16 refuses all f16 cases of a suite.
std::string refusals(const std::vector<Refused>& refused) {
  if (refused.empty()) return "";
  std::vector<std::pair<std::string, std::string>> lines;  // place and reason, names
  for (const Refused& r : refused) {
    // A line of a list that is no problem has neither.
    const std::string dtype = r.dtype.empty() ? "" : " " + r.dtype;
    const std::string where = r.device.empty() ? "" : " on " + r.device;
    const std::string why = printable(fmt::format("{}{}: {}", dtype, where, r.reason));
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const auto& one) { return one.first == why; });
    if (line == lines.end()) {
      lines.emplace_back(why, printable(r.label()));
    } else {
      line->second += ", " + printable(r.label());
    }
  }
  std::string text = fmt::format("{} refused:\n", refused.size());
  for (const auto& [why, names] : lines) text += fmt::format("  {}{}\n", names, why);
  return text;
}

}  // namespace

std::string table(const Studies& studies) {
  const Baselines baselines(studies);
  std::vector<Cells> rows(1);
  std::copy(kHeads.begin(), kHeads.end(), rows[0].begin());
  for (const Measurement& m : studies.measurements) {
    if (!m.identity.only_moves_bytes())
      rows.push_back(cells_of(m, baselines.of(m)));  // bandwidth_table() has the others
  }
  // Without ceilings no row has a percent, a bound or a roof.
  for (const Column column : {kPercent, kBound, kRoof, kNext, kEnergy, kAgainst, kFlags, kSamples}) {
    const auto says = [&](const Cells& row) { return !row[column].empty() && row[column] != "-"; };
    if (std::any_of(rows.begin() + 1, rows.end(), says)) continue;
    for (Cells& row : rows) row[column].clear();
  }
  const bool counts = std::any_of(studies.measurements.begin(), studies.measurements.end(), was_counted);
  if (!counts)
    for (Cells& row : rows) row[kSources].clear();
  const bool has_lines = rows.size() > 1 || studies.measurements.empty();
  return (has_lines ? in_columns(rows, kRight) : "") + flags(studies) + refusals(studies.refused);
}

}  // namespace gable::bench::report
