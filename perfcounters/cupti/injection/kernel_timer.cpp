// See kernel_timer.h.
#include "perfcounters/cupti/injection/kernel_timer.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>
#include <thread>

#include "perfcounters/cupti/injection/graph_unroller.h"
#include "perfcounters/cupti/injection/launches.h"
#include "perfcounters/cupti/injection/recording_cost.h"
#include "perfcounters/cupti/injection/regions.h"
#include "perfcounters/cupti/injection/timed_kernels.h"
#include "perfcounters/cupti/library.h"

namespace gable::cupti {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kBufferAlignment = 8;
constexpr std::chrono::milliseconds kFlushPause{100};  // what a killed process may lose
constexpr int kUnrolled = 20;                          // launches of a graph whose kernels are timed alone

thread_local bool unrolls = false;  // this thread's launches come from a graph that is being unrolled

class Timer {
 public:
  Timer(SessionFile& file, Timing timing, std::function<void()> stop)
      : file_(file), timing_(timing), stop_(std::move(stop)), kernels_(timing == Timing::alone) {}

  /// Where CUPTI's records come from.
  CUpti_ActivityKind kind() const {
    return timing_ == Timing::alone ? CUPTI_ACTIVITY_KIND_KERNEL : CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  }

  /// Makes every other one of a graph's first launches launches of its nodes, if they are timed alone.
  bool unroll(CUpti_CallbackId call, const CUpti_CallbackData& data) {
    if (timing_ != Timing::alone) return false;
    if (unroller_.takes_trial(data)) return true;
    if (!is_turn(kernels_.graph_number(data)) || !unroller_.refusal(call, data).empty()) return false;
    unrolls = true;
    const GraphUnroller::Outcome outcome = unroller_.run(call, data);
    unrolls = false;
    if (outcome.ran_partly) file_.note("a CUDA graph, part of which ran twice in a run that times, " + outcome.refusal);
    return outcome.refusal.empty();
  }

  TimedKernels& kernels() { return kernels_; }
  GraphUnroller& unroller() { return unroller_; }
  Timing timing() const { return timing_; }

  /// Adds what recording a launch costs.
  void pay(const Launched& launched) {
    if (!stop_ || !cost_.add(launched, nanoseconds)) return;
    {
      const std::lock_guard lock(pausing_);
      too_costly_ = true;
    }
    wake_.notify_one();
  }

  /// Waits until it is time to flush; whether the recording has become too costly, and has ended.
  bool pause() {
    {
      std::unique_lock lock(pausing_);
      if (!wake_.wait_for(lock, kFlushPause, [this] { return too_costly_; })) return false;
    }
    functions().activity_disable(kind());
    stop_();
    file_.stop();
    return true;
  }

  /// Has CUPTI hand over the buffers that it has begun to fill, and writes what came: at once, or if the file is due.
  void flush(std::uint32_t flag, bool at_once, bool done) {
    const std::lock_guard lock(flushing_);
    if (finished_) return;
    finished_ = done;
    functions().activity_flush(flag);
    if (at_once || file_.due()) write(done);
  }

 private:
  static std::int64_t nanoseconds() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  /// Whether the next launch of a graph is to be unrolled.
  bool is_turn(std::uint64_t graph) {
    const std::lock_guard lock(mutex_);
    int& launches = graph_launches_[graph];
    return launches < 2 * kUnrolled && launches++ % 2 == 0;
  }

  void write(bool done) {
    for (const std::string& loss : kernels_.losses()) file_.note(loss);
    file_.write(kernels_.records(), done);
  }

  SessionFile& file_;
  const Timing timing_;
  const std::function<void()> stop_;
  RecordingCost cost_;
  std::mutex pausing_;
  std::condition_variable wake_;
  bool too_costly_ = false;
  std::mutex flushing_;
  bool finished_ = false;
  TimedKernels kernels_;
  GraphUnroller unroller_;
  std::mutex mutex_;
  std::map<std::uint64_t, int> graph_launches_;  ///< by Graphs::number()
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
        timer->kernels().add(reinterpret_cast<const CUpti_ActivityKernel9&>(*record));
      }
    }
    std::size_t dropped = 0;
    if (functions().activity_dropped(context, stream, &dropped) == CUPTI_SUCCESS) timer->kernels().lose(dropped);
  } catch (...) {  // out of memory: the program goes on without these records
    timer->kernels().lose(1);
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
        timer->flush(0, stopped, false);
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
      timer->kernels().note_unrolled_launch(data.correlationId, current_region(), std::move(*shape));
    }
    return;
  }
  timer->kernels().note_launch(data.correlationId, current_region(), arguments_of(call, data));
  timer->pay({.blocks = blocks_of(call, data)});
}

void note_graph_launch(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  if (timer == nullptr || timer->unroll(call, data)) return;
  timer->kernels().note_graph_launch(data, current_region());
  timer->pay(timer->kernels().launched(data));
}

void note_graph(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  if (timer == nullptr) return;
  ReadGraph read = read_graph(call, data);
  if (timer->timing() == Timing::alone) timer->unroller().keep(read);
  timer->kernels().note_change(std::move(read));
}

void note_graph_end(const CUpti_CallbackData& data) {
  if (timer != nullptr) timer->unroller().forget(exec_of(data));
}

void note_clone(const CUpti_GraphData& data) {
  if (timer != nullptr) timer->kernels().note_change(read_clone(data));
}

void note_gpu(int gpu, const std::string& name) {
  if (timer != nullptr) timer->kernels().note_gpu(gpu, name);
}

void note_context_end(CUcontext context) {
  if (timer != nullptr) timer->unroller().context_ends(context);
}

void finish_timing() {
  if (timer != nullptr) timer->flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED, true, true);
}

}  // namespace gable::cupti
