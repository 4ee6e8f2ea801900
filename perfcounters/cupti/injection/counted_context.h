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

/// Metrics that are counted together.
class MetricSet {
 public:
  MetricSet(const std::string& chip, std::vector<std::string> metrics);

  const std::vector<std::string>& metrics() const { return metrics_; }
  const std::vector<std::uint8_t>& config() const { return config_; }
  std::map<std::string, double> values(const std::vector<std::uint8_t>& counters, std::size_t range) const;

 private:
  std::vector<std::string> metrics_;
  Host host_;
  std::vector<std::uint8_t> config_;
};

class CountedContext {
 public:
  /// `metrics`: those that the chip lacks are left out. Throws GpuProfilerError.
  CountedContext(CUcontext context, const std::vector<std::string>& metrics);

  int gpu() const { return gpu_; }
  const std::string& gpu_name() const { return gpu_name_; }
  CUcontext context() const { return context_; }

  enum class Armed { no, for_launches, for_graph };
  Armed armed() const { return armed_; }

  /// Waits for the context's work, then arms for at most `ranges` launches, each a range of its own.
  void arm_for_launches(std::size_t ranges);
  /// Waits for the context's work, then begins a range for one launch of a CUDA graph, whose kernels CUPTI does not
  /// part. It runs once, so there are only metrics of one pass: instructions, blocks, and bytes of dram.
  void arm_for_graph();
  /// Waits for the context's work; the values of each range by metric.
  std::vector<std::map<std::string, double>> disarm();

  /// Ends all counting in this context, after a failure.
  void abandon();

  std::vector<CountedKernel*> launches;  ///< since it was armed
  std::size_t room = 0;                  ///< launches that it is armed for
  int idle = 0;                          ///< launches since one that was to be counted
  bool failed = false;                   ///< CUPTI refused something: this context is counted no more

 private:
  void arm(const MetricSet& set, RangeMode mode, std::size_t ranges);

  CUcontext context_;
  int gpu_ = 0;
  std::string gpu_name_;
  std::unique_ptr<MetricSet> launch_set_, graph_set_;
  std::unique_ptr<RangeProfiler> profiler_;
  std::vector<std::uint8_t> counters_;
  Armed armed_ = Armed::no;
};

}  // namespace gable::cupti
