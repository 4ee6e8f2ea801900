// The roofs: this CPU's measured limits of arithmetic and memory traffic, each with its theoretical formula.
// Arithmetic: loops that stay in registers, one a SIMD width, with and without FMA. Bandwidth: reads of working sets
// that fit one cache level and exceed the level above, and STREAM's triad in DRAM. Each for one thread and for all that
// this process may use, every thread pinned to a CPU and reading memory that it touched first.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "perfcounters/machine.h"

namespace gable::perf {

/// A measured limit and the vendor's formula for it.
struct MeasuredLimit {
  double value = 0;  ///< median
  double q1 = 0, q3 = 0;
  int runs = 1;
  std::optional<double> theoretical{};  ///< the formula's value; none where it is not known
  std::string formula{};                ///< with its numbers and assumptions, or why there is none
  std::string note{};                   ///< what is counted, and anything unusual
  int rounds = 1;                       ///< in which it was measured (ladder.h); `value` is that of the best
  std::optional<double> low{}, high{};  ///< of the rounds' medians: how far it drifted; none of one round
  std::string doubt{};                  ///< which other ceiling it contradicts; empty: none
  std::optional<double> per_joule{};    ///< FLOP or bytes a joule, of its own loop (CeilingOptions::hold)
};

struct Ceiling {
  std::string name;  ///< e.g. "avx2 fma f32", "dram triad"; unique together with `threads`
  std::string kind;  ///< "compute" or "bandwidth"
  /// "scalar", "sse4", "avx2", "avx512", "neon", "avx512_bf16", "amx_int8", ...; "l1" ... "dram"
  std::string isa_or_level;
  std::string dtype;      ///< of the operands: "f64", "f32", "f16", "bf16", "i8"; bandwidth is measured with f32
  int threads = 1;        ///< 0: a GPU's
  MeasuredLimit limit{};  ///< FLOP/s (of i8: integer operations a second) or B/s
  std::size_t working_set_bytes = 0;  ///< bandwidth: of all threads together
  double level_bytes = 0;             ///< bandwidth of a GPU: the level's capacity; 0: not known
};

struct CeilingOptions {
  bool quick = false;                            ///< fewer and shorter runs
  bool compute = true;                           ///< measure the arithmetic
  bool bandwidth = true;                         ///< measure the memory levels
  std::set<std::pair<std::string, int>> only{};  ///< names and threads of those to measure; empty: all
  /// Called before each measurement with its name, the number of finished measurements and their total.
  std::function<void(const std::string& next, int done, int total)> progress;
  /// Called after each measurement, if set: `work()` runs the ceiling's loop once more, for about 10 ms or more, and
  /// returns the FLOP or bytes that it did. For what takes longer than a ceiling: its energy.
  std::function<void(Ceiling& ceiling, const std::function<double()>& work)> hold{};
};

/// Measures on `machine`, which must be this one. Full mode takes 10 to 20 s, quick mode 3 to 8 s.
/// Throws std::runtime_error when the system refuses the memory (at most a quarter of what is available).
std::vector<Ceiling> measure_ceilings(const Machine& machine, const CeilingOptions& options = {});

/// Bytes that each thread reads so that its data lie in cache level 1, 2 or 3, or in DRAM (level 0). Either one thread
/// runs or all available threads, which share caches as `machine` says. 0 if there is no such level.
std::size_t working_set(const Machine& machine, int level, bool all_threads);

}  // namespace gable::perf
