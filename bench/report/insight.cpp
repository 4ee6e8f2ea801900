// See insight.h.
#include "bench/report/insight.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "bench/common/text.h"

namespace gable::bench::report {
namespace {

using Line = std::vector<std::string>;

/// Columns padded to their widest cell, the first `left` of them to the right.
std::string text_of(const std::vector<Line>& lines, std::size_t left) {
  std::vector<std::size_t> widths(lines.front().size(), 0);
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], count_code_points(line[i]));
  }
  std::string text;
  for (const Line& line : lines) {
    std::string padded;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string pad(widths[i] - count_code_points(line[i]), ' ');
      padded += (i > 0 ? "  " : "") + (i < left ? line[i] + pad : pad + line[i]);
    }
    padded.erase(padded.find_last_not_of(' ') + 1);
    text += padded + "\n";
  }
  return text;
}

Line place_of(const Measurement& m) {
  return {printable(m.label), m.identity.dtype, m.place.cache, printable(m.series)};
}

/// The rows of one regime with one advice.
struct Group {
  const Regime* regime;
  std::string series;
  std::vector<std::string> names{};
};

std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 6;
  if (names.size() <= kMost) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kMost, ", "), names.size() - kMost);
}

}  // namespace

std::string regime_table(const Studies& studies) {
  std::vector<Group> groups;
  for (const Measurement& m : studies.measurements) {
    if (!m.regime) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& one) {
      return one.series == m.series && one.regime->name == m.regime->name && one.regime->advice == m.regime->advice;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), {&*m.regime, m.series});
    group->names.push_back(fmt::format("{} {}", printable(m.label), m.identity.dtype));
  }
  if (groups.empty()) return "";
  std::string text = "Regimes, and what would help (below: far from every roof)\n";
  for (const Group& group : groups) {
    text +=
        fmt::format("{} on {}: {}\n", printable(group.regime->name), printable(group.series), names_text(group.names));
    for (const std::string& one : group.regime->advice) text += fmt::format("  - {}\n", printable(one));
  }
  return text;
}

std::string naive_table(const Studies& studies) {
  std::vector<Line> lines{{"name", "dtype", "cache", "device", "naive", "measured", "ratio"}};
  for (const Measurement& m : studies.measurements) {
    if (!m.naive || !m.naive->seconds) continue;
    Line line = place_of(m);
    line.push_back(flops_text(m.work.value / *m.naive->seconds));
    line.push_back(flops_text(m.flops()));
    line.push_back(fmt::format("{:.1f}x", *m.naive->seconds / m.time.seconds));
    lines.push_back(std::move(line));
  }
  if (lines.size() == 1) return "";
  return "The naive convolution, whose operands all come from memory, by the measured bandwidth\n" + text_of(lines, 4);
}

std::string fusion_table(const Studies& studies) {
  std::vector<Line> lines{{"name", "dtype", "cache", "device", "bytes saved", "time saved", "T"}};
  for (const Measurement& m : studies.measurements) {
    if (!m.fusion) continue;
    Line line = place_of(m);
    line.push_back(si_text(m.fusion->bytes_saved, "B"));
    const std::optional<double> seconds = m.fusion->seconds_saved;
    line.push_back(!seconds ? "-" : fmt::format("{}{}", *seconds < 0 ? "-" : "", seconds_text(std::abs(*seconds))));
    line.push_back(seconds_text(m.time.seconds));
    lines.push_back(std::move(line));
  }
  if (lines.size() == 1) return "";
  return "Fused max-pools, against the same row without it and a pass over its output\n" + text_of(lines, 4);
}

}  // namespace gable::bench::report
