// See callgrind_profile.h.
#include "perfcounters/sources/callgrind_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <istream>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace gable::perf {
namespace {

constexpr std::string_view kTrigger = "desc: Trigger: ";
constexpr std::string_view kClientRequest = "Client Request: ";
constexpr std::size_t kLongestLine = std::size_t{1} << 20;  // names of C++ functions have tens of kilobytes
constexpr std::size_t kMaxColumns = 64;

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

/// The next word of `text`, which is then what follows it; empty at the end.
std::string_view next_word(std::string_view& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) {
    text = {};
    return {};
  }
  const std::size_t end = std::min(text.find_first_of(" \t\r", begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return word;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::string_view word = next_word(text); !word.empty(); word = next_word(text)) words.emplace_back(word);
  return words;
}

/// Decimal, or hexadecimal after "0x".
std::optional<std::uint64_t> number_of(std::string_view word) {
  int base = 10;
  if (starts_with(word, "0x")) {
    word.remove_prefix(2);
    base = 16;
  }
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

/// Reads one text. Names and the row before are the text's own, so every text has a reader of its own.
class Reader {
 public:
  Reader(const std::string& name, CallgrindProfile& profile) : name_(name), profile_(profile) {}

  void read(std::istream& text) {
    for (std::string line; std::getline(text, line);) {
      ++line_number_;
      if (line.size() > kLongestLine) fail(fmt::format("has {} characters", line.size()));
      read_line(line);
    }
    if (text.bad()) throw std::runtime_error(fmt::format("{}: {}", name_, std::strerror(errno)));
    if (line_number_ == 0 || !has_events_)
      throw std::invalid_argument(fmt::format("{}: no callgrind profile: it has no line 'events:'", name_));
    if (inside_)
      throw std::invalid_argument(
          fmt::format("{}: cut off after line {}: its last dump has no line 'totals:'", name_, line_number_));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument(fmt::format("{}: line {} of the callgrind profile {}", name_, line_number_, what));
  }

  void read_line(std::string_view line) {
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.front() == '#') return;
    const char first = line.front();
    if ((first >= '0' && first <= '9') || first == '+' || first == '-' || first == '*') return read_row(line);
    const std::size_t sign = line.find_first_of("=:");
    if (sign == std::string_view::npos) fail(fmt::format("is neither a row nor a keyword: '{}'", line.substr(0, 40)));
    if (line[sign] == ':') return read_header(line, line.substr(0, sign), line.substr(sign + 1));
    read_name(line.substr(0, sign), line.substr(sign + 1));
  }

  void read_header(std::string_view line, std::string_view key, std::string_view value) {
    if (key == "events") {
      events_ = words_of(value);
      if (events_.empty() || events_.size() > kMaxColumns) fail("names no events, or too many");
      execution_column_ = events_.size();
      for (std::size_t i = 0; i < events_.size(); ++i)
        if (events_[i] == "Ir") execution_column_ = i;
      has_events_ = true;
      begin_dump();
    } else if (key == "positions") {
      positions_ = words_of(value);
      if (positions_.empty() || positions_.size() > 2) fail("must name one or two positions: 'instr', 'line' or both");
    } else if (key == "part") {
      if (inside_) fail("begins a dump, but the one before has no line 'totals:'");
      label_.clear();
    } else if (starts_with(line, kTrigger)) {
      const std::string_view trigger = line.substr(kTrigger.size());
      label_ = starts_with(trigger, kClientRequest) ? trigger.substr(kClientRequest.size()) : std::string_view{};
    } else if (key == "totals") {
      end_dump(value);
    }
    // All others ("summary", "cmd", "pid", …) say nothing that is needed here.
  }

  void begin_dump() {
    if (inside_) fail("begins a dump, but the one before has no line 'totals:'");
    inside_ = true;
    sums_.assign(events_.size(), 0);
    object_ = nullptr;
    object_name_.clear();
  }

  void end_dump(std::string_view value) {
    if (!inside_) fail("ends a dump that has not begun: there is no line 'events:' before it");
    LabelledProfile& dump = profile_[label_];
    ++dump.dumps;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const std::string_view word = next_word(value);  // empty: callgrind leaves trailing zeros out
      const std::optional<std::uint64_t> total = word.empty() ? 0 : number_of(word);
      if (!total) fail(fmt::format("has '{}' where a total of {} belongs", word, events_[i]));
      if (*total != sums_[i])
        fail(fmt::format("says {} = {}, but the rows of that dump add up to {}", events_[i], *total, sums_[i]));
      dump.totals[events_[i]] += static_cast<double>(*total);
    }
    inside_ = false;
    label_.clear();
  }

