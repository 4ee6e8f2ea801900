// See kernel_timer.h. Reads only those fields of a record whose offsets are the same in every CUPTI since 12.6.
#include "perfcounters/cupti/injection/kernel_timer.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "perfcounters/cupti/demangle.h"
#include "perfcounters/cupti/injection/argument_hash.h"
#include "perfcounters/cupti/injection/graph_unroller.h"
#include "perfcounters/cupti/injection/launch_table.h"
#include "perfcounters/cupti/injection/launches.h"
#include "perfcounters/cupti/injection/recording_cost.h"
#include "perfcounters/cupti/injection/regions.h"
#include "perfcounters/cupti/injection/reservoir.h"
#include "perfcounters/cupti/library.h"

namespace gable::cupti {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kBufferAlignment = 8;
constexpr std::chrono::milliseconds kFlushPause{100};  // what a killed process may lose
constexpr std::size_t kMaxSpans = 1 << 14;             // launches of graphs that are timed as a whole
constexpr int kUnrolled = 20;                          // launches of a graph whose kernels are timed alone

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

/// Kernel, region, GPU, grid, block and arguments of a group of launches.
struct Group {
  int kernel = 0, region = 0, gpu = 0;
  std::array<int, 3> grid{}, block{};
  std::uint64_t arguments = 0;
  auto operator<=>(const Group&) const = default;
};

struct Times {
  Reservoir all{};
  std::int64_t graph_calls = 0;  ///< launches of CUDA graphs
};

/// From the first kernel's begin to the last one's end.
struct Span {
  std::uint64_t graph = 0, begin = 0, end = 0;
  int gpu = 0;
};

thread_local bool unrolls = false;  // this thread's launches come from a graph that is being unrolled

class Timer {
 public:
  Timer(SessionFile& file, Timing timing, std::function<void()> stop)
      : file_(file), timing_(timing), stop_(std::move(stop)) {
    regions_.number_of("");
  }

  /// Where CUPTI's records come from.
  CUpti_ActivityKind kind() const {
    return timing_ == Timing::alone ? CUPTI_ACTIVITY_KIND_KERNEL : CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  }

  void add(const CUpti_ActivityKernel9& record) {
    const std::lock_guard lock(mutex_);
    const Launch launch = launches_.get(record.correlationId);
    if (launch.graph != 0 && timing_ == Timing::alone) {
      // The record of its first kernel has the time of the whole graph, those of the others have none.
      if (record.end > record.start)
        extend(record.correlationId, launch.graph, static_cast<int>(record.deviceId), record.start, record.end);
      return;
    }
    if (record.end <= record.start) {  // CUPTI gives 0 for kernels whose time it could not read
      ++untimed_;
      return;
    }
    Group group{kernels_.number_of(record.name != nullptr ? record.name : "?"),
                regions_.number_of(launch.region != nullptr ? launch.region : ""),
                static_cast<int>(record.deviceId),
                {record.gridX, record.gridY, record.gridZ},
                {record.blockX, record.blockY, record.blockZ}};
    group.arguments = first_arguments_.limited(group, arguments_of(record, launch));
    Times& times = times_[group];
    times.all.add(static_cast<double>(record.end - record.start) * 1e-9);
    if (launch.graph == 0) return;
    ++times.graph_calls;
    extend(record.correlationId, launch.graph, group.gpu, record.start, record.end);
  }

  void lose(std::size_t records) {
    const std::lock_guard lock(mutex_);
    lost_ += records;
  }

  /// A launch of a graph that is unrolled. CUPTI gives them all the number of the graph's own launch.
  void note_unrolled_launch(std::uint32_t correlation, const char* region, KernelShape shape) {
    const std::lock_guard lock(mutex_);
    launches_.put(correlation, {region, 0, 0});
    unrolled_launches_[correlation].push_back(std::move(shape));
  }

  void note_launch(std::uint32_t correlation, const char* region, std::uint64_t arguments) {
    if (*region != '\0' || arguments != 0) launches_.put(correlation, {region, arguments, 0});
  }

