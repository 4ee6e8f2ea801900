// See counted_region.h. callgrind's requests are a few instructions that do nothing outside valgrind.
#include "perfcounters/sources/counted_region.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>

#include "perfcounters/machine.h"

#if GABLE_HAS_CALLGRIND_HEADER
#include <valgrind/callgrind.h>
#endif

namespace gable::perf {
namespace {

#if GABLE_HAS_CALLGRIND_HEADER
constexpr std::size_t kLine = 64;

/// Reads a buffer of twice the largest cache, one word per line. Its pages are never written, so they take no memory.
class Sweep {
 public:
  Sweep() : bytes_(2 * largest_cache()), buffer_(new char[bytes_]) {}
  void operator()() const {
    const volatile char* data = buffer_.get();
    for (std::size_t i = 0; i < bytes_; i += kLine) static_cast<void>(data[i]);
  }

 private:
  static std::size_t largest_cache() {
    const Machine machine = describe_machine();
    return std::max({machine.caches.l1d.bytes, machine.caches.l2.bytes, machine.caches.l3.bytes, std::size_t{1} << 20});
  }
  std::size_t bytes_;
  std::unique_ptr<char[]> buffer_;
};

void run_marked(const std::function<void()>& run, const ChildTask& task) {
  const Sweep sweep;
  run();                            // one-time work (threads, pages, tables) is not simulated
  CALLGRIND_START_INSTRUMENTATION;  // empties the simulated caches
  if (!task.cold) run();
  CALLGRIND_ZERO_STATS;
  for (int i = 0; i < task.repetitions; ++i) run();
  CALLGRIND_DUMP_STATS_AT("region");
  sweep();
  CALLGRIND_DUMP_STATS_AT("residue");
  CALLGRIND_STOP_INSTRUMENTATION;
}
#endif

}  // namespace

bool can_mark_regions() { return GABLE_HAS_CALLGRIND_HEADER != 0; }

void run_counted(const std::function<void()>& run, const ChildTask& task) {
  if (task.repetitions < 0)
    throw std::invalid_argument("repetitions = " + std::to_string(task.repetitions) + "; need 0 or more");
  if (task.markers) {
#if GABLE_HAS_CALLGRIND_HEADER
    run_marked(run, task);
    return;
#else
    throw std::invalid_argument("this build of gable has no callgrind markers: it was built without valgrind's header");
#endif
  }
  if (task.cold)
    throw std::invalid_argument("a cold region needs markers: without them a sweep is counted with the work");
  for (int i = 0; i < task.repetitions; ++i) run();
}

std::vector<std::string> task_arguments(const ChildTask& task) {
  std::vector<std::string> words{"--repetitions", std::to_string(task.repetitions)};
  if (task.cold) words.emplace_back("--cold");
  if (task.markers) words.emplace_back("--markers");
  return words;
}

}  // namespace gable::perf
