// See calibration_cache.h. A file is
//   gable calibration 1
//   IDENTITY
//   CHECKSUM<tab>METRIC<tab>READING<tab>NAME OF THE KNOWN WORK
// with a line of the last kind for each reading, whose checksum is of what follows its tab.
#include "perfcounters/sources/calibration_cache.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "common/kept_file.h"
#include "common/number.h"

namespace gable::perf {
namespace {

constexpr std::string_view kMagic = "gable calibration 1\n";
constexpr std::size_t kMaxBytes = std::size_t{1} << 20;  // of a file
constexpr std::size_t kMaxFiles = 32;                    // of a folder
constexpr std::size_t kSumDigits = 16;                   // of a checksum
constexpr int kExactDigits = 17;                         // of a double
constexpr std::array kMetrics{Metric::flop, Metric::l1_bytes, Metric::l2_bytes, Metric::l3_bytes, Metric::dram_bytes};

std::string named(const std::filesystem::path& file) { return "kept calibration " + file.string() + ": "; }

std::string first_lines(const std::string& identity) { return std::string(kMagic) + identity + "\n"; }

/// The part of `text` before the separator; `text` begins behind it afterwards.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

std::optional<Metric> metric_of(std::string_view name) {
  for (const Metric metric : kMetrics)
    if (name == to_string(metric)) return metric;
  return std::nullopt;
}

/// False if the line is damaged.
bool add_line(std::string_view line, KnownReadings& readings) {
  const std::string_view sum = take(line, '\t');
  if (sum.size() != kSumDigits || sum != kept::checksum(line)) return false;
  const std::optional<Metric> metric = metric_of(take(line, '\t'));
  const std::string_view number = take(line, '\t');
  double value = 0;
  if (!metric || parse_number(number, value) != number.size() || !std::isfinite(value) || line.empty()) return false;
  readings[{std::string(line), *metric}] = value;
  return true;
}

std::string text_of(const std::string& identity, const KnownReadings& readings) {
  std::string text = first_lines(identity);
  for (const auto& [what, value] : readings) {
    const std::string line =
        std::string(to_string(what.second)) + "\t" + short_number(value, kExactDigits) + "\t" + what.first;
    text += kept::checksum(line) + "\t" + line + "\n";
  }
  return text;
}

}  // namespace

CalibrationCache CalibrationCache::of_user() {
  const kept::Folder folder = kept::folder();
  CalibrationCache cache{folder.path};
  if (!folder.wrong.empty()) cache.complain(folder.wrong + "; the next process calibrates again");
  return cache;
}

std::filesystem::path CalibrationCache::file_of(const std::string& identity) const {
  return folder_ / ("calibration-" + kept::checksum(identity) + ".txt");
}

KnownReadings CalibrationCache::find(const std::string& identity) {
  if (!keeps() || identity.empty()) return {};
  const std::filesystem::path file = file_of(identity);
  std::string text;
  if (const std::string why = kept::read(file, kMaxBytes, text); !why.empty()) {
    complain(named(file) + why + ": it is ignored");
    return {};
  }
  if (text.empty()) return {};
  const std::string begin = first_lines(identity);
  KnownReadings readings;
  bool is_whole = text.starts_with(begin);
  std::string_view lines = std::string_view(text).substr(std::min(begin.size(), text.size()));
  while (is_whole && !lines.empty()) is_whole = add_line(take(lines, '\n'), readings);
  if (is_whole) return readings;
  complain(named(file) + "it is damaged and ignored");
  return {};
}

void CalibrationCache::store(const std::string& identity, const KnownReadings& readings) {
  if (!keeps() || identity.empty() || readings.empty()) return;
  const std::filesystem::path file = file_of(identity);
  const kept::Lock lock(folder_);
  std::string why = lock.wrong();
  if (why.empty()) {
    KnownReadings all = readings;
    all.merge(find(identity));  // of other processes; new readings win
    kept::drop_oldest(file, "calibration-", kMaxFiles);
    why = kept::replace(file, text_of(identity, all));
  }
  if (!why.empty()) complain(named(file) + why + ": the next process calibrates again");
}

void CalibrationCache::complain(const std::string& word) {
  if (std::find(words_.begin(), words_.end(), word) == words_.end()) words_.push_back(word);
}

}  // namespace gable::perf
