// See choice_cache.h.
#include "backends/registry/choice_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>

#include "backends/registry/log.h"
#include "common/kept_file.h"

namespace gable {
namespace {

constexpr std::string_view kMagic = "gable choices 2\n";
constexpr std::size_t kMaxBytes = std::size_t{4} << 20;  // of a file
constexpr std::size_t kMaxEntries = 8192;                // of a file
constexpr std::size_t kMaxCandidates = 64;               // of an op
constexpr std::size_t kMaxFiles = 32;                    // of a folder
constexpr std::size_t kMaxText = 300;                    // characters of a name or a refusal
constexpr std::size_t kSumDigits = 16;                   // of a line's checksum, which a tab follows
constexpr double kMaxSeconds = 1e6;
constexpr std::chrono::seconds kFresh{1};  // a known op is not looked up in the file again for this long

using std::filesystem::path;

/// Fields are separated by tabs, entries by newlines.
std::string plain(std::string_view text) {
  std::string result(text.substr(0, kMaxText));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return result;
}

void append(std::string& line, std::optional<double> value) {
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), value.value_or(0));
  line.append("\t").append(digits, error == std::errc() ? end : digits);
}

/// As in the file, without the newline.
std::string line_of(const std::string& op, const std::vector<Candidate>& candidates) {
  std::string line = op;
  for (const Candidate& one : candidates) {
    line += "\t" + plain(one.device) + "\t" + plain(one.kernel);
    append(line, one.predicted);
    append(line, one.measured);
    append(line, one.copies);
    line += "\t" + plain(one.refusal) + "\t" + plain(one.program);
  }
  return kept::checksum(line) + "\t" + line;
}

/// The op of a line, which may be damaged; empty if there is none.
std::string_view op_of(std::string_view line) {
  if (line.size() <= kSumDigits || line[kSumDigits] != '\t') return {};
  const std::string_view rest = line.substr(kSumDigits + 1);
  const std::size_t end = rest.find('\t');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Reads a time into `seconds`; 0 means none. False if the text is no time.
bool parse(std::string_view text, std::optional<double>& value) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (!(number >= 0 && number < kMaxSeconds)) return false;
  if (number > 0) value = number;
  return true;
}

std::optional<Candidate> candidate_of(const std::string_view* fields) {
  Candidate one{.device = std::string(fields[0]),
                .kernel = std::string(fields[1]),
                .refusal = std::string(fields[5]),
                .program = std::string(fields[6])};
  std::optional<double> copies;
  if (!parse(fields[2], one.predicted) || !parse(fields[3], one.measured) || !parse(fields[4], copies)) return {};
  one.copies = copies.value_or(0);
  return one;
}

bool has_right_checksum(std::string_view line) {
  return line.substr(0, kSumDigits) == kept::checksum(line.substr(kSumDigits + 1));
}

/// Null without candidates.
std::shared_ptr<const Ranking> measured_ranking(std::vector<Candidate> candidates) {
  if (candidates.empty()) return nullptr;
  return std::make_shared<const Ranking>(
      Ranking{.candidates = std::move(candidates), .source = ChoiceSource::measured});
}

/// The candidates, seven fields each, of a line in which op_of() finds an op. Null if the fields make no sense.
std::shared_ptr<const Ranking> ranking_of(std::string_view line) {
  constexpr std::size_t kEach = 7;
  const std::vector<std::string_view> fields = split(line.substr(kSumDigits + 1), '\t');
  const std::size_t count = (fields.size() - 1) / kEach;
  if (fields.size() != 1 + count * kEach || count > kMaxCandidates) return nullptr;
  std::vector<Candidate> all;
  all.reserve(count);
  for (std::size_t i = 1; i < fields.size(); i += kEach) {
    std::optional<Candidate> one = candidate_of(&fields[i]);
    if (!one) return nullptr;
    all.push_back(std::move(*one));
  }
  return measured_ranking(std::move(all));
}

}  // namespace

path choice_folder() {
  const kept::Folder folder = kept::folder();
  if (!folder.wrong.empty()) log_word(folder.wrong + "; choices are kept in memory alone");
  return folder.path;
}

ChoiceCache::ChoiceCache(path folder, std::string identity)
    : folder_(std::move(folder)), identity_(std::move(identity)) {
  for (char& c : identity_) {
    if (c == '\n') c = ' ';
  }
  if (!folder_.empty()) file_ = folder_ / ("choices-" + kept::checksum(identity_) + ".txt");
}

