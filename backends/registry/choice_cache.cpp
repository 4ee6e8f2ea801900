// See choice_cache.h.
#include "backends/registry/choice_cache.h"

#include <gable/backend.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "backends/registry/log.h"
#include "common/names_in.h"

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
constexpr int kLockTries = 1000;
constexpr std::chrono::milliseconds kLockWait{5};

using std::filesystem::path;

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

std::string error_text() { return std::strerror(errno); }

std::string hex(std::uint64_t value) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) text[i] = kDigits[value & 15];
  return text;
}

/// FNV-1a.
std::uint64_t checksum(std::string_view text) { return packing_key(text); }

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
  return hex(checksum(line)) + "\t" + line;
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
  return line.substr(0, kSumDigits) == hex(checksum(line.substr(kSumDigits + 1)));
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

/// Why a file is not to be trusted; empty: it is.
std::string distrust(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return "it is no regular file";
  if (status.st_uid != geteuid()) return "it belongs to another user";
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "other users may write it";
  if (static_cast<std::uint64_t>(status.st_size) > kMaxBytes) return "it is larger than 4 MiB";
  return "";
}

/// Reads all of a file of at most kMaxBytes. Returns why not; empty: done. A file that is not there has no text.
std::string read_file(const path& file, std::string& text) {
  // O_NONBLOCK: a pipe of that name must not hold the program up.
  const File opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!opened && errno == ELOOP) return "it is a symbolic link";
  if (!opened) return errno == ENOENT || errno == ENOTDIR ? "" : error_text();
  struct stat status {};
  if (fstat(opened.get(), &status) != 0) return error_text();
  if (std::string why = distrust(status); !why.empty()) return why;
  text.resize(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(opened.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_text();
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return "";
}

/// Returns why not; empty: done.
std::string write_file(const path& file, std::string_view text) {
  const File opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!opened) return error_text();
  while (!text.empty()) {
    const ssize_t put = ::write(opened.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return put < 0 ? error_text() : "nothing could be written";
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return "";
}

/// Waits for other processes, but not long: a lost choice is measured again.
bool lock(const File& file) {
  for (int i = 0; i < kLockTries; ++i) {
    if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    std::this_thread::sleep_for(kLockWait);
  }
  return false;
}

/// The environment variable. Empty in a program that runs with the rights of another user.
std::string variable(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? "" : value;
}

bool is_choice_file(const path& file) {
  const std::string name = file.filename().string();
  return name.starts_with("choices-") && (name.ends_with(".txt") || name.ends_with(".tmp"));
}

/// Removes all but the kMaxFiles files that were written last, and the temporary files of killed processes. Called
/// under the lock, so no other process has a .tmp file.
void make_room(const path& folder) {
  std::error_code error;
  std::vector<std::pair<std::filesystem::file_time_type, path>> files;
  for (const std::string& name : names_in(folder)) {
    const path file = folder / name;
    if (!is_choice_file(file)) continue;
    std::error_code unknown;
    if (file.extension() == ".tmp") {
      std::filesystem::remove(file, unknown);
    } else {
      files.emplace_back(std::filesystem::last_write_time(file, unknown), file);
    }
  }
  if (files.size() <= kMaxFiles) return;
  std::sort(files.begin(), files.end());
  for (std::size_t i = 0; i + kMaxFiles < files.size(); ++i) std::filesystem::remove(files[i].second, error);
}

}  // namespace

path choice_folder() {
  const std::string chosen = variable("GABLE_CACHE");
  if (chosen == "off") return {};
  if (!chosen.empty()) {
    if (chosen.front() == '/') return chosen;
    log_word("GABLE_CACHE=" + chosen + ": it must be 'off' or an absolute folder; choices are kept in memory alone");
    return {};
  }
  if (const std::string cache = variable("XDG_CACHE_HOME"); cache.starts_with("/")) return path(cache) / "gable";
  std::error_code ignored;  // a home that does not exist, as a service's, is not made
  if (const std::string home = variable("HOME"); home.starts_with("/") && std::filesystem::is_directory(home, ignored))
    return path(home) / ".cache" / "gable";
  return {};
}

ChoiceCache::ChoiceCache(path folder, std::string identity)
    : folder_(std::move(folder)), identity_(std::move(identity)) {
  for (char& c : identity_) {
    if (c == '\n') c = ' ';
  }
  if (!folder_.empty()) file_ = folder_ / ("choices-" + hex(checksum(identity_)) + ".txt");
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
    if (variable("GABLE_CACHE").empty())
      complain("neither XDG_CACHE_HOME nor HOME is an absolute folder that exists: choices are kept in memory alone");
    return put(std::move(entry));
  }
  try {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    const File locked(::open((folder_ / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    const std::string why = locked ? "" : error_text();
    const bool is_mine = locked && lock(locked);
    guard.lock();
    if (!locked) {
      complain(why + ": choices are kept in memory alone");
    } else if (!is_mine) {
      complain("another process holds its lock: a choice is kept in memory alone");
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
  if (const std::string why = read_file(file_, *whole); !why.empty()) return complain(why + ": it is ignored");
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
  make_room(folder_);
  const path fresh = path(file_).replace_extension(".tmp");
  std::string why = write_file(fresh, text);
  if (why.empty() && rename(fresh.c_str(), file_.c_str()) != 0) why = error_text();
  if (why.empty()) {
    stamp_ = stamp_of(file_);
    return;
  }
  unlink(fresh.c_str());
  complain(why + ": choices are kept in memory alone");
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
