// See kernel_file.h.
#include "perfcounters/program/kernel_file.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace gable::perf {
namespace {

constexpr std::string_view kHeader = "gable kernels 1 ";
constexpr std::size_t kMaxNotes = 100;  // of one file

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\t':
        out += "\\t";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\\':
        out += "\\\\";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// The field's text, with '?' for control characters: it goes to terminals and pages.
std::string plain(std::string_view field) {
  std::string out;
  for (std::size_t i = 0; i < field.size(); ++i) {
    char c = field[i];
    if (c == '\\' && i + 1 < field.size()) c = field[++i] == '\\' ? '\\' : '?';
    const auto code = static_cast<unsigned char>(c);
    out += code < 0x20 || code == 0x7f ? '?' : c;
  }
  return out;
}

std::string number(double value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value);
  return {text, end.ptr};
}

std::string number(std::int64_t value) { return std::to_string(value); }
std::string number(std::uint64_t value) { return std::to_string(value); }

std::string triple(const std::array<int, 3>& values) {
  return std::to_string(values[0]) + "," + std::to_string(values[1]) + "," + std::to_string(values[2]);
}

std::vector<std::string_view> split(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t end = line.find(separator);
    fields.push_back(line.substr(0, end));
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
}

/// True if the whole field is a number that is finite and not negative.
template <typename Number>
bool read_field(std::string_view field, Number& value) {
  Number parsed{};
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), parsed);
  if (error != std::errc{} || end != field.data() + field.size() || !(parsed >= 0)) return false;
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(parsed)) return false;
  }
  value = parsed;
  return true;
}

bool read_field(std::string_view field, std::array<int, 3>& values) {
  const auto parts = split(field, ',');
  return parts.size() == 3 && read_field(parts[0], values[0]) && read_field(parts[1], values[1]) &&
         read_field(parts[2], values[2]);
}

/// Keys that it does not know are those of later versions and are skipped.
bool read_value(std::string_view key, std::string_view value, KernelRecord& record) {
  if (key.starts_with("m:")) {
    double sum = 0;
    if (!read_field(value, sum)) return false;
    record.metrics[plain(key.substr(2))] = sum;
    return true;
  }
  if (key == "calls") return read_field(value, record.times.calls);
  if (key == "seconds") return read_field(value, record.times.seconds);
  if (key == "median") return read_field(value, record.times.median);
  if (key == "q1") return read_field(value, record.times.q1);
  if (key == "q3") return read_field(value, record.times.q3);
  if (key == "fastest") return read_field(value, record.times.fastest);
  if (key == "slowest") return read_field(value, record.times.slowest);
  if (key == "counted") return read_field(value, record.counted_calls);
  if (key == "arguments") return read_field(value, record.arguments);
  if (key == "graph") return read_field(value, record.graph);
  if (key == "graph_calls") return read_field(value, record.graph_calls);
  if (key == "least") return read_field(value, record.least_instructions);
  if (key == "most") return read_field(value, record.most_instructions);
  if (key == "reason") record.reason = plain(value);
  return true;
}

bool read_kernel(const std::vector<std::string_view>& fields, KernelRecord& record) {
  if (fields.size() < 7) return false;
  if (!read_field(fields[1], record.gpu) || !read_field(fields[5], record.grid) || !read_field(fields[6], record.block))
    return false;
  record.gpu_name = plain(fields[2]);
  record.name = plain(fields[3]);
  record.region = plain(fields[4]);
  for (std::size_t i = 7; i < fields.size(); ++i) {
    const std::size_t equals = fields[i].find('=');
    if (equals == std::string_view::npos) return false;
    if (!read_value(fields[i].substr(0, equals), fields[i].substr(equals + 1), record)) return false;
  }
  return true;
}

/// A signed code; 0 if it is none.
int code_of(std::string_view field) {
  int code = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), code);
  return error == std::errc{} && end == field.data() + field.size() ? code : 0;
}

