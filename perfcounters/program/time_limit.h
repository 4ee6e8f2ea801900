// Kills a process with its descendants when its time is over.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace gable::perf {

class TimeLimit {
 public:
  TimeLimit(int pid, double seconds);
  ~TimeLimit() { stop(); }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  /// Whether the limit was reached and the process killed.
  bool stop();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  bool has_killed_ = false;
  std::thread watcher_;
};

}  // namespace gable::perf
