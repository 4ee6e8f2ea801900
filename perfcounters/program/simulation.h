// W and Q of a whole program that is not gable's, and of its regions, without a PMU: the program runs under callgrind,
// once for each level of Q wanted. All its processes are simulated. Threads take turns and share the caches. A process
// that replaces itself by another program (exec) is counted from then on.
//
// W: executions of each instruction times its floating-point operations (perfcounters/sources/instruction_flop.h).
// Q: fills and write-backs of the simulated cache in front of a level (perfcounters/sources/callgrind.h). At the end of
//    each process libgable_preload.so, which the environment preloads, reads as many bytes as that cache holds, so that
//    lines that are still dirty are written back and counted. A process that ends without exit() leaves them out; a
//    note says so. What the kernel moves (zeroing of pages, files) is not seen.
// Regions: the listener (perfcounters/listen) has callgrind dump its counts at each begin and end, with the path of the
//    region that was current as "gable:PATH". A region's values include the regions below it. Lines that a region
//    leaves dirty are written back, and counted, where they are evicted: as with a machine's own counters.
// T is never taken from here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfcounters/program/launch.h"
#include "perfcounters/sources/callgrind_run.h"
#include "perfcounters/sources/instruction_flop.h"
#include "perfcounters/sources/source.h"

namespace gable::perf {

struct SimulationRequest {
  std::vector<std::string> argv;  ///< the program, and its arguments
  /// Any of Metric::flop, dram_bytes, l3_bytes, l2_bytes. Each level takes a run of the program, and any run gives W.
  std::vector<Metric> metrics{Metric::flop, Metric::dram_bytes};
  double seconds_limit = 300;                                      ///< of each run: the program is killed then
  std::vector<std::pair<std::string, std::string>> environment{};  ///< added to this process's own
  CacheGeometries caches = read_cache_geometries();                ///< this machine's, unless a test wants others
};

/// W and Q of the program, or of all calls of one region, including what they call.
struct SimulatedWork {
  std::int64_t calls = 0;                   ///< of a region, in all processes
  std::int64_t counted_calls = 0;           ///< those of them that were counted; the values are scaled to all calls
  std::map<Metric, Quantity> quantities{};  ///< one entry for each metric of the request
  FlopCount flop{};                         ///< W by type and width, and what was not understood
  std::map<std::string, double> events{};   ///< callgrind's: "Ir", "Dr", "D1mr", "Bcm", …; of the run that has W
};

struct SimulatedProgram {
  SimulatedWork whole{};
  std::map<std::string, SimulatedWork> regions{};  ///< by path (RegionRecord::path)
  std::vector<std::string> notes{};                ///< for people: limits of all values
  std::string cure{};                              ///< where values were refused and something can be done about it
  int runs = 0;                                    ///< of the program
  LaunchEnd end{};  ///< of the last run: under valgrind a program may end otherwise than without it
};

/// What is available here, and the reason and the cure for what is not: Metric::flop needs Zydis, the levels need the
/// system's description of its caches, all need valgrind and its header.
SourceStatus simulation_status(const CacheGeometries& caches);

/// Runs the program, with its output thrown away. What can't be had is refused in its Quantity, with the reason. Throws
/// std::invalid_argument for an empty argv or no metrics, std::runtime_error where the system gives no temporary folder
/// or no process.
SimulatedProgram simulate_program(const SimulationRequest& request);

}  // namespace gable::perf