bool read_line(std::string_view line, KernelFile& file) {
  const std::vector<std::string_view> fields = split(line, '\t');
  if (fields[0] == "kernel") {
    KernelRecord record;
    record.pid = file.pid;
    if (!read_kernel(fields, record)) return false;
    file.kernels.push_back(std::move(record));
    return true;
  }
  if (fields[0] == "failure" && fields.size() == 3) {
    file.failures.push_back({code_of(fields[1]), plain(fields[2])});
    return true;
  }
  if (fields[0] == "note" && fields.size() == 2) {
    if (file.notes.size() < kMaxNotes) file.notes.push_back(plain(fields[1]));
    return true;
  }
  if (fields[0] == "stopped" && fields.size() == 1) {
    file.stopped = true;
    return true;
  }
  if (fields[0] == "end" && fields.size() == 2) {
    file.complete = true;
    file.done = fields[1] == "done";
    return true;
  }
  return false;
}

void append(std::string& line, std::string_view key, const std::string& value) {
  line += '\t';
  line += key;
  line += '=';
  line += value;
}

std::string line_of(const KernelRecord& record) {
  std::string line = "kernel\t" + std::to_string(record.gpu) + "\t" + escaped(record.gpu_name) + "\t" +
                     escaped(record.name) + "\t" + escaped(record.region) + "\t" + triple(record.grid) + "\t" +
                     triple(record.block);
  if (record.times.calls > 0) {
    append(line, "calls", number(record.times.calls));
    append(line, "seconds", number(record.times.seconds));
    append(line, "median", number(record.times.median));
    append(line, "q1", number(record.times.q1));
    append(line, "q3", number(record.times.q3));
    append(line, "fastest", number(record.times.fastest));
    append(line, "slowest", number(record.times.slowest));
  }
  if (record.arguments != 0) append(line, "arguments", number(record.arguments));
  if (record.graph != 0) append(line, "graph", number(record.graph));
  if (record.graph_calls > 0) append(line, "graph_calls", number(record.graph_calls));
  if (record.counted_calls > 0) append(line, "counted", number(record.counted_calls));
  if (record.most_instructions > 0) {
    append(line, "least", number(record.least_instructions));
    append(line, "most", number(record.most_instructions));
  }
  for (const auto& [metric, sum] : record.metrics) {
    if (std::isfinite(sum) && sum >= 0) append(line, "m:" + escaped(metric), number(sum));
  }
  if (!record.reason.empty()) append(line, "reason", escaped(record.reason));
  return line + "\n";
}

}  // namespace

std::string to_text(const KernelFile& file) {
  std::string text = std::string(kHeader) + std::to_string(file.pid) + "\n";
  for (const KernelRecord& record : file.kernels) text += line_of(record);
  for (const KernelFailure& failure : file.failures) {
    text += "failure\t" + std::to_string(failure.code) + "\t" + escaped(failure.what) + "\n";
  }
  for (const std::string& note : file.notes) text += "note\t" + escaped(note) + "\n";
  if (file.stopped) text += "stopped\n";
  return text + (file.done ? "end\tdone\n" : "end\trunning\n");
}

KernelFile parse_kernel_file(std::string_view text, const std::string& name) {
  KernelFile file;
  const std::size_t first = text.find('\n');
  const std::string_view header = text.substr(0, first);
  if (!header.starts_with(kHeader) || !read_field(header.substr(kHeader.size()), file.pid)) {
    file.notes.push_back(name + ": is no list of kernels of version 1, and was left out");
    return file;
  }
  std::size_t unread = 0;
  std::string_view rest = first == std::string_view::npos ? std::string_view{} : text.substr(first + 1);
  while (!rest.empty() && !file.complete) {
    const std::size_t end = rest.find('\n');
    // A line without its end is cut off: its last number may be.
    if (end == std::string_view::npos) break;
    if (!read_line(rest.substr(0, end), file)) ++unread;
    rest.remove_prefix(end + 1);
  }
  if (unread > 0) file.notes.push_back(name + ": " + std::to_string(unread) + " lines can't be read");
  if (!file.complete) file.notes.push_back(name + ": is cut off; what stands before the cut was kept");
  return file;
}

}  // namespace gable::perf
