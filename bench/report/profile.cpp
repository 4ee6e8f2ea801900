// See profile.h.
#include "bench/report/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "bench/common/text.h"
#include "bench/report/csv.h"

namespace gable::bench {
namespace {

int rank_of(const std::string& group) { return group == kGpuActivities ? 0 : group == kApiCalls ? 1 : 2; }

std::vector<std::string> devices_of(const std::vector<Span>& spans) {
  std::vector<std::string> devices;
  for (const Span& span : spans) {
    if (std::find(devices.begin(), devices.end(), span.device) == devices.end()) devices.push_back(span.device);
  }
  return devices;
}

void add(ProfileRow& row, double seconds) {
  row.least = row.calls == 0 ? seconds : std::min(row.least, seconds);
  row.greatest = std::max(row.greatest, seconds);
  row.total += seconds;
  ++row.calls;
}

std::string quoted(const std::string& text) {
  std::string all = "\"";
  for (const char c : report::cell_text(text)) all += c == '"' ? std::string("\"\"") : std::string(1, c);
  return all + '"';
}

}  // namespace

std::vector<ProfileRow> profile_rows(const std::vector<Span>& spans) {
  std::vector<ProfileRow> all;
  for (const std::string& device : devices_of(spans)) {
    std::map<std::pair<int, std::string>, ProfileRow> rows;
    std::map<int, double> totals;
    for (const Span& span : spans) {
      if (span.device != device) continue;
      ProfileRow& row = rows[{rank_of(span.group), span.name}];
      row.device = device;
      row.group = span.group;
      row.name = span.name;
      add(row, span.seconds);
      totals[rank_of(span.group)] += span.seconds;
    }
    const auto first = static_cast<std::ptrdiff_t>(all.size());
    for (auto& [key, row] : rows) {
      row.average = row.total / row.calls;
      row.percent = totals[key.first] > 0 ? 100 * row.total / totals[key.first] : 0;
      all.push_back(std::move(row));
    }
    std::stable_sort(all.begin() + first, all.end(), [](const ProfileRow& a, const ProfileRow& b) {
      return rank_of(a.group) != rank_of(b.group) ? rank_of(a.group) < rank_of(b.group) : a.total > b.total;
    });
  }
  return all;
}

std::vector<ProfileRow> hottest(const std::vector<ProfileRow>& rows, const std::string& device,
                                const std::string& group, double percent) {
  std::vector<ProfileRow> candidates;
  double total = 0;
  for (const ProfileRow& row : rows) {
    if (row.device != device || row.group != group || row.name.starts_with('[')) continue;
    candidates.push_back(row);
    total += row.total;
  }
  std::vector<ProfileRow> kept;
  double sum = 0;
  for (ProfileRow& row : candidates) {
    if (sum >= percent) break;
    row.percent = total > 0 ? 100 * row.total / total : 0;
    sum += row.percent;
    kept.push_back(row);
  }
  return kept;
}

std::string profile_table(const std::vector<ProfileRow>& rows) {
  std::string text;
  const ProfileRow* former = nullptr;
  for (const ProfileRow& row : rows) {
    if (former == nullptr || former->group != row.group || former->device != row.device) {
      text += fmt::format("{}{} on {}\n{:>8} {:>9} {:>7} {:>9} {:>9} {:>9}  {}\n", text.empty() ? "" : "\n", row.group,
                          row.device, "Time(%)", "Total", "Calls", "Avg", "Min", "Max", "Name");
    }
    former = &row;
    text += printable(fmt::format("{:>8.2f} {:>9} {:>7} {:>9} {:>9} {:>9}  {}", row.percent, seconds_text(row.total),
                                  row.calls, seconds_text(row.average), seconds_text(row.least),
                                  seconds_text(row.greatest), row.name)) +
            "\n";
  }
  return text;
}

std::string profile_csv(const std::vector<ProfileRow>& rows) {
  std::string text = "device,group,time_percent,total_seconds,calls,avg_seconds,min_seconds,max_seconds,name\n";
  for (const ProfileRow& row : rows) {
    text += fmt::format("{},{},{},{},{},{},{},{},{}\n", quoted(row.device), quoted(row.group), row.percent, row.total,
                        row.calls, row.average, row.least, row.greatest, quoted(row.name));
  }
  return text;
}

}  // namespace gable::bench
