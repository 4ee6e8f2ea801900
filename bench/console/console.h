// A command's output. Results go to standard output, or to standard error if standard output is for JSON. Progress goes
// to standard error: on a terminal as one line that is overwritten, elsewhere as separate lines.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/record/row.h"

namespace gable::bench {

class Console {
 public:
  /// `json_target` is the value of --json: empty, a file, or "-" for standard output.
  explicit Console(std::string json_target);

  void print(const std::string& line);
  /// From now on results go to standard error, since a program that gable started writes to standard output. Throws
  /// Error(invalid_argument) if that is where the JSON is to go.
  void leave_standard_output();
  /// "[3/44] vgg_b1 f32 warm", replaced by the next progress or print. Where standard error is no terminal, a line
  /// every ten seconds.
  void progress(std::size_t done, std::size_t total, const std::string& what);
  /// Removes the progress line.
  void finish_progress();
  /// Writes the document to the target of --json; does nothing without that option. Throws Error(invalid_argument), or
  /// Error(device_failure) where the disk or the device behind standard output is full.
  void emit(const nlohmann::json& document);
  bool wants_json() const { return !json_target_.empty(); }
  /// The file of --json; empty if there is none.
  std::string json_file() const { return json_target_ == "-" ? "" : json_target_; }
  /// Throws Error(invalid_argument) if emit() could not write its file. Call it before a long run.
  void check_target() const;
  /// Why lines of print() were lost, which stops no command: its record is still written. Empty: none were.
  const std::string& lost() const { return lost_; }
  /// Whether lines were lost because the program that reads them, such as head, has ended. This is no failure.
  bool reader_left() const { return reader_left_; }

 private:
  std::string json_target_;
  bool results_to_error_ = false;
  std::string lost_;
  bool reader_left_ = false;
  bool terminal_;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> shown_{};  ///< when progress was printed last
};

/// Text whose control characters, but for line ends, are made visible.
std::string printable_lines(std::string_view text);

/// Prints one line for each refusal, with control characters made visible.
void print_refusals(const std::vector<Refusal>& refused, Console& console);

}  // namespace gable::bench
