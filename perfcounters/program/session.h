// What a program that is not gable's left behind when it ran under `gable measure`: its processes, its regions and its
// GPU kernels. The program's own processes write it into a session folder, each process files of its own, from
// libraries that the environment names (launch.h); this side reads the folder after the program has ended, however it
// ended.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "perfcounters/sources/perf_event.h"

namespace gable::perf {

/// Times of many calls. Sum and count include all calls; the quantiles are those of a random sample of at most a few
/// thousand calls.
struct CallTimes {
  std::int64_t calls = 0;
  double seconds = 0;                                           ///< of all calls together, what they call included
  double median = 0, q1 = 0, q3 = 0, fastest = 0, slowest = 0;  ///< of one call
};

struct ProcessRecord {
  int pid = 0, parent = 0;
  std::string command;      ///< its arguments, separated by blanks
  bool ended_well = false;  ///< false: killed, crashed, or left by _exit()
  double seconds = 0;       ///< from its start to its end, to 0.01 s; 0: not known, since it did not end well
  double cpu_seconds = 0;   ///< of all its threads, in the kernel too; 0: not known
};

/// A region: gable/region.h's, or an NVTX range.
struct RegionRecord {
  int pid = 0;
  std::string path;         ///< names from the outermost region on, separated by '/' (a '/' in a name becomes '|')
  std::string origin;       ///< "gable" or "nvtx"
  int threads = 1;          ///< different threads that ran it
  bool overlapped = false;  ///< two threads were inside regions at the same time, so counts can't be told apart
  CallTimes times{};
  double busy_threads =
      0;             ///< CPU time of the process / wall time over its first calls; 0: not known (calls below 20 us)
  double flop = 0;   ///< declared by the program: sum over all calls; 0: none
  double bytes = 0;  ///< the same
  /// Simulated mode: calls whose begin and end split the profile (callgrind's dumps "gable:PATH"). Of a region with
  /// more calls only the first ones do; the others are in their parent's part.
  std::int64_t marked_calls = 0;
  /// Sums over the calls of the events in GABLE_SESSION_EVENTS, in their order (perf_counts.h), one value each; no
  /// value: it could not be opened. Empty: not counted.
  std::vector<RawGroup> counts{};
};

/// All launches of one kernel with one grid, one block and the same arguments from one region of one process on one
/// GPU.
struct KernelRecord {
  int pid = 0;
  int gpu = 0;
  std::string gpu_name;
  std::string name;    ///< demangled
  std::string region;  ///< path of the region that launched it; empty: none
  std::array<int, 3> grid{}, block{};
  std::uint64_t arguments = 0;  ///< a number of what the launches were asked to do; 0: not known, or too many different
  CallTimes times{};            ///< empty after a run that counts
  /// Sums over the counted calls by CUPTI's names, e.g. "dram__bytes_read.sum"; empty after a run that times.
  std::map<std::string, double> metrics{};
  std::int64_t counted_calls = 0;
  double least_instructions = 0, most_instructions = 0;  ///< of one counted call; 0: not known
  std::string reason{};                                  ///< why there are no metrics though they were asked for
  std::int64_t graph_calls = 0;                          ///< those of `times` that were in CUDA graphs
  std::uint64_t graph = 0;  ///< not 0: no kernel, but the whole of a CUDA graph, which has this number in each run
};

struct SessionRecords {
  std::vector<ProcessRecord> processes{};
  std::vector<RegionRecord> regions{};
  std::vector<KernelRecord> kernels{};
  std::vector<KernelRecord> graphs{};  ///< whole launches of CUDA graphs: KernelRecord::graph and times
  bool lacks_kernels = false;          ///< kernels were recorded until that cost too much: later launches are missing
  std::vector<std::string> notes{};    ///< what was lost or refused, for people
};

/// Reads all files of a session folder. A file that is cut off gives what it has and a note; it never throws for
/// content.
SessionRecords read_session(const std::string& folder);

}  // namespace gable::perf
