// What `gable profile` measured: spans of time, their sums by name, and why warps waited. profile_json.h writes it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/record/row.h"
#include "perfcounters/machine.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::bench {

inline constexpr const char* kGpuActivities = "GPU activities";
inline constexpr const char* kApiCalls = "API calls";
inline constexpr const char* kCpuPhases = "CPU phases";

/// One kernel, copy or fill on a GPU, one call of the CUDA API, or one phase on the CPU.
struct Span {
  std::string group;   ///< one of the three above; each group has its own table
  std::string name;    ///< kernel, call or phase
  std::string device;  ///< the device's URI
  std::string case_name;
  double start = 0;  ///< seconds; all spans share the clock, whose zero is arbitrary
  double seconds = 0;
  unsigned lane = 0;                         ///< stream or thread
  std::optional<perf::Activity> activity{};  ///< CUPTI's record; none for a CPU phase
};

/// All spans of one name in one group on one device.
struct ProfileRow {
  std::string device;
  std::string group;
  std::string name;
  double percent = 0;  ///< of the time of its group on its device
  double total = 0;    ///< seconds, like average, least and greatest
  int calls = 0;
  double average = 0, least = 0, greatest = 0, median = 0;
  double slow_percent = 0;  ///< of total: what calls took beyond the lower quartile of their case's calls
};

/// Why the warps of one kernel of one case waited.
struct KernelStalls {
  std::string device;
  std::string case_name;
  std::string kernel;
  double latency = 0;                     ///< sum of the reasons: a warp's cycles for each instruction
  std::map<std::string, double> reasons;  ///< waiting warps for each issued instruction
};

struct ProfileDocument {
  perf::Machine machine;
  std::string command;  ///< the command line
  int runs = 0;         ///< of each case
  std::vector<ProfileRow> rows;
  std::vector<ProfileRow> hottest;
  std::vector<KernelStalls> stalls;
  std::vector<Refusal> refused;
};

}  // namespace gable::bench
