// The descriptor's grammar and defaulting rules (problem.h). Values are capped at 10^9, so that no product of two of
// them overflows 64 bits.
#include "bench/workloads/problem.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <istream>
#include <sstream>
#include <utility>

#include "bench/common/files.h"
#include "bench/common/text.h"

namespace gable::bench {
namespace {

constexpr std::int64_t kMaxValue = 1'000'000'000;

[[noreturn]] void fail(std::string_view text, std::size_t column, const std::string& message) {
  throw Error(ErrorCode::invalid_argument, fmt::format("problem '{}', column {}: {}", text, column + 1, message));
}

[[noreturn]] void refuse(std::string_view text, const std::string& message) {
  throw Error(ErrorCode::unsupported, fmt::format("problem '{}': {}", text, message));
}

/// One spatial dimension as the user wrote it. The defaulting rules fill unset values.
struct Axis {
  std::optional<std::int64_t> input, output, kernel, stride, padding, dilation;

  /// benchdnn's test for an absent dimension: values that equal their default count as not given.
  bool absent() const {
    return input.value_or(0) == 0 && output.value_or(0) == 0 && kernel.value_or(0) == 0 && stride.value_or(1) == 1 &&
           padding.value_or(0) == 0 && dilation.value_or(0) == 0;
  }
};

/// A dimension after the defaulting rules.
struct Resolved {
  std::int64_t input = 1, output = 1, kernel = 1, stride = 1, before = 0, after = 0, dilation = 1;
  bool operator==(const Resolved&) const = default;
};

struct Entries {
  std::optional<std::int64_t> g, mb, ic, oc;
  Axis d, h, w;
  std::string name;
  std::int64_t count = 1;

  std::optional<std::int64_t>* find(std::string_view key) {
    struct Row {
      std::string_view key;
      std::optional<std::int64_t>* value;
    };
    const std::array<Row, 22> rows{{{"g", &g},           {"mb", &mb},        {"ic", &ic},        {"oc", &oc},
                                    {"id", &d.input},    {"ih", &h.input},   {"iw", &w.input},   {"od", &d.output},
                                    {"oh", &h.output},   {"ow", &w.output},  {"kd", &d.kernel},  {"kh", &h.kernel},
                                    {"kw", &w.kernel},   {"sd", &d.stride},  {"sh", &h.stride},  {"sw", &w.stride},
                                    {"pd", &d.padding},  {"ph", &h.padding}, {"pw", &w.padding}, {"dd", &d.dilation},
                                    {"dh", &h.dilation}, {"dw", &w.dilation}}};
    const auto* row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.key == key; });
    return row == rows.end() ? nullptr : row->value;
  }
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

/// All bytes of it, for error messages. `text` is not empty.
std::string_view first_character(std::string_view text) {
  std::size_t end = 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;  // UTF-8 goes on
  return text.substr(0, end);
}

/// The text from `at` to the next entry, for error messages.
std::string_view word_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && text[end] != '_' && !is_lower(text[end])) ++end;
  return text.substr(at, end - at);
}

/// Reads the number at `at` and moves `at` past it.
std::int64_t parse_value(std::string_view text, std::string_view key, std::size_t& at) {
  const std::size_t begin = at;
  while (at < text.size() && is_digit(text[at])) ++at;
  if (at == begin) {
    fail(text, begin, fmt::format("'{}' needs a whole number, not '{}'", key, word_at(text, begin)));
  }
  const std::string_view digits = text.substr(begin, at - begin);
  std::int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc())
    fail(text, begin, fmt::format("'{}{}' is too large; at most {}", key, digits, kMaxValue));
  if (value > kMaxValue)
    refuse(text, fmt::format("'{}{}' is too large; at most {} is supported", key, digits, kMaxValue));
  return value;
}

/// n"name*count" or nname*count, to the end of the text.
void parse_name(std::string_view text, std::size_t at, Entries& entries) {
  std::string_view name = text.substr(at);
  if (!name.empty() && name.front() == '"') {
    if (name.size() < 2 || name.find('"', 1) != name.size() - 1) {
      fail(text, at, fmt::format("the name {} must end with its closing quote, and the problem with it", name));
    }
    name = name.substr(1, name.size() - 2);
  }
  const std::size_t star = name.rfind('*');
  if (star != std::string_view::npos && star + 2 < name.size() && name[star + 1] == '-' &&
      std::all_of(name.begin() + static_cast<std::ptrdiff_t>(star) + 2, name.end(), is_digit))
    fail(text, at, fmt::format("the count {} after '*' must be at least 1", name.substr(star + 1)));
  if (star != std::string_view::npos && star + 1 < name.size() &&
      std::all_of(name.begin() + static_cast<std::ptrdiff_t>(star) + 1, name.end(), is_digit)) {
    std::size_t value_at = at + static_cast<std::size_t>(name.data() - text.substr(at).data()) + star + 1;
    entries.count = parse_value(text, "*", value_at);
    if (entries.count < 1) fail(text, value_at - 1, "the count after '*' must be at least 1");
    name = name.substr(0, star);
  }
  entries.name = name;
}

