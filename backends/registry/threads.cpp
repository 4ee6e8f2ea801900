// See backends/threads.h.
#include "backends/threads.h"

#include <gable/error.h>

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "common/limits.h"

namespace gable {
namespace {

constexpr std::size_t kMinStack = std::size_t{64} << 10;  // of a thread; kernels of every target take less

/// What OMP_STACKSIZE or GOMP_STACKSIZE gives each of OpenMP's threads: "512", "512k", "1 G"; without a unit in KiB.
/// Nothing where OpenMP takes the system's usual size, which it also does for what it can't read.
std::optional<std::size_t> stack_bytes() {
  for (const char* name : {"OMP_STACKSIZE", "GOMP_STACKSIZE"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    char* end = nullptr;
    errno = 0;
    const unsigned long long number = std::strtoull(text, &end, 10);
    if (end == text || errno != 0) continue;
    const char* unit = end + std::strspn(end, " ");
    constexpr const char* kUnits = "bkmg";
    const int letter = *unit == '\0' ? 'k' : std::tolower(static_cast<unsigned char>(*unit));
    const char* known = std::strchr(kUnits, letter);
    if (known == nullptr) continue;
    const auto shift = 10 * static_cast<unsigned>(known - kUnits);
    if (number > SIZE_MAX >> shift) continue;
    return static_cast<std::size_t>(number) << shift;
  }
  return std::nullopt;
}

/// Threads that wait until it is destroyed.
class WaitingThreads {
 public:
  WaitingThreads() { gate_.lock(); }
  ~WaitingThreads() {
    gate_.unlock();
    for (const pthread_t thread : made_) ::pthread_join(thread, nullptr);
  }
  WaitingThreads(const WaitingThreads&) = delete;
  WaitingThreads& operator=(const WaitingThreads&) = delete;

  /// Makes one more; returns an error number or 0.
  int add(const pthread_attr_t& attributes) {
    const auto wait = [](void* gate) -> void* {
      const std::lock_guard pass(*static_cast<std::mutex*>(gate));
      return nullptr;
    };
    made_.emplace_back();  // before the thread exists: this may throw
    const int error = ::pthread_create(&made_.back(), &attributes, wait, &gate_);
    if (error != 0) made_.pop_back();
    return error;
  }
  std::size_t size() const { return made_.size(); }

 private:
  std::mutex gate_{};
  std::vector<pthread_t> made_{};
};

/// Makes this many threads, with the stacks of OpenMP's, exist at the same time. Returns why there were fewer, or an
/// empty string.
std::string why_fewer(int threads) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  const std::optional<std::size_t> stack = stack_bytes();
  if (stack) ::pthread_attr_setstacksize(&attributes, *stack);  // OpenMP, too, ignores what the system refuses
  int error = 0;
  WaitingThreads made;
  while (error == 0 && static_cast<int>(made.size()) < threads) error = made.add(attributes);
  ::pthread_attr_destroy(&attributes);
  if (error == 0) return "";
  std::string reason = "only " + std::to_string(made.size() + 1) + " can be made";
  if (stack) reason += " with stacks of " + std::to_string(*stack >> 10) + " KiB (OMP_STACKSIZE)";
  return reason + ": " + std::generic_category().message(error);
}

/// Throws where OMP_STACKSIZE gives threads less than kernels take, which would end the process.
void require_stack(const DeviceUri& uri) {
  const std::optional<std::size_t> stack = stack_bytes();
  if (!stack || *stack < static_cast<std::size_t>(PTHREAD_STACK_MIN) || *stack >= kMinStack)
    return;  // OpenMP ignores what is below the minimum
  throw Error(ErrorCode::invalid_argument, "device '" + to_string(uri) + "': OMP_STACKSIZE gives threads stacks of " +
                                               std::to_string(*stack >> 10) + " KiB; they need at least " +
                                               std::to_string(kMinStack >> 10) + " KiB");
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
  require_stack(uri);
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
    throw Error(ErrorCode::invalid_argument, "OMP_NUM_THREADS asks for " + std::to_string(usual) +
                                                 " threads; at most " + std::to_string(kMaxThreads) + " are possible");
  }
  require_threads(uri, threads);
  return threads;
}

}  // namespace gable