  void read_name(std::string_view key, std::string_view value) {
    if (key == "ob" || key == "cob") {
      const std::string& object = object_of(value);
      if (key == "ob" && object != object_name_) {
        object_name_ = object;
        object_ = nullptr;
      }
    } else if (key == "calls" || key == "jump" || key == "jcnd") {
      // A call's inclusive cost follows. A jump is followed by a row that has a position and no costs.
      skip_costs_ = true;
    }
    // Functions and source files ("fn", "fl", "fi", "fe", "cfn", "cfi", "cfl") are not needed.
  }

  /// The object's name from "(3) /path", "(3)" or, with --compress-strings=no, "/path".
  const std::string& object_of(std::string_view text) {
    if (text.empty() || text.front() != '(') return objects_["=" + std::string(text)] = text;
    const std::size_t end = text.find(')');
    if (end == std::string_view::npos) fail(fmt::format("has a name without ')': '{}'", text.substr(0, 40)));
    std::string& name = objects_[std::string(text.substr(0, end))];
    if (end + 2 < text.size()) name = text.substr(end + 2);
    if (name.empty()) fail(fmt::format("uses the name '{}' before it is defined", text.substr(0, end + 1)));
    return name;
  }

  /// Follows the position in its column.
  std::uint64_t position_of(std::string_view word, std::uint64_t before) const {
    if (word == "*") return before;
    const char sign = word.empty() ? ' ' : word.front();
    const bool relative = sign == '+' || sign == '-';
    const std::optional<std::uint64_t> number = number_of(relative ? word.substr(1) : word);
    if (!number) fail(fmt::format("has no position where one belongs: '{}'", word.substr(0, 40)));
    if (!relative) return *number;
    return sign == '+' ? before + *number : before - *number;
  }

  void read_row(std::string_view line) {
    if (!inside_) fail("is a row of costs, but there is no line 'events:' before it");
    std::string_view rest = line;
    for (std::size_t i = 0; i < positions_.size(); ++i) position_[i] = position_of(next_word(rest), position_[i]);
    if (skip_costs_) {
      skip_costs_ = false;
      return;
    }
    std::uint64_t executed = 0;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const std::string_view word = next_word(rest);
      if (word.empty()) break;
      const std::optional<std::uint64_t> cost = number_of(word);
      if (!cost) fail(fmt::format("has '{}' where a cost of {} belongs", word.substr(0, 40), events_[i]));
      sums_[i] += *cost;
      if (i == execution_column_) executed = *cost;
    }
    if (!next_word(rest).empty()) fail(fmt::format("has more costs than the {} events", events_.size()));
    if (executed > 0 && positions_.front() == "instr") executions()[position_.front()] += executed;
  }

  std::unordered_map<std::uint64_t, std::uint64_t>& executions() {
    if (object_ == nullptr) {
      if (object_name_.empty()) fail("is a row of costs of no object: there is no line 'ob=' before it");
      object_ = &profile_[label_].executions[object_name_];
    }
    return *object_;
  }

  const std::string& name_;
  CallgrindProfile& profile_;
  std::size_t line_number_ = 0;
  bool has_events_ = false;
  bool inside_ = false;      // between "events:" and "totals:"
  bool skip_costs_ = false;  // the next row is no cost of its own
  std::string label_;
  std::vector<std::string> events_;
  std::vector<std::string> positions_{"line"};  // what callgrind means without "positions:"
  std::size_t execution_column_ = 0;
  std::vector<std::uint64_t> sums_;
  std::array<std::uint64_t, 2> position_{};
  std::unordered_map<std::string, std::string> objects_;
  std::string object_name_;
  std::unordered_map<std::uint64_t, std::uint64_t>* object_ = nullptr;  // the current object's counts
};

}  // namespace

void add_callgrind_profile(std::istream& text, const std::string& name, CallgrindProfile& profile) {
  Reader(name, profile).read(text);
}

void add_callgrind_profile(const std::string& file, CallgrindProfile& profile) {
  std::ifstream text(file);
  if (!text) throw std::runtime_error(fmt::format("{}: {}", file, std::strerror(errno)));
  add_callgrind_profile(text, file, profile);
}

}  // namespace gable::perf
