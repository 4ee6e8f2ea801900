// See console.h.
#include "bench/console/console.h"

#include <fmt/format.h>
#include <gable/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "bench/common/files.h"
#include "bench/common/text.h"
#include "bench/record/study_json.h"

namespace gable::bench {
namespace {

constexpr std::size_t kMaxProgressCharacters = 55;  // beside numbers and seconds
constexpr std::chrono::seconds kBetweenLines{10};  // of progress where it is no terminal that replaces each by the next

/// Empty, or why not all of the text is out.
std::string write_out(const std::string& text, std::FILE* out) {
  errno = 0;
  if (std::fputs(text.c_str(), out) >= 0 && std::fflush(out) == 0) return "";
  return fmt::format("standard {}: {}; what was to be written there is lost", out == stdout ? "output" : "error",
                     std::generic_category().message(errno));
}

}  // namespace

Console::Console(std::string json_target)
    : json_target_(std::move(json_target)), results_to_error_(json_target_ == "-"), terminal_(::isatty(2) == 1) {}

void Console::leave_standard_output() {
  if (json_target_ == "-") {
    throw Error(ErrorCode::invalid_argument,
                "--json '-': standard output is the program's own; name a file, as in --json study.json");
  }
  results_to_error_ = true;
}

void Console::print(const std::string& line) {
  finish_progress();
  std::FILE* out = results_to_error_ ? stderr : stdout;
  const std::string lost = write_out(printable_lines(line) + "\n", out);
  if (lost.empty()) return;
  if (errno == EPIPE) reader_left_ = true;
  if (lost_.empty()) lost_ = lost;
}

void Console::progress(std::size_t done, std::size_t total, const std::string& what) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ && shown_ && now - *shown_ < kBetweenLines) return;
  shown_ = now;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - start_).count();
  // Cut to fit one row of a terminal, where it erases the previous line.
  const std::string line =
      fmt::format("[{}/{}] {} ({} s)", done, total, shortened(printable(what), kMaxProgressCharacters), seconds);
  const std::string text = terminal_ ? "\r\x1b[K" + line : line + "\n";
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  line_open_ = terminal_;
}

void Console::finish_progress() {
  if (!line_open_) return;
  std::fputs("\r\x1b[K", stderr);
  line_open_ = false;
}

std::string printable_lines(std::string_view text) {
  std::string lines;
  for (;;) {
    const std::size_t end = text.find('\n');
    lines += printable(text.substr(0, end));
    if (end == std::string_view::npos) return lines;
    lines += '\n';
    text.remove_prefix(end + 1);
  }
}

void print_refusals(const std::vector<Refusal>& refused, Console& console) {
  for (const Refusal& r : refused) {
    const std::string dtype = r.dtype.empty() ? "" : " " + r.dtype;
    const std::string where = r.device.empty() ? "" : " on " + r.device;
    console.print(printable(fmt::format("refused: {}{}{}: {}", r.label(), dtype, where, r.reason)));
  }
}

void Console::check_target() const {
  if (!json_target_.empty() && json_target_ != "-")
    check_writable(json_target_, " (--json - writes to standard output)");
}

void Console::emit(const nlohmann::json& document) {
  finish_progress();
  if (json_target_.empty()) return;
  const std::string text = json_text(document);
  if (json_target_ != "-") {
    write_file(json_target_, {text});
    return;
  }
  const std::string lost = write_out(text, stdout);
  if (!lost.empty()) throw Error(ErrorCode::device_failure, "--json '-': " + lost);
}

}  // namespace gable::bench
