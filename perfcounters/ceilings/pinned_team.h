// Threads that stay on one CPU each, for measuring ceilings: a thread that migrates loses its caches and its clock.
// The threads are the team's own, so the caller's affinity is never changed and nothing has to be restored.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gable::perf {

class PinnedTeam {
 public:
  explicit PinnedTeam(const std::vector<int>& cpus);  ///< one thread a CPU
  ~PinnedTeam();
  PinnedTeam(const PinnedTeam&) = delete;
  PinnedTeam& operator=(const PinnedTeam&) = delete;

  /// Calls work(index) once on every thread; all start together. Returns the seconds from the first start to the last
  /// end. `work` must not throw.
  double run(const std::function<void(int)>& work);

  int size() const { return static_cast<int>(threads_.size()); }
  bool pinned() const { return pinned_; }  ///< false if the system refused an affinity

 private:
  void serve(int index);

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(int)>* work_ = nullptr;
  std::uint64_t round_ = 0;
  int arrived_ = 0;  ///< threads awake in this round; work starts when all are
  int finished_ = 0;
  bool stop_ = false;
  bool pinned_ = true;
  std::vector<double> starts_;
  std::vector<double> ends_;
  std::vector<std::thread> threads_;
};

}  // namespace gable::perf