  /// Makes every other one of a graph's first launches launches of its nodes, if they are timed alone.
  bool unroll(CUpti_CallbackId call, const CUpti_CallbackData& data) {
    if (timing_ != Timing::alone) return false;
    if (unroller_.takes_trial(data)) return true;
    {
      const std::lock_guard lock(mutex_);
      int& launches = graph_launches_[graphs_.number(data)];
      if (launches >= 2 * kUnrolled || launches++ % 2 != 0) return false;
    }
    if (!unroller_.refusal(call, data).empty()) return false;
    unrolls = true;
    const GraphUnroller::Outcome outcome = unroller_.run(call, data);
    unrolls = false;
    if (outcome.ran_partly) file_.note("a CUDA graph, part of which ran twice in a run that times, " + outcome.refusal);
    return outcome.refusal.empty();
  }

  GraphUnroller& unroller() { return unroller_; }
  Timing timing() const { return timing_; }

  void note_graph_launch(const CUpti_CallbackData& data, const char* region) {
    Launched launched;
    {
      const std::lock_guard lock(mutex_);
      launches_.put(data.correlationId, {region, 0, graphs_.number(data)});
      if (const std::vector<KernelShape>* kernels = graphs_.kernels(data)) {
        launched.kernels = static_cast<std::int64_t>(kernels->size());
        for (const KernelShape& kernel : *kernels) launched.blocks += blocks_of(kernel);
      }
    }
    pay(launched);
  }

  /// A ReadGraph or a ClonedNode.
  template <typename Change>
  void note_change(Change change) {
    const std::lock_guard lock(mutex_);
    graphs_.keep(std::move(change));
  }

  void note_gpu(int gpu, const std::string& name) {
    const std::lock_guard lock(mutex_);
    gpus_[gpu] = name;
  }

  /// Adds what recording a launch costs.
  void pay(const Launched& launched) {
    if (!stop_ || !cost_.add(launched, nanoseconds)) return;
    {
      const std::lock_guard lock(pausing_);
      too_dear_ = true;
    }
    wake_.notify_one();
  }

  /// Waits until it is time to flush; whether the recording has become too dear, and has ended.
  bool pause() {
    {
      std::unique_lock lock(pausing_);
      if (!wake_.wait_for(lock, kFlushPause, [this] { return too_dear_; })) return false;
    }
    functions().activity_disable(kind());
    stop_();
    file_.stop();
    return true;
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
  std::uint64_t arguments_of(const CUpti_ActivityKernel9& record, const Launch& launch) {
    if (launch.graph != 0) return graphs_.arguments(record.graphNodeId);
    const auto unrolled = unrolled_launches_.find(record.correlationId);
    if (unrolled == unrolled_launches_.end()) return launch.arguments;
    std::vector<KernelShape>& shapes = unrolled->second;
    const std::string_view name = record.name != nullptr ? record.name : "?";
    const std::array<int, 3> grid{record.gridX, record.gridY, record.gridZ};
    const std::array<int, 3> block{record.blockX, record.blockY, record.blockZ};
    const auto found = std::find_if(shapes.begin(), shapes.end(), [&](const KernelShape& shape) {
      return shape.name == name && shape.grid == grid && shape.block == block;
    });
    if (found == shapes.end()) return 0;
    const std::uint64_t arguments = found->arguments;
    shapes.erase(found);
    if (shapes.empty()) unrolled_launches_.erase(unrolled);
    return arguments;
  }

  static std::int64_t nanoseconds() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  void write(bool done) {
    std::vector<perf::KernelRecord> records;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [group, times] : times_) records.push_back(record_of(group, times));
      append_graphs(records);
      if (lost_ > 0) file_.note("CUPTI lost " + std::to_string(lost_) + " records of kernels: their times are missing");
      if (untimed_ > 0)
        file_.note("CUPTI could not read the time of " + std::to_string(untimed_) +
                   " kernels: their GPU may have failed");
    }
    file_.write(std::move(records), done);
  }

  void extend(std::uint32_t correlation, std::uint64_t graph, int gpu, std::uint64_t begin, std::uint64_t end) {
    if (spans_.size() >= kMaxSpans && !spans_.contains(correlation)) return;
    Span& span = spans_.try_emplace(correlation, Span{graph, begin, end, gpu}).first->second;
    span.begin = std::min(span.begin, begin);
    span.end = std::max(span.end, end);
  }

