// See backends/threads.h.
#include "backends/threads.h"

#include <gable/error.h>

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace gable {
namespace {

constexpr int kMaxThreads = 1024;

/// Makes this many threads exist at the same time. Returns why there were fewer, or an empty string.
std::string why_fewer(int threads) {
  std::string reason;
  std::mutex gate;
  struct Joined {  // joins even if a bad_alloc is thrown
    std::vector<std::thread> threads{};
    ~Joined() {
      for (std::thread& thread : threads) thread.join();
    }
  } joined;
  std::vector<std::thread>& made = joined.threads;
  {
    const std::lock_guard closed(gate);
    try {
      made.reserve(static_cast<std::size_t>(threads));
      while (static_cast<int>(made.size()) < threads) made.emplace_back([&gate] { const std::lock_guard pass(gate); });
    } catch (const std::system_error& error) {
      reason = "only " + std::to_string(made.size() + 1) + " can be made: " + error.code().message();
    }
  }
  return reason;
}

/// OpenMP's threads do not exist in a child made by fork(), but GCC's runtime would wait for them. They are released
/// before the fork; the next run in the parent or the child makes new ones.
void survive_fork() {
  static const int registered = ::pthread_atfork([] { omp_pause_resource_all(omp_pause_soft); }, nullptr, nullptr);
  static_cast<void>(registered);  // fails without memory only; a child then has to use threads=1
}

/// Throws unless the process can make `threads` - 1 further threads. Each new maximum is tried once.
void require_threads(const DeviceUri& uri, int threads) {
  static std::mutex mutex;
  static int known = 1;
  const std::lock_guard lock(mutex);
  if (threads <= known) return;
  survive_fork();
  const std::string reason = why_fewer(threads - 1);
  if (!reason.empty()) {
    throw Error(ErrorCode::unavailable, "device '" + to_string(uri) + "': of " + std::to_string(threads) + " threads " +
                                            reason +
                                            "; ask for fewer (threads=N, OMP_NUM_THREADS) or raise the limit (ulimit "
                                            "-u, ulimit -v, the cgroup's pids.max)");
  }
  known = threads;
}

}  // namespace

int threads_option(const DeviceUri& uri) {
  const int limit = omp_get_thread_limit();
  const int usual = std::min(omp_get_max_threads(), limit);
  const int threads = integer_option(uri, "threads", 1, kMaxThreads, usual);
  if (threads > limit) {
    throw Error(ErrorCode::unavailable, "device '" + to_string(uri) + "': OpenMP runs at most " +
                                            std::to_string(limit) + " of " + std::to_string(threads) +
                                            " threads (OMP_THREAD_LIMIT)");
  }
  if (threads > kMaxThreads) {
    throw Error(ErrorCode::invalid_argument, "device '" + to_string(uri) + "': OMP_NUM_THREADS asks for " +
                                                 std::to_string(usual) + " threads; at most " +
                                                 std::to_string(kMaxThreads) + " are possible");
  }
  require_threads(uri, threads);
  return threads;
}

}  // namespace gable