Entries parse_entries(std::string_view text) {
  Entries entries;
  std::size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '_' && at > 0) {
      ++at;
      continue;
    }
    if (text[at] == 'n') {
      parse_name(text, at + 1, entries);
      break;
    }
    const std::size_t begin = at;
    while (at < text.size() && is_lower(text[at])) ++at;
    const std::string_view key = text.substr(begin, at - begin);
    std::optional<std::int64_t>* slot = entries.find(key);
    if (slot == nullptr) {
      const std::string_view word = key.empty() ? first_character(text.substr(begin)) : key;
      fail(text, begin,
           fmt::format("unknown entry '{}'; known are g, mb, ic, oc, {{i,o,k,s,p,d}}{{d,h,w}} and n\"name\"", word));
    }
    const std::int64_t value = parse_value(text, key, at);
    if (slot->value_or(value) != value)
      fail(text, begin, fmt::format("'{0}{1}' contradicts the {0}{2} before it; give one of them", key, value, **slot));
    *slot = value;
  }
  return entries;
}

void require(std::string_view text, const std::optional<std::int64_t>& value, std::string_view key) {
  if (!value) fail(text, text.size(), fmt::format("'{}' is missing", key));
  if (*value == 0) fail(text, text.find(key), fmt::format("'{}0': must be at least 1", key));
}

/// If the output size is given, the padding before is half of the padding that it needs, rounded down.
std::int64_t implied_padding(const Resolved& axis) {
  const std::int64_t span = (axis.kernel - 1) * axis.dilation + 1;
  return std::max<std::int64_t>(0, ((axis.output - 1) * axis.stride - axis.input + span) / 2);
}

Resolved resolve(std::string_view text, const Axis& axis, char letter) {
  const auto key = [&](char kind) { return fmt::format("{}{}", kind, letter); };
  require(text, axis.input, key('i'));
  require(text, axis.kernel, key('k'));
  if (axis.stride == 0) fail(text, text.find(key('s')), fmt::format("'s{}0': must be at least 1", letter));
  Resolved r{.input = *axis.input,
             .kernel = *axis.kernel,
             .stride = axis.stride.value_or(1),
             .before = axis.padding.value_or(0),
             .dilation = axis.dilation.value_or(0) + 1};
  const std::int64_t span = (r.kernel - 1) * r.dilation + 1;
  if (axis.output.value_or(0) == 0) {
    const std::int64_t room = r.input + 2 * r.before - span;
    if (room < 0) {
      fail(text, text.find(key('k')),
           fmt::format("k{0}{1} spans {2} with its dilation, more than i{0}{3} with padding {4} on both sides", letter,
                       r.kernel, span, r.input, r.before));
    }
    r.output = room / r.stride + 1;
  } else {
    r.output = *axis.output;
    if (!axis.padding) r.before = implied_padding(r);
  }
  // Negative if the last window ends before the last rows, which are then not read.
  r.after = (r.output - 1) * r.stride + span - r.input - r.before;
  if (r.after <= -r.stride) {
    refuse(text, fmt::format("o{0}{1} is smaller than the {2} that i{0}{3} gives; cropped outputs are not supported",
                             letter, r.output, (-r.after) / r.stride + r.output, r.input));
  }
  r.after = std::max<std::int64_t>(0, r.after);
  // What follows from the others has the same limit as what is given: a descriptor of it can be read.
  for (const auto& [what, value] : {std::pair{"an output", r.output}, {"a padding", std::max(r.before, r.after)}}) {
    if (value > kMaxValue) {
      refuse(text,
             fmt::format("its sizes along {} mean {} of {}; at most {} is supported", letter, what, value, kMaxValue));
    }
  }
  return r;
}

/// Beyond benchdnn: `ih32iw16kh3` means kw3.
Axis mirrored(const Axis& w, const Axis& h) {
  const auto either = [](const auto& own, const auto& other) { return own ? own : other; };
  return {.input = either(w.input, h.input),
          .output = w.output,
          .kernel = either(w.kernel, h.kernel),
          .stride = either(w.stride, h.stride),
          .padding = either(w.padding, h.padding),
          .dilation = either(w.dilation, h.dilation)};
}

