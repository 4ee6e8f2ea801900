// The interface of libgable_cupti.so: it counts metrics around work on an NVIDIA GPU and records the GPU's activity.
// The plugin is loaded at first use and loads CUPTI and the driver itself, so a machine without them runs everything
// else. A missing library or permission is a GpuProfilerError with reason and cure.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "perfcounters/sources/source.h"

namespace gable::perf {

/// Error codes beside CUPTI's own, which are positive.
enum GpuProfilerCode : int {
  kNoPlugin = -1,    ///< libgable_cupti.so is missing, or built for another version of gable
  kNoCupti = -2,     ///< libcupti can't be opened, or is too old
  kNoDriver = -3,    ///< libcuda can't be opened, or its initialization fails
  kNoGpu = -4,       ///< no GPU has that index
  kUntrusted = -5,   ///< the counts are impossible
  kWrongOrder = -6,  ///< counting during a trace, or a trace during counting
  kNoMetric = -7,    ///< the chip has no such metric
  kDriverCall = -8,  ///< a driver call failed
};

class GpuProfilerError : public std::runtime_error {
 public:
  /// `what`: the failed call and its error; `code`: CUPTI's result or a GpuProfilerCode.
  GpuProfilerError(int code, const std::string& what) : std::runtime_error(what), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

/// Why counters can't be read, and the cure.
struct GpuFailure {
  std::string reason;
  std::string cure;  ///< empty when there is nothing to cure
};

/// For people: `what` is the failure as in GpuProfilerError::what().
GpuFailure explain_gpu_failure(int code, const std::string& what);

/// Work to count. It runs once per pass, so `before` must restore inputs that the work changes.
struct CountRequest {
  std::vector<std::string> metrics;  ///< CUPTI's names with their rollup: "dram__bytes_read.sum"
  std::function<void()> run;         ///< returns when the device has finished
  std::function<void()> before;      ///< before each run, not counted: restores inputs, sweeps caches; may be empty
  int repetitions = 1;               ///< runs, each counted separately
  bool each_kernel = false;          ///< count each kernel separately instead of each run
};

struct Counted {
  std::vector<std::vector<double>> ranges;  ///< per repetition (or kernel): a value for each metric
  int passes = 0;                           ///< runs per set of values
};

/// One activity of a GPU or call of the CUDA API.
struct Activity {
  enum class Kind { kernel, memcpy, memset, runtime_api, driver_api };
  Kind kind = Kind::kernel;
  std::string name;                  ///< demangled kernel, "[memcpy host to device]", "cudaLaunchKernel"
  std::uint64_t start = 0, end = 0;  ///< nanoseconds; all activities share the clock
  std::uint32_t device = 0;
  std::uint32_t lane = 0;         ///< the stream, or the calling thread
  std::uint32_t correlation = 0;  ///< links an API call with the device activity that it started
  double bytes = 0;               ///< copied or filled
  std::array<int, 3> grid{}, block{};
  int registers = 0;     ///< per thread
  int shared_bytes = 0;  ///< per block, static and dynamic
};

/// Implemented by the plugin. Every function throws GpuProfilerError.
class GpuProfiler {
 public:
  virtual ~GpuProfiler() = default;
  /// "libcupti.so.13 (CUPTI 130001)".
  virtual std::string library() const = 0;
  /// The chip of a GPU as CUPTI names it: "GH100". Queries the driver, and fails where counters are forbidden.
  virtual std::string chip(int gpu) = 0;
  /// Arms the counters and disarms them again: a driver that forbids counters fails here.
  virtual void try_counting(int gpu) = 0;
  /// Which of the metrics the chip has; needs no GPU.
  virtual std::vector<std::string> available(const std::string& chip, const std::vector<std::string>& metrics) = 0;
  /// Number of passes that these metrics need; needs no GPU.
  virtual int passes(const std::string& chip, const std::vector<std::string>& metrics) = 0;
  /// Counts on the primary context of a GPU. Refused during a trace.
  virtual Counted count(int gpu, const CountRequest& request) = 0;
  /// Starts recording all CUDA activity of the process. Kernels keep their speed; launches cost more.
  virtual void start_trace() = 0;
  /// Stops recording; the activities in order of their start.
  virtual std::vector<Activity> stop_trace() = 0;
  /// Kernels of known W and Q for that GPU.
  virtual std::vector<KnownWork> known_work(int gpu) = 0;
};

/// What the plugin's `gable_cupti_plugin()` returns.
struct GpuProfilerEntry {
  const char* version;     ///< gable's exact version; must stay the first member
  GpuProfiler* (*make)();  ///< called once; never released
};

/// The plugin, loaded once: from the subfolder `counters` of the folders in GABLE_BACKEND_PATH, or from the build or
/// install tree. Throws GpuProfilerError(kNoPlugin).
GpuProfiler& gpu_profiler();

}  // namespace gable::perf
