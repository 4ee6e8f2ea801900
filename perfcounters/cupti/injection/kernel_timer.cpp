// See kernel_timer.h. Reads only those fields of a record whose offsets are the same in every CUPTI since 12.6.
#include "perfcounters/cupti/injection/kernel_timer.h"

#include <pthread.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "perfcounters/cupti/demangle.h"
#include "perfcounters/cupti/injection/regions.h"
#include "perfcounters/cupti/injection/reservoir.h"
#include "perfcounters/cupti/library.h"

namespace gable::cupti {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kBufferAlignment = 8;
constexpr std::chrono::milliseconds kFlushPause{100};  // what a killed process may lose
// Launches in regions whose kernels have not come yet. A graph's kernels share one, so none can be forgotten when the
// first kernel comes.
constexpr std::size_t kMostLaunches = std::size_t{1} << 21;

/// Gives each different text a small number.
class Names {
 public:
  int number_of(std::string_view text) {
    const auto found = numbers_.find(std::string(text));
    if (found != numbers_.end()) return found->second;
    texts_.emplace_back(text);
    numbers_.emplace(texts_.back(), static_cast<int>(texts_.size()) - 1);
    return static_cast<int>(texts_.size()) - 1;
  }
  const std::string& text_of(int number) const { return texts_[static_cast<std::size_t>(number)]; }

 private:
  std::unordered_map<std::string, int> numbers_;
  std::vector<std::string> texts_;
};

/// Kernel, region, GPU, grid and block of a group of launches.
struct Group {
  int kernel = 0, region = 0, gpu = 0;
  std::array<int, 3> grid{}, block{};
  auto operator<=>(const Group&) const = default;
};

class Timer {
 public:
  Timer(SessionFile& file, Timing timing) : file_(file), timing_(timing) { regions_.number_of(""); }

  void add(const CUpti_ActivityKernel9& record) {
    const std::lock_guard lock(mutex_);
    if (graph_launches_.contains(record.correlationId)) return;
    if (record.end <= record.start) {  // CUPTI gives 0 for kernels whose time it could not read
      ++untimed_;
      return;
    }
    const Group group{kernels_.number_of(record.name != nullptr ? record.name : "?"),
                      region_of(record.correlationId),
                      static_cast<int>(record.deviceId),
                      {record.gridX, record.gridY, record.gridZ},
                      {record.blockX, record.blockY, record.blockZ}};
    times_[group].add(static_cast<double>(record.end - record.start) * 1e-9);
  }

  void lose(std::size_t records) {
    const std::lock_guard lock(mutex_);
    lost_ += records;
  }

  void note_launch(std::uint32_t correlation, std::string_view region, bool is_graph) {
    const std::lock_guard lock(mutex_);
    if (is_graph && timing_ == Timing::alone) {
      if (graph_launches_.size() >= kMostLaunches) graph_launches_.clear();
      graph_launches_.insert(correlation);
      return;
    }
    if (region.empty()) return;
    if (launches_.size() >= kMostLaunches) forget_old(correlation);
    launches_[correlation] = regions_.number_of(region);
  }

  void note_gpu(int gpu, const std::string& name) {
    const std::lock_guard lock(mutex_);
    gpus_[gpu] = name;
  }

  /// Has CUPTI hand over the buffers that it has begun to fill, and writes what came.
  void flush(std::uint32_t flag, bool done) {
    const std::lock_guard lock(flushing_);
    if (finished_) return;
    finished_ = done;
    functions().activity_flush(flag);
    if (done || file_.due()) write(done);
  }

 private:
  void write(bool done) {
    std::vector<perf::KernelRecord> records;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [group, times] : times_) records.push_back(record_of(group, times));
      if (lost_ > 0) file_.note("CUPTI lost " + std::to_string(lost_) + " records of kernels: their times are missing");
      if (untimed_ > 0)
        file_.note("CUPTI could not read the time of " + std::to_string(untimed_) +
                   " kernels: their GPU may have failed");
    }
    file_.write(std::move(records), done);
  }

  int region_of(std::uint32_t correlation) const {
    const auto found = launches_.find(correlation);
    return found != launches_.end() ? found->second : 0;
  }

  /// Kernels come within seconds: keeps the launches of the last half.
  void forget_old(std::uint32_t newest) {
    std::erase_if(launches_, [&](const auto& launch) { return newest - launch.first > kMostLaunches / 2; });
  }

  perf::KernelRecord record_of(const Group& group, const Reservoir& times) const {
    perf::KernelRecord record;
    record.gpu = group.gpu;
    if (const auto found = gpus_.find(group.gpu); found != gpus_.end()) record.gpu_name = found->second;
    record.name = demangled(kernels_.text_of(group.kernel).c_str());
    record.region = regions_.text_of(group.region);
    record.grid = group.grid;
    record.block = group.block;
    record.times = times.times();
    return record;
  }

  SessionFile& file_;
  const Timing timing_;
  std::mutex flushing_;
  bool finished_ = false;
  std::mutex mutex_;
  Names kernels_, regions_;
  std::map<Group, Reservoir> times_;
  std::unordered_map<std::uint32_t, int> launches_;
  std::unordered_set<std::uint32_t> graph_launches_;  ///< whose kernels are not timed
  std::map<int, std::string> gpus_;
  std::size_t lost_ = 0, untimed_ = 0;
};

Timer* timer = nullptr;  // never destroyed: CUPTI may deliver a buffer during process exit

void CUPTIAPI buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // no limit but the buffer
}

void CUPTIAPI buffer_completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                               std::size_t valid) {
  try {
    CUpti_Activity* record = nullptr;
    while (valid > 0 && functions().activity_next(buffer, valid, &record) == CUPTI_SUCCESS) {
      if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
        timer->add(reinterpret_cast<const CUpti_ActivityKernel9&>(*record));
      }
    }
    std::size_t dropped = 0;
    if (functions().activity_dropped(context, stream, &dropped) == CUPTI_SUCCESS) timer->lose(dropped);
  } catch (...) {  // out of memory: the program goes on without these records
    timer->lose(1);
  }
  std::free(buffer);
}

/// CUPTI hands buffers over when they are full; a process that is killed shall have lost little. The thread takes no
/// signals, which are the program's.
void flush_often() {
  sigset_t all, before;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  std::thread([] {
    for (;;) {
      std::this_thread::sleep_for(kFlushPause);
      try {
        timer->flush(0, false);
      } catch (...) {  // out of memory: later perhaps
      }
    }
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void start_timing(SessionFile& file, Timing timing) {
  timer = new Timer(file, timing);
  check(functions().activity_callbacks(buffer_requested, buffer_completed), "cuptiActivityRegisterCallbacks");
  check(functions().activity_enable(timing == Timing::alone ? CUPTI_ACTIVITY_KIND_KERNEL
                                                            : CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL),
        "cuptiActivityEnable");
  flush_often();
}

void note_launch(std::uint32_t correlation, bool is_graph) {
  if (timer != nullptr) timer->note_launch(correlation, current_region(), is_graph);
}

void note_gpu(int gpu, const std::string& name) {
  if (timer != nullptr) timer->note_gpu(gpu, name);
}

void finish_timing() {
  if (timer != nullptr) timer->flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED, true);
}

}  // namespace gable::cupti