Conv2d to_conv(std::string_view text, const Entries& e) {
  require(text, e.ic, "ic");
  require(text, e.oc, "oc");
  const std::int64_t groups = e.g.value_or(1);
  if (groups == 0) fail(text, text.find('g'), "'g0': must be at least 1");
  if (!e.d.absent()) refuse(text, "3-D convolutions are not supported (an entry for depth is given)");
  if (e.mb == 0) refuse(text, "mb0: empty tensors are not supported");
  if (*e.ic % groups != 0 || *e.oc % groups != 0) {
    fail(text, text.find('g'), fmt::format("g{} must divide both ic{} and oc{}", groups, *e.ic, *e.oc));
  }
  if (e.h.absent() && e.w.absent()) fail(text, text.size(), "no spatial size; give ih and kh, or iw and kw");
  const Resolved h = e.h.absent() ? Resolved{} : resolve(text, e.h, 'h');
  const bool partial = !e.h.absent() && !(e.w.input.value_or(0) > 0 && e.w.kernel.value_or(0) > 0);
  const Resolved w = e.w.absent() ? h : resolve(text, partial ? mirrored(e.w, e.h) : e.w, 'w');
  Conv2d conv;
  conv.input = {e.mb.value_or(2), *e.ic, h.input, w.input};
  conv.weights = {*e.oc, *e.ic / groups, h.kernel, w.kernel};
  conv.stride = {h.stride, w.stride};
  conv.padding = Padding(h.before, w.before, h.after, w.after);
  conv.dilation = {h.dilation, w.dilation};
  conv.groups = groups;
  return conv;
}

Resolved axis_of(const Conv2d& conv, bool height) {
  const std::size_t i = height ? 2 : 3;
  Resolved r{.input = conv.input[i],
             .kernel = conv.weights[i],
             .stride = height ? conv.stride.h : conv.stride.w,
             .before = height ? conv.padding.top : conv.padding.left,
             .after = height ? conv.padding.bottom : conv.padding.right,
             .dilation = height ? conv.dilation.h : conv.dilation.w};
  const std::int64_t span = (r.kernel - 1) * r.dilation + 1;
  r.output = (r.input + r.before + r.after - span) / r.stride + 1;
  return r;
}

/// A list's word: a descriptor, an option, or part of either, with the line it begins on.
struct Word {
  std::size_t line;
  std::string text;
};

/// Cuts one line at white space outside quotes; a word that begins with '#' ends it.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  std::size_t at = 0;
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (true) {
    while (at < line.size() && is_space(line[at])) ++at;
    if (at == line.size() || line[at] == '#') return words;
    const std::size_t begin = at;
    bool quoted = false;
    for (; at < line.size() && (quoted || !is_space(line[at])); ++at) quoted ^= line[at] == '"';
    words.emplace_back(line.substr(begin, at - begin));
  }
}

ListEntry read_entry(const Word& word, const std::string& option) {
  ListEntry entry;
  entry.line = word.line;
  entry.text = word.text;
  if (word.text.starts_with("-")) {
    entry.refusal = fmt::format("'{}' is an option of benchdnn's command; give gable's own options instead", word.text);
    return entry;
  }
  if (!option.empty()) {
    entry.refusal =
        fmt::format("the option '{}' before it on its line changes its meaning and is not supported", option);
    return entry;
  }
  try {
    entry.problem = parse_problem(word.text);
  } catch (const Error& error) {
    entry.refusal = error.what();
    entry.malformed = error.code() == ErrorCode::invalid_argument;
  }
  return entry;
}

}  // namespace

Problem parse_problem(std::string_view descriptor) {
  if (descriptor.empty())
    throw Error(ErrorCode::invalid_argument, "the problem is empty; an example is ic3ih224oc64kh3ph1");
  const Entries entries = parse_entries(descriptor);
  return {.name = entries.name, .count = entries.count, .conv = to_conv(descriptor, entries)};
}

std::string descriptor(const Conv2d& conv) {
  const Resolved h = axis_of(conv, true);
  const Resolved w = axis_of(conv, false);
  const bool square = h == w;
  std::string text;
  const auto put = [&](const char* kind, std::int64_t Resolved::*member, std::int64_t shift = 0) {
    text += fmt::format("{}h{}", kind, h.*member + shift);
    if (!square) text += fmt::format("{}w{}", kind, w.*member + shift);
  };
  if (conv.groups != 1) text += fmt::format("g{}", conv.groups);
  text += fmt::format("mb{}ic{}", conv.input[0], conv.input[1]);
  put("i", &Resolved::input);
  text += fmt::format("oc{}", conv.weights[0]);
  put("o", &Resolved::output);
  put("k", &Resolved::kernel);
  if (h.stride != 1 || w.stride != 1) put("s", &Resolved::stride);
  const bool padded = h.before != 0 || w.before != 0;
  if (padded || implied_padding(h) != 0 || implied_padding(w) != 0) put("p", &Resolved::before);
  if (h.dilation != 1 || w.dilation != 1) put("d", &Resolved::dilation, -1);
  return text;
}