  void append_graphs(std::vector<perf::KernelRecord>& records) const {
    std::map<std::pair<std::uint64_t, int>, Reservoir> graphs;
    for (const auto& [correlation, span] : spans_)
      graphs[{span.graph, span.gpu}].add(static_cast<double>(span.end - span.begin) * 1e-9);
    for (const auto& [graph, times] : graphs) {
      perf::KernelRecord record;
      record.gpu = graph.second;
      record.gpu_name = gpu_name(graph.second);
      record.graph = graph.first;
      record.times = times.times();
      records.push_back(record);
    }
  }

  std::string gpu_name(int gpu) const {
    const auto found = gpus_.find(gpu);
    return found != gpus_.end() ? found->second : "";
  }

  perf::KernelRecord record_of(const Group& group, const Times& times) const {
    perf::KernelRecord record;
    record.gpu = group.gpu;
    record.gpu_name = gpu_name(group.gpu);
    record.name = demangled(kernels_.text_of(group.kernel).c_str());
    record.region = regions_.text_of(group.region);
    record.grid = group.grid;
    record.block = group.block;
    record.arguments = group.arguments;
    record.times = times.all.times();
    record.graph_calls = times.graph_calls;
    return record;
  }

  SessionFile& file_;
  const Timing timing_;
  const std::function<void()> stop_;
  RecordingCost cost_;
  std::mutex pausing_;
  std::condition_variable wake_;
  bool too_dear_ = false;
  std::mutex flushing_;
  bool finished_ = false;
  std::mutex mutex_;
  Names kernels_, regions_;
  std::map<Group, Times> times_;
  FirstArguments<Group> first_arguments_;
  LaunchTable launches_;
  std::map<std::uint32_t, Span> spans_;
  Graphs graphs_;
  GraphUnroller unroller_;
  std::map<std::uint64_t, int> graph_launches_;                          ///< by Graphs::number()
  std::map<std::uint32_t, std::vector<KernelShape>> unrolled_launches_;  ///< without a record so far
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
    for (bool stopped = false; !stopped;) {
      try {
        stopped = timer->pause();
        timer->flush(0, false);
      } catch (...) {  // out of memory: later perhaps
      }
    }
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void start_timing(SessionFile& file, Timing timing, std::function<void()> stop) {
  timer = new Timer(file, timing, std::move(stop));
  check(functions().activity_callbacks(buffer_requested, buffer_completed), "cuptiActivityRegisterCallbacks");
  check(functions().activity_enable(timer->kind()), "cuptiActivityEnable");
  flush_often();
}

// CUPTI and the driver are asked before the timer is locked: CUPTI delivers records, for which the timer is locked too.

void note_launch(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  if (timer == nullptr) return;
  if (unrolls) {
    if (std::optional<KernelShape> shape = shape_of(call, data)) {
      shape->arguments = arguments_of(call, data);
      timer->note_unrolled_launch(data.correlationId, current_region(), std::move(*shape));
    }
    return;
  }
  timer->note_launch(data.correlationId, current_region(), arguments_of(call, data));
  timer->pay({.blocks = blocks_of(call, data)});
}

void note_graph_launch(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  if (timer != nullptr && !timer->unroll(call, data)) timer->note_graph_launch(data, current_region());
}

void note_graph(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  if (timer == nullptr) return;
  ReadGraph read = read_graph(call, data);
  if (timer->timing() == Timing::alone) timer->unroller().keep(read);
  timer->note_change(std::move(read));
}

void note_graph_end(const CUpti_CallbackData& data) {
  if (timer != nullptr) timer->unroller().forget(exec_of(data));
}

void note_clone(const CUpti_GraphData& data) {
  if (timer != nullptr) timer->note_change(read_clone(data));
}

void note_gpu(int gpu, const std::string& name) {
  if (timer != nullptr) timer->note_gpu(gpu, name);
}

void note_context_end(CUcontext context) {
  if (timer != nullptr) timer->unroller().context_ends(context);
}

void finish_timing() {
  if (timer != nullptr) timer->flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED, true);
}

}  // namespace gable::cupti
