// One mutex guards the hand-over of work; threads then wait for each other so that they start together.
#include "perfcounters/ceilings/pinned_team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

namespace gable::perf {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool pin(std::thread& thread, int cpu) {
  const std::size_t count = static_cast<std::size_t>(cpu) + 1;
  cpu_set_t* set = CPU_ALLOC(count);
  const std::size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  const bool done = pthread_setaffinity_np(thread.native_handle(), bytes, set) == 0;
  CPU_FREE(set);
  return done;
}

}  // namespace

PinnedTeam::PinnedTeam(const std::vector<int>& cpus) : starts_(cpus.size()), ends_(cpus.size()) {
  threads_.reserve(cpus.size());
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    threads_.emplace_back([this, i] { serve(static_cast<int>(i)); });
    pinned_ = pin(threads_.back(), cpus[i]) && pinned_;
  }
}

PinnedTeam::~PinnedTeam() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

double PinnedTeam::run(const std::function<void(int)>& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  arrived_ = 0;
  finished_ = 0;
  ++round_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return finished_ == size(); });
  return *std::max_element(ends_.begin(), ends_.end()) - *std::min_element(starts_.begin(), starts_.end());
}

void PinnedTeam::serve(int index) {
  const auto slot = static_cast<std::size_t>(index);
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    if (++arrived_ == size()) changed_.notify_all();
    changed_.wait(lock, [this] { return arrived_ == size(); });
    const std::function<void(int)>& work = *work_;
    lock.unlock();
    starts_[slot] = now();
    work(index);
    ends_[slot] = now();
    lock.lock();
    if (++finished_ == size()) changed_.notify_all();
  }
}

}  // namespace gable::perf
