// The terminal's table.
#include "bench/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/report/text.h"

namespace gable::bench::report {
namespace {

constexpr size_t kColumns = 12;
constexpr size_t kSources = 10;  // the column that is left out where it says nothing
using Cells = std::array<std::string, kColumns>;

constexpr std::array<const char*, kColumns> kHeads = {"name",   "dtype", "cache",     "device",
                                                      "kernel", "T",     "GFLOP/s",   "FLOP/byte",
                                                      "% roof", "bound", "W, Q from", "against"};
constexpr std::array<bool, kColumns> kRight = {false, false, false, false, false, true,
                                               true,  true,  true,  false, false, false};

bool is_vendor_library(const std::string& device) {
  return device.starts_with("onednn") || device.starts_with("cudnn") || device.starts_with("pytorch");
}

// What must agree for two times to be comparable.
std::string comparable(const Measurement& m) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", m.suite, m.name, m.op, m.problem, m.dtype, m.bias,
                     m.activation, m.max_pool, m.cache);
}

std::map<std::string, const Measurement*> baselines(const Studies& studies) {
  std::map<std::string, const Measurement*> chosen;
  for (const Measurement& m : studies.measurements) {
    const Measurement*& slot = chosen[comparable(m)];
    if (!slot || (is_vendor_library(m.device) && !is_vendor_library(slot->device))) slot = &m;
  }
  return chosen;
}

// Where all is analytic, nothing is said of it.
bool was_counted(const Measurement& m) {
  return m.work.source != "analytic" ||
         std::any_of(m.traffic.begin(), m.traffic.end(), [](const auto& t) { return t.second.source != "analytic"; });
}

Cells cells_of(const Measurement& m, const Measurement& baseline) {
  const bool is_other = m.series != baseline.series;
  return {
      printable(m.label),
      m.dtype,
      m.cache,
      printable(m.series),
      printable(m.kernel),
      seconds_text(m.time.seconds),
      number_text(m.flops() / 1e9),
      number_text(m.intensity()),
      m.percent_of_roof ? fmt::format("{:.1f}", *m.percent_of_roof) : "-",
      m.bound.empty() ? "-" : m.bound,
      m.work.source + ", " + m.traffic.at("dram").source,
      is_other ? fmt::format("{:.2f}x {}", baseline.time.seconds / m.time.seconds, printable(baseline.series)) : ""};
}

std::string line_of(const Cells& cells, const std::array<size_t, kColumns>& widths) {
  std::string line;
  for (size_t i = 0; i < kColumns; ++i) {
    if (widths[i] == 0) continue;
    const std::string pad(widths[i] - count_code_points(cells[i]), ' ');
    line += (i ? "  " : "") + (kRight[i] ? pad + cells[i] : cells[i] + pad);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

/// Cases that a device refused for one reason share a line: a device without f16 refuses all of a suite's.
std::string refusals(const std::vector<Refused>& refused) {
  if (refused.empty()) return "";
  std::vector<std::pair<std::string, std::string>> lines;  // where and why, names
  for (const Refused& r : refused) {
    const std::string why = fmt::format("{} on {}: {}", printable(r.dtype), printable(r.device), printable(r.reason));
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const auto& one) { return one.first == why; });
    if (line == lines.end()) {
      lines.emplace_back(why, printable(r.name));
    } else {
      line->second += ", " + printable(r.name);
    }
  }
  std::string text = fmt::format("{} refused:\n", refused.size());
  for (const auto& [why, names] : lines) text += fmt::format("  {} {}\n", names, why);
  return text;
}

}  // namespace

std::string table(const Studies& studies) {
  const auto chosen = baselines(studies);
  std::vector<Cells> rows(1);
  std::copy(kHeads.begin(), kHeads.end(), rows[0].begin());
  for (const Measurement& m : studies.measurements) {
    if (!m.working_set_bytes) rows.push_back(cells_of(m, *chosen.at(comparable(m))));  // others: bandwidth_table()
  }
  const bool compares = std::any_of(rows.begin() + 1, rows.end(), [](const Cells& row) { return !row.back().empty(); });
  if (!compares) rows[0].back().clear();
  const bool counts = std::any_of(studies.measurements.begin(), studies.measurements.end(), was_counted);
  if (!counts)
    for (Cells& row : rows) row[kSources].clear();

  std::array<size_t, kColumns> widths{};
  for (const Cells& row : rows) {
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], count_code_points(row[i]));
  }
  std::string text;
  if (rows.size() > 1 || studies.measurements.empty()) {
    for (const Cells& row : rows) text += line_of(row, widths);
  }
  return text + refusals(studies.refused);
}

}  // namespace gable::bench::report
