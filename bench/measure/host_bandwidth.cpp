// See host_bandwidth.h. Each thread has a part of the working set, with one array for each stream of the loop. Arrays
// start at different offsets in a page, because CPUs that compare 12 address bits take equal offsets for the same
// address (4K aliasing). Beyond twice the last-level cache the loops use non-temporal stores, as gable's kernels do, so
// the counted bytes are those that move.
#include "bench/measure/host_bandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "bench/common/text.h"
#include "bench/measure/file_bandwidth.h"
#include "bench/workloads/data.h"
#include "perfcounters/ceilings/loops.h"

namespace gable::bench {
namespace {

constexpr std::size_t kGrain = 256 * sizeof(float);  // the loops take multiples of this
constexpr std::size_t kPage = 4096;
constexpr std::size_t kApart = kPage + 17 * 64;
constexpr double kShareOfMemory = 0.5;

std::size_t streams_of(Movement movement) {
  return movement == Movement::read ? 1 : movement == Movement::copy ? 2 : 3;
}

/// Distance between the starts of two arrays in bytes.
std::size_t pitch_of(std::size_t array_bytes) { return (array_bytes + kPage - 1) / kPage * kPage + kApart; }

/// `passes` passes over one thread's part.
void move(Movement movement, float* part, std::size_t array_bytes, std::int64_t passes, bool streaming) {
  const std::size_t count = array_bytes / sizeof(float);
  const std::size_t next = pitch_of(array_bytes) / sizeof(float);
  if (movement == Movement::read) {
    perf::read_loop(part, count, passes);
  } else if (movement == Movement::copy) {
    perf::copy_loop(part, part + next, count, passes, streaming);
  } else {
    perf::triad_loop(part, part + next, part + 2 * next, count, passes, streaming);
  }
}

}  // namespace

HostBandwidth::HostBandwidth(int threads, const std::vector<BandwidthCase>& cases)
    : all_threads_(threads),
      most_bytes_(kShareOfMemory * available_memory()),
      largest_bytes_(0),
      machine_(perf::describe_machine()) {
  for (const BandwidthCase& one : cases) {
    const auto bytes = static_cast<double>(one.bytes);
    if (!between_files(one.movement) && bytes <= most_bytes_) largest_bytes_ = std::max(largest_bytes_, bytes);
  }
}

Mover HostBandwidth::mover(const BandwidthCase& one) {
  return between_files(one.movement) ? file_mover(one) : memory_mover(one);
}

/// A team of `threads` threads, each on its own CPU as far as there are CPUs, and each thread's memory.
void HostBandwidth::use_threads(int threads) {
  if (team_ != nullptr && team_->size() == threads) return;
  arenas_.clear();
  std::vector<int> cpus;
  for (int i = 0; i < threads; ++i)
    cpus.push_back(machine_.threads.cpus[static_cast<std::size_t>(i) % machine_.threads.cpus.size()]);
  team_ = std::make_unique<perf::PinnedTeam>(cpus);
  arenas_.resize(cpus.size());
  const std::size_t bytes = static_cast<std::size_t>(largest_bytes_) / cpus.size() + 3 * (kPage + kApart);
  std::atomic<bool> complete{true};
  team_->run([&](int thread) {
    auto& arena = arenas_[static_cast<std::size_t>(thread)];
    arena = std::make_unique<perf::Arena>(bytes);
    if (arena->data() == nullptr)
      complete = false;
    else
      std::fill_n(arena->data(), bytes / sizeof(float), 1.0F);
  });
  if (!complete) {
    team_.reset();
    throw Error(ErrorCode::out_of_memory, fmt::format("the system refused {} for each of {} threads",
                                                      bytes_text(static_cast<double>(bytes)), threads));
  }
}

Mover HostBandwidth::memory_mover(const BandwidthCase& one) {
  const int threads = one.one_thread ? 1 : all_threads_;
  if (static_cast<double>(one.bytes) > most_bytes_) {
    throw Error(ErrorCode::out_of_memory, fmt::format("more than half of the {:.2f} GB of memory that were available",
                                                      most_bytes_ / kShareOfMemory / 1e9));
  }
  const std::size_t parts = streams_of(one.movement) * static_cast<std::size_t>(threads);
  const std::size_t array_bytes = static_cast<std::size_t>(one.bytes) / parts / kGrain * kGrain;
  if (array_bytes == 0) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} cut into {} arrays are less than the loops' least, 1 KiB", one.bytes, parts));
  }
  use_threads(threads);
  const bool stores = one.movement != Movement::read;
  const auto last_level =
      static_cast<double>(machine_.caches.l3.bytes > 0 ? machine_.caches.l3.bytes : machine_.caches.l2.bytes) *
      std::max(1, machine_.caches.l3.bytes > 0 ? machine_.caches.l3.instances : machine_.caches.l2.instances);
  const bool streaming = stores && static_cast<double>(one.bytes) > 2 * last_level;
  Mover mover;
  mover.subject.time = [this, movement = one.movement, array_bytes, streaming](int calls) {
    return team_->run([&](int thread) {
      move(movement, arenas_[static_cast<std::size_t>(thread)]->data(), array_bytes, calls, streaming);
    });
  };
  mover.kernel = fmt::format("{}-byte vectors{}", perf::load_bytes(), streaming ? ", stores past the caches" : "");
  mover.threads = threads;
  mover.bytes = static_cast<double>(parts * array_bytes);
  if (one.movement == Movement::triad) mover.flop = 2 * mover.bytes / (3 * sizeof(float));
  return mover;
}

}  // namespace gable::bench
