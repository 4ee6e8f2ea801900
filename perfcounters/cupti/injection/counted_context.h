// The range profiler of one context of the program: armed before launches that are to be counted, disarmed after them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "perfcounters/cupti/host.h"
#include "perfcounters/cupti/range_profiler.h"

namespace gable::cupti {

/// Blocks of a launch: shows whether a range belongs to it.
inline constexpr const char* kBlocks = "sm__ctas_launched.sum";

struct CountedKernel;

/// Makes a context current for the calling thread; the destructor restores the previous one.
class MadeCurrent {
 public:
  explicit MadeCurrent(CUcontext context);
  ~MadeCurrent();
  MadeCurrent(const MadeCurrent&) = delete;
  MadeCurrent& operator=(const MadeCurrent&) = delete;
};

class CountedContext {
 public:
  /// Metrics that the chip lacks are left out. Throws GpuProfilerError.
  CountedContext(CUcontext context, const std::vector<std::string>& metrics);

  int gpu() const { return gpu_; }
  const std::string& gpu_name() const { return gpu_name_; }
  CUcontext context() const { return context_; }

  enum class Armed { no, for_traffic, for_work, for_graph };
  Armed armed() const { return armed_; }
  /// Whether there are metrics to count in that state.
  bool can(Armed what) const;

  /// Waits for the context's work, then arms: for_traffic and for_work for a number of launches, each a range of its
  /// own; for_graph for one launch of a CUDA graph, whose kernels CUPTI does not tell apart.
  ///   traffic  dram, L2 and instructions, in one pass: the kernel runs once, with the caches as it finds them
  ///   work     all others: the kernel runs several times, and CUPTI restores the memory that it writes
  ///   graph    instructions and dram, in one pass
  void arm(Armed what);
  /// Waits for the context's work; the values of each range by metric.
  std::vector<std::map<std::string, double>> disarm();

  /// Ends all counting in this context, after a failure.
  void abandon();

  std::vector<CountedKernel*> launches;  ///< since it was armed
  std::size_t room = 0;                  ///< launches that it is armed for
  int idle = 0;                          ///< launches since one that was to be counted
  bool failed = false;                   ///< CUPTI refused something: this context is counted no more

 private:
  const MetricSet* set_for(Armed what) const;

  CUcontext context_;
  int gpu_ = 0;
  std::string gpu_name_;
  std::unique_ptr<MetricSet> traffic_, work_, graph_;
  std::unique_ptr<RangeProfiler> profiler_;
  std::vector<std::uint8_t> counters_;
  Armed armed_ = Armed::no, last_ = Armed::no;
};

}  // namespace gable::cupti
