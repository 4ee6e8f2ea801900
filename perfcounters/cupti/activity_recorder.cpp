// See activity_recorder.h. Reads only those fields of a record whose offsets are the same in every CUPTI since 12.6.
#include "perfcounters/cupti/activity_recorder.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "perfcounters/cupti/demangle.h"
#include "perfcounters/cupti/library.h"

namespace gable::cupti {
namespace {

using perf::Activity;

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr std::size_t kBufferAlignment = 8;

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER};

const char* copy_name(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "[memcpy host to device]";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "[memcpy device to host]";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "[memcpy device to device]";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return "[memcpy host to host]";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "[memcpy peer to peer]";
    default:
      return "[memcpy]";
  }
}

/// "cudaLaunchKernel_v7000" -> "cudaLaunchKernel": the suffix is the CUDA version that introduced the call.
std::string call_name(CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  const char* name = nullptr;
  if (functions().callback_name(domain, id, &name) != CUPTI_SUCCESS || name == nullptr) {
    return "call " + std::to_string(id);
  }
  std::string text = name;
  const std::size_t suffix = text.rfind("_v");
  const bool version = suffix != std::string::npos && suffix + 2 < text.size() &&
                       text.find_first_not_of("0123456789", suffix + 2) == std::string::npos;
  // _v2 and similar suffixes of the driver are part of the name.
  if (version && text.size() - suffix > 4) text.resize(suffix);
  return text;
}

Activity from_kernel(const CUpti_ActivityKernel9& record) {
  return {.kind = Activity::Kind::kernel,
          .name = demangled(record.name),
          .start = record.start,
          .end = record.end,
          .device = record.deviceId,
          .lane = record.streamId,
          .correlation = record.correlationId,
          .grid = {record.gridX, record.gridY, record.gridZ},
          .block = {record.blockX, record.blockY, record.blockZ},
          .registers = record.registersPerThread,
          .shared_bytes = record.staticSharedMemory + record.dynamicSharedMemory};
}

template <typename Record>
Activity from_transfer(const Record& record, Activity::Kind kind, const char* name) {
  return {.kind = kind,
          .name = name,
          .start = record.start,
          .end = record.end,
          .device = record.deviceId,
          .lane = record.streamId,
          .correlation = record.correlationId,
          .bytes = static_cast<double>(record.bytes)};
}

Activity from_call(const CUpti_ActivityAPI& record, bool runtime) {
  return {.kind = runtime ? Activity::Kind::runtime_api : Activity::Kind::driver_api,
          .name = call_name(runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API, record.cbid),
          .start = record.start,
          .end = record.end,
          .lane = record.threadId,
          .correlation = record.correlationId};
}

class Recorder {
 public:
  void add(const CUpti_Activity& record) {
    const std::lock_guard lock(mutex_);
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      case CUPTI_ACTIVITY_KIND_KERNEL:
        activities_.push_back(from_kernel(reinterpret_cast<const CUpti_ActivityKernel9&>(record)));
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy5&>(record);
        activities_.push_back(from_transfer(copy, Activity::Kind::memcpy, copy_name(copy.copyKind)));
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET:
        activities_.push_back(
            from_transfer(reinterpret_cast<const CUpti_ActivityMemset4&>(record), Activity::Kind::memset, "[memset]"));
        break;
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER:
        activities_.push_back(
            from_call(reinterpret_cast<const CUpti_ActivityAPI&>(record), record.kind == CUPTI_ACTIVITY_KIND_RUNTIME));
        break;
      default:
        break;
    }
  }

  void lose(std::size_t records) {
    const std::lock_guard lock(mutex_);
    lost_ += records;
  }

  std::vector<Activity> take(std::size_t& lost) {
    const std::lock_guard lock(mutex_);
    lost = lost_;
    lost_ = 0;
    return std::move(activities_);
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    activities_.clear();
    lost_ = 0;
  }

 private:
  std::mutex mutex_;
  std::vector<Activity> activities_;
  std::size_t lost_ = 0;
};

/// Never destroyed: CUPTI may deliver a buffer during process exit.
Recorder& recorder() {
  static Recorder* const the_recorder = new Recorder;
  return *the_recorder;
}

void CUPTIAPI buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // no limit but the buffer
}

void CUPTIAPI buffer_completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                               std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (valid > 0 && functions().activity_next(buffer, valid, &record) == CUPTI_SUCCESS) recorder().add(*record);
  std::size_t dropped = 0;
  if (functions().activity_dropped(context, stream, &dropped) == CUPTI_SUCCESS) recorder().lose(dropped);
  std::free(buffer);
}

void disable_all() {
  for (const CUpti_ActivityKind kind : kKinds) functions().activity_disable(kind);
}

}  // namespace

void start_recording() {
  functions();
  driver();
  static const bool registered = [] {
    check(functions().activity_callbacks(buffer_requested, buffer_completed), "cuptiActivityRegisterCallbacks");
    return true;
  }();
  static_cast<void>(registered);
  recorder().clear();
  try {
    for (const CUpti_ActivityKind kind : kKinds) check(functions().activity_enable(kind), "cuptiActivityEnable");
  } catch (...) {
    disable_all();
    throw;
  }
}

std::vector<Activity> stop_recording() {
  disable_all();
  check(functions().activity_flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  std::size_t lost = 0;
  std::vector<Activity> activities = recorder().take(lost);
  if (lost > 0) {
    throw perf::GpuProfilerError(perf::kUntrusted, "CUPTI lost " + std::to_string(lost) + " activity records");
  }
  std::stable_sort(activities.begin(), activities.end(),
                   [](const Activity& a, const Activity& b) { return a.start < b.start; });
  return activities;
}

}  // namespace gable::cupti
