// What libgable_cupti.so does for this room: it counts metrics around work on an NVIDIA GPU and records what a GPU did.
// The plugin is opened when it is first asked for, and opens CUPTI and the driver itself, so that a machine without
// them runs everything else. Whatever is missing or forbidden is a GpuProfilerError with the reason and the cure.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "perfcounters/sources/source.h"

namespace gable::perf {

/// Codes of what is no error of CUPTI's own (those are above 0).
enum GpuProfilerCode : int {
  kNoPlugin = -1,    ///< libgable_cupti.so is not there, or built for another version of gable
  kNoCupti = -2,     ///< libcupti can't be opened, or is too old
  kNoDriver = -3,    ///< libcuda can't be opened, or does not start
  kNoGpu = -4,       ///< there is no GPU of that number
  kUntrusted = -5,   ///< the counters were read, but can't be right
  kWrongOrder = -6,  ///< counting while a trace runs, or the other way round
  kNoMetric = -7,    ///< the chip has no such metric
  kDriverCall = -8,  ///< a call of the driver failed meanwhile
};

class GpuProfilerError : public std::runtime_error {
 public:
  /// `what` says which call failed and how; `code` is CUPTI's result or a GpuProfilerCode.
  GpuProfilerError(int code, const std::string& what) : std::runtime_error(what), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

/// Why counters can't be read, and what would help.
struct GpuFailure {
  std::string reason;
  std::string cure;  ///< empty when there is nothing to cure
};

/// In words for people: `what` is what failed, as GpuProfilerError::what() has it.
GpuFailure explain_gpu_failure(int code, const std::string& what);

/// Work to count. It is run once for each pass, so inputs that it changes are restored before each run.
struct CountRequest {
  std::vector<std::string> metrics;  ///< CUPTI's names with their rollup: "dram__bytes_read.sum"
  std::function<void()> run;         ///< returns when the device is done
  std::function<void()> before;      ///< before each run, not counted: restores inputs, sweeps caches; may be empty
  int repetitions = 1;               ///< runs that are counted apart
  bool each_kernel = false;          ///< count each kernel apart instead of each run
};

struct Counted {
  std::vector<std::vector<double>> ranges;  ///< one a repetition (or a kernel), each with a value for each metric
  int passes = 0;                           ///< runs that were needed for one set of values
};

/// Something that a GPU or the CUDA API did.
struct Activity {
  enum class Kind { kernel, memcpy, memset, runtime_api, driver_api };
  Kind kind = Kind::kernel;
  std::string name;                  ///< demangled kernel, "[memcpy host to device]", "cudaLaunchKernel"
  std::uint64_t start = 0, end = 0;  ///< nanoseconds of one clock
  std::uint32_t device = 0;
  std::uint32_t lane = 0;         ///< the stream, or the thread that called
  std::uint32_t correlation = 0;  ///< the same for an API call and what it made the device do
  double bytes = 0;               ///< moved or set
  std::array<int, 3> grid{}, block{};
  int registers = 0;     ///< a thread
  int shared_bytes = 0;  ///< a block, static and dynamic
};

/// Implemented by the plugin. Every function throws GpuProfilerError.
class GpuProfiler {
 public:
  virtual ~GpuProfiler() = default;
  /// "libcupti.so.13 (CUPTI 130001)".
  virtual std::string library() const = 0;
  /// The chip of a GPU as CUPTI names it: "GH100". Asks the driver, and fails where counters are forbidden.
  virtual std::string chip(int gpu) = 0;
  /// Arms the counters and disarms them again, which is where a driver that forbids them says so.
  virtual void try_counting(int gpu) = 0;
  /// Which of the metrics the chip has; needs no GPU.
  virtual std::vector<std::string> available(const std::string& chip, const std::vector<std::string>& metrics) = 0;
  /// How often work must run to count them all; needs no GPU.
  virtual int passes(const std::string& chip, const std::vector<std::string>& metrics) = 0;
  /// Counts on the primary context of a GPU. Refused while a trace runs.
  virtual Counted count(int gpu, const CountRequest& request) = 0;
  /// From here on everything that the process does with CUDA is recorded. Kernels run as fast as before, their launches
  /// cost more.
  virtual void start_trace() = 0;
  /// What was recorded since, in the order of starts.
  virtual std::vector<Activity> stop_trace() = 0;
  /// Kernels of known W and Q on that GPU.
  virtual std::vector<KnownWork> known_work(int gpu) = 0;
};

/// What the plugin's `gable_cupti_plugin()` returns.
struct GpuProfilerEntry {
  const char* version;     ///< gable's, exactly; stays first whatever else changes
  GpuProfiler* (*make)();  ///< called once; never released
};

/// The plugin, opened once: from the subfolder `counters` of the folders in GABLE_BACKEND_PATH, or from where it was
/// built or installed. Throws GpuProfilerError(kNoPlugin).
GpuProfiler& gpu_profiler();

}  // namespace gable::perf
