// Where a command's words go: results to standard output, or to standard error when that is kept for JSON; progress to
// standard error, as one line that renews itself on a terminal and as plain lines elsewhere.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/record/row.h"

namespace gable::bench {

class Console {
 public:
  /// `json_target` is the value of --json: empty, a file, or "-" for standard output.
  explicit Console(std::string json_target);

  void print(const std::string& line);
  /// "[3/44] vgg_b1 f32 warm", replaced by the next progress or print.
  void progress(std::size_t done, std::size_t total, const std::string& what);
  /// Removes the progress line.
  void finish_progress();
  /// Writes the document where --json says; nothing without the option. Throws Error(invalid_argument).
  void emit(const nlohmann::json& document);
  /// Throws Error(invalid_argument) now if emit() could not write later.
  void check_target() const;

 private:
  std::string json_target_;
  bool terminal_;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// One line each, for terminals; control characters are made visible.
void print_refusals(const std::vector<Refusal>& refused, Console& console);

}  // namespace gable::bench