std::shared_ptr<const Ranking> ChoiceCache::find(const std::string& op) {
  const std::lock_guard guard(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (!file_.empty() && (!by_op_.contains(op) || now - looked_ > kFresh)) {
    looked_ = now;
    if (!(stamp_of(file_) == stamp_)) read();
  }
  drop_damaged(op);
  const auto found = by_op_.find(op);
  return found == by_op_.end() ? nullptr : found->second->ranking;
}

void ChoiceCache::store(const std::string& op, const Ranking& ranking) {
  std::vector<Candidate> candidates = ranking.candidates;
  if (candidates.size() > kMaxCandidates) candidates.resize(kMaxCandidates);
  const auto line = std::make_shared<const std::string>(line_of(op, candidates));
  Entry entry{line, *line, measured_ranking(std::move(candidates))};
  std::unique_lock guard(mutex_, std::defer_lock);  // other threads find() while this one waits for the file's lock
  if (file_.empty()) {
    guard.lock();
    // No message: either the user turned the cache off, or choice_folder() has already logged a relative path.
    if (kept::variable("GABLE_CACHE").empty())
      complain("neither XDG_CACHE_HOME nor HOME is an absolute folder that exists: choices are kept in memory alone");
    return put(std::move(entry));
  }
  try {
    const kept::Lock lock(folder_);
    guard.lock();
    if (!lock.wrong().empty()) {
      complain(lock.wrong() + ": choices are kept in memory alone");
    } else {
      read();
      drop_damaged(op);
      put(std::move(entry));
      return write();
    }
  } catch (const std::exception& failure) {
    if (!guard.owns_lock()) guard.lock();
    complain(std::string(failure.what()) + ": choices are kept in memory alone");
  }
  put(std::move(entry));
}

ChoiceCache::Stamp ChoiceCache::stamp_of(const path& file) {
  struct stat status {};
  if (lstat(file.c_str(), &status) != 0) return {};
  return {.inode = status.st_ino,
          .seconds = status.st_mtim.tv_sec,
          .nanoseconds = status.st_mtim.tv_nsec,
          .bytes = status.st_size};
}

/// Adds the file's entries to those in memory.
void ChoiceCache::read() {
  stamp_ = stamp_of(file_);
  const auto whole = std::make_shared<std::string>();
  if (const std::string why = kept::read(file_, kMaxBytes, *whole); !why.empty())
    return complain(why + ": it is ignored");
  const std::string_view text = *whole;
  if (text.empty()) return;
  const std::string begin = std::string(kMagic) + identity_ + "\n";
  if (!text.starts_with(begin)) return complain("it is no cache of this gable and these devices: it is ignored");
  std::size_t damaged = 0;
  for (std::string_view rest = text.substr(begin.size()); !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    Entry entry{whole, line};
    const auto known = by_op_.find(op_of(line));
    if (known != by_op_.end() && known->second->line == line) entry.ranking = known->second->ranking;
    // A damaged line must not replace a whole line of the same op.
    const bool is_usable = known == by_op_.end() ? !op_of(line).empty() : is_whole(entry);
    if (is_usable) {
      put(std::move(entry));
    } else {
      ++damaged;
    }
  }
  complain_of_damaged(damaged);
}

/// Whether the entry's line has its checksum and makes sense. Lines are parsed when they are needed, since a process
/// needs few of them.
bool ChoiceCache::is_whole(Entry& entry) {
  if (entry.ranking == nullptr && has_right_checksum(entry.line)) entry.ranking = ranking_of(entry.line);
  return entry.ranking != nullptr;
}

void ChoiceCache::drop_damaged(const std::string& op) {
  const auto found = by_op_.find(op);
  if (found == by_op_.end() || is_whole(*found->second)) return;
  const auto entry = found->second;
  by_op_.erase(found);
  entries_.erase(entry);
  complain_of_damaged(1);
}

/// The text of the file, oldest entry first. The oldest entries are left out if there is no room.
std::vector<std::string_view> ChoiceCache::newest_lines(std::size_t room) {
  std::vector<std::string_view> lines;
  std::size_t damaged = 0;
  for (auto entry = entries_.rbegin(); entry != entries_.rend() && entry->line.size() < room; ++entry) {
    if (is_whole(*entry)) {
      room -= entry->line.size() + 1;
      lines.push_back(entry->line);
    } else {
      ++damaged;
    }
  }
  complain_of_damaged(damaged);
  std::reverse(lines.begin(), lines.end());
  return lines;
}

/// Replaces the file by the entries in memory. Called under the lock.
void ChoiceCache::write() {
  std::string text = std::string(kMagic) + identity_ + "\n";
  for (const std::string_view line : newest_lines(kMaxBytes - text.size())) text.append(line).append("\n");
  kept::drop_oldest(file_, "choices-", kMaxFiles);
  const std::string why = kept::replace(file_, text);
  if (!why.empty()) return complain(why + ": choices are kept in memory alone");
  stamp_ = stamp_of(file_);
}

void ChoiceCache::put(Entry entry) {
  std::list<Entry> one;
  one.push_back(std::move(entry));
  const std::string_view op = op_of(one.front().line);
  const auto [at, is_new] = by_op_.try_emplace(op, one.begin());
  // Nothing has been changed so far, and nothing allocates from here on.
  if (!is_new) {
    const auto old = at->second;
    auto node = by_op_.extract(at);
    node.key() = op;
    node.mapped() = one.begin();
    by_op_.insert(std::move(node));
    entries_.erase(old);
  }
  entries_.splice(entries_.end(), one);
  if (entries_.size() > kMaxEntries) {
    by_op_.erase(op_of(entries_.front().line));
    entries_.pop_front();
  }
}

void ChoiceCache::complain_of_damaged(std::size_t entries) {
  if (entries > 0)
    complain(entries == 1 ? "a damaged entry is ignored" : std::to_string(entries) + " damaged entries are ignored");
}

/// Each word once in a row.
void ChoiceCache::complain(const std::string& what) {
  if (what == last_word_) return;
  last_word_ = what;
  log_word("cache of choices" + (file_.empty() ? "" : " " + file_.string()) + ": " + what);
}

}  // namespace gable
