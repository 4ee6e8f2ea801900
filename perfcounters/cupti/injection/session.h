// What the environment asks of this process, and the file that the process writes (program/kernel_file.h). Nothing
// here throws or prints: the process belongs to somebody else.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "perfcounters/program/kernel_file.h"

namespace gable::cupti {

/// From GABLE_SESSION_FOLDER, GABLE_SESSION_MODE, GABLE_SESSION_METRICS (separated by commas), GABLE_SESSION_CALLS.
struct SessionRequest {
  /// time: times of kernels while recording them costs little; kernels: of all; alone: of kernels that run one after
  /// the other, and of CUDA graphs.
  enum class Mode { none, time, kernels, alone, counters };
  Mode mode = Mode::none;
  std::string folder{};
  std::vector<std::string> metrics{};
  int calls = 20;  ///< most counted calls of each kernel with one grid and one block from one region
};

SessionRequest session_request();

/// The process's file. Thread-safe.
class SessionFile {
 public:
  explicit SessionFile(std::string folder);

  /// Kept once each, and at most a few dozen.
  void note(const std::string& text);
  /// Only the first with each code is kept.
  void fail(int code, const std::string& what);
  /// No kernel is recorded from now on.
  void stop();
  /// Replaces the file; `done`: the process is about to end by itself. Does nothing in a child that was forked.
  void write(std::vector<perf::KernelRecord> kernels, bool done);
  /// Whether the last writing is so long ago that another one costs little.
  bool due() const;

 private:
  mutable std::mutex mutex_;
  std::string folder_;
  std::string path_;  ///< without ".txt"
  int pid_ = 0;
  perf::KernelFile file_;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace gable::cupti