std::string descriptor(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) return descriptor(*conv);
  if (const auto* m = std::get_if<Matmul>(&op)) return fmt::format("{}x{}:{}x{}", m->m, m->k, m->k, m->n);
  if (const auto* add = std::get_if<Add>(&op)) return fmt::format("{0}:{0}", to_string(add->shape));
  if (const auto* t = std::get_if<Transpose>(&op)) return fmt::format("{}x{}", t->rows, t->columns);
  if (const auto* pool = std::get_if<MaxPool>(&op)) return to_string(pool->input);
  if (const auto* f = std::get_if<Activate>(&op)) {
    if (f->function == Function::leaky_relu)
      return fmt::format("{}{}:{}", to_string(f->function), f->slope, to_string(f->shape));
    return fmt::format("{}:{}", to_string(f->function), to_string(f->shape));
  }
  if (const auto* both = std::get_if<Concat>(&op)) return fmt::format("{}:{}", to_string(both->a), to_string(both->b));
  if (const auto* m = std::get_if<Multiply>(&op)) return fmt::format("{}:{}", to_string(m->a), to_string(m->b));
  if (const auto* s = std::get_if<Softmax>(&op)) return fmt::format("{}:{}", to_string(s->shape), s->axis);
  if (const auto* up = std::get_if<Upsample>(&op)) {
    return fmt::format("{}:{}x{}{}{}", to_string(up->input), up->scale.h, up->scale.w,
                       up->interpolation == Interpolation::nearest ? "" : ":",
                       up->interpolation == Interpolation::nearest ? "" : to_string(up->interpolation));
  }
  return to_string(std::get<Reorder>(op).shape);
}

std::string to_string(const Problem& problem) {
  std::string text = descriptor(problem.conv);
  const bool reads_as_one = problem.name.find('*') == std::string::npos;  // a name may end as a count does
  const std::string count = problem.count == 1 && reads_as_one ? "" : fmt::format("*{}", problem.count);
  if (!problem.name.empty() || !count.empty()) text += fmt::format("n\"{}{}\"", problem.name, count);
  return text;
}

namespace {

/// "3" or "3x2" from the whole of `text`.
Extent parse_extent(std::string_view all, std::string_view text) {
  const auto bad = [&]() {
    return Error(ErrorCode::invalid_argument,
                 fmt::format("max-pool '{}': '{}' must be a size like 2 or 3x2, of at least 1 each; a stride follows a "
                             "comma, as in 3x3,2",
                             all, text));
  };
  const auto number = [&](std::string_view part) {
    std::int64_t value = 0;
    const auto result = std::from_chars(part.data(), part.data() + part.size(), value);
    if (result.ec != std::errc() || result.ptr != part.data() + part.size() || value < 1 || value > kMaxValue)
      throw bad();
    return value;
  };
  const std::size_t cross = text.find('x');
  if (cross == std::string_view::npos) return {number(text), number(text)};
  return {number(text.substr(0, cross)), number(text.substr(cross + 1))};
}

}  // namespace

PoolWindow parse_max_pool(std::string_view text) {
  const std::size_t comma = text.find(',');
  const Extent window = parse_extent(text, text.substr(0, comma));
  const Extent stride = comma == std::string_view::npos ? window : parse_extent(text, text.substr(comma + 1));
  return {window, stride};
}

std::string to_string(const PoolWindow& pool) {
  if (!pool) return "none";
  std::string text = fmt::format("{}x{}", pool.window.h, pool.window.w);
  if (pool.stride != pool.window) text += fmt::format(",{}x{}", pool.stride.h, pool.stride.w);
  return text;
}

std::vector<ListEntry> parse_list(std::istream& text) {
  std::vector<ListEntry> entries;
  std::string line;
  std::string option;
  std::optional<Word> joined;
  const auto finish = [&](const Word& word) {
    entries.push_back(read_entry(word, option));
    if (word.text.starts_with("-")) option = word.text;
  };
  for (std::size_t number = 1; std::getline(text, line); ++number) {
    if (!joined) option.clear();
    for (std::string& part : words_of(line)) {
      Word word{number, ""};
      if (joined) word = std::move(*joined);
      joined.reset();
      word.text += part;
      if (word.text.ends_with('\\')) {
        word.text.pop_back();
        joined = std::move(word);
      } else {
        finish(word);
      }
    }
  }
  if (joined) finish(*joined);
  return entries;
}

std::string read_list_text(const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // editors on Windows begin a file with it
  std::string text = read_whole("problem list", path);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (text.find('\0') != std::string::npos) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("problem list '{}': the file is binary, and a list is text; `python3 -m gable.layers` makes "
                    "one from a model in ONNX",
                    printable(path)));
  }
  return text;
}

std::vector<ListEntry> read_list(const std::string& path) {
  std::istringstream text(read_list_text(path));
  return parse_list(text);
}

}  // namespace gable::bench
