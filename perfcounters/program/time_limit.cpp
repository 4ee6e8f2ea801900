// See time_limit.h.
#include "perfcounters/program/time_limit.h"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

namespace gable::perf {
namespace {

namespace fs = std::filesystem;

void add_descendants(int pid, std::set<int>& all) {
  if (!all.insert(pid).second) return;
  std::error_code ignored;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", pid), ignored)) {
    std::ifstream file(task.path() / "children");
    for (int child = 0; file >> child;) add_descendants(child, all);
  }
}

}  // namespace

TimeLimit::TimeLimit(int pid, double seconds)
    : watcher_([this, pid, seconds] {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return is_over_; })) return;
        has_killed_ = true;
        std::set<int> all;
        add_descendants(pid, all);
        for (const int one : all) kill(one, SIGKILL);
      }) {}

bool TimeLimit::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  return has_killed_;
}

}  // namespace gable::perf
