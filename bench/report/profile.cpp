// See profile.h.
#include "bench/report/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

constexpr double kMarkedPercent = 20;    // alone on a machine, rows have 1 to 10
constexpr std::size_t kFewestCalls = 4;  // that do the same: fewer have no quartile

double quantile(std::vector<double>& values, double share) {
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

/// What calls that do the same took beyond their lower quartile. The first one is left out: it starts threads and finds
/// cold caches on any machine.
double slow_seconds(const std::vector<double>& calls) {
  if (calls.size() < kFewestCalls + 1) return 0;
  std::vector<double> warm(calls.begin() + 1, calls.end());
  const double usual = quantile(warm, 0.25);
  double slow = 0;
  for (const double seconds : warm) slow += std::max(0.0, seconds - usual);
  return slow;
}

/// Calls that do the same: of one case, and of one grid where a case launches a kernel several times.
using Same = std::pair<std::string, std::array<int, 3>>;

Same same_of(const Span& span) { return {span.case_name, span.activity ? span.activity->grid : std::array<int, 3>{}}; }

/// A row while its spans are collected: seconds of its calls.
struct Calls {
  std::string group;
  std::map<Same, std::vector<double>> of;
};

/// Calls of CUDA's API wait for the GPU, and copies have any size: neither should take equal times.
bool takes_equal_times(const Calls& calls, const std::string& name) {
  return calls.group != kApiCalls && !name.starts_with('[');
}

ProfileRow row_of(const std::string& device, const std::string& name, const Calls& calls) {
  std::vector<double> all;
  double slow = 0;
  for (const auto& [same, seconds] : calls.of) {
    all.insert(all.end(), seconds.begin(), seconds.end());
    if (takes_equal_times(calls, name)) slow += slow_seconds(seconds);
  }
  ProfileRow row{.device = device, .group = calls.group, .name = name};
  for (const double seconds : all) row.total += seconds;
  row.calls = static_cast<int>(all.size());
  row.average = row.total / row.calls;
  row.least = *std::min_element(all.begin(), all.end());
  row.greatest = *std::max_element(all.begin(), all.end());
  row.median = quantile(all, 0.5);
  row.slow_percent = row.total > 0 ? 100 * slow / row.total : 0;
  return row;
}

bool is_marked(const ProfileRow& row) { return row.slow_percent > kMarkedPercent; }

/// The sentences for the marks.
std::string marks(const std::vector<ProfileRow>& rows) {
  std::string text;
  for (const ProfileRow& row : rows) {
    if (!is_marked(row)) continue;
    text += printable(fmt::format("! {} on {}: {:.0f} % of its time is what slow calls took beyond the usual ones",
                                  row.name, row.device, row.slow_percent)) +
            "\n";
  }
  if (text.empty()) return text;
  return "\nOther programs may have used this machine: measure these rows again, or take T from gable bench\n" + text;
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
    std::map<std::pair<int, std::string>, Calls> rows;
    std::map<int, double> totals;
    for (const Span& span : spans) {
      if (span.device != device) continue;
      Calls& calls = rows[{rank_of(span.group), span.name}];
      calls.group = span.group;
      calls.of[same_of(span)].push_back(span.seconds);
      totals[rank_of(span.group)] += span.seconds;
    }
    const auto first = static_cast<std::ptrdiff_t>(all.size());
    for (const auto& [key, calls] : rows) {
      all.push_back(row_of(device, key.second, calls));
      all.back().percent = totals[key.first] > 0 ? 100 * all.back().total / totals[key.first] : 0;
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
      text += fmt::format("{}{} on {}\n{:>8} {:>9} {:>7} {:>9} {:>9} {:>9} {:>9}  {}\n", text.empty() ? "" : "\n",
                          row.group, row.device, "Time(%)", "Total", "Calls", "Avg", "Min", "Median", "Max", "Name");
    }
    former = &row;
    text += printable(fmt::format("{:>8.2f} {:>9} {:>7} {:>9} {:>9} {:>9} {:>9}  {}{}", row.percent,
                                  seconds_text(row.total), row.calls, seconds_text(row.average),
                                  seconds_text(row.least), seconds_text(row.median), seconds_text(row.greatest),
                                  is_marked(row) ? "! " : "", row.name)) +
            "\n";
  }
  return text + marks(rows);
}

std::string profile_csv(const std::vector<ProfileRow>& rows) {
  std::string text =
      "device,group,time_percent,total_seconds,calls,avg_seconds,min_seconds,max_seconds,name,median_seconds,"
      "slow_percent\n";
  for (const ProfileRow& row : rows) {
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", quoted(row.device), quoted(row.group), row.percent, row.total,
                    row.calls, row.average, row.least, row.greatest, quoted(row.name), row.median, row.slow_percent);
  }
  return text;
}

}  // namespace gable::bench
