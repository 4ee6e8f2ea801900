// From a selection to a judged study, for `gable bench` and `gable roofline`: opens the devices, measures the ceilings
// if they are wanted, then measures, counts and judges the rows. CPUs come first, then GPUs, because a suite may have
// other batch sizes for GPUs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/console/console.h"
#include "bench/measure/ceiling_rounds.h"
#include "bench/measure/energy.h"
#include "bench/measure/measure.h"
#include "bench/measure/outcome.h"
#include "bench/record/study.h"
#include "bench/workloads/selection.h"

namespace gable::bench {

struct CounterOptions {
  std::string mode;         ///< where W and Q come from: parse_counter_mode(); empty: analytic
  double seconds_each = 0;  ///< time limit of one process under a simulation; 0: the default
};

/// What `gable bench --rounds` asks of the processes that it starts. Empty in all others.
struct RoundOptions {
  std::vector<std::size_t> cases;    ///< by index: only these
  std::vector<std::string> devices;  ///< instead of those of --device
  std::string list{};                ///< the file that has the text of --file

  bool empty() const { return cases.empty(); }
};

/// How long and how often rows are timed.
struct EffortOptions {
  std::string cache;   ///< "warm", "cold", "both"; empty: the command's own default
  double seconds = 0;  ///< of one device on one case; 0: the command's own default
  bool quick = false;
  int rounds = 0;  ///< processes that measure the rows of CPUs, each with its part of the time
  RoundOptions round;
};

/// What the user typed.
struct CommandLine {
  std::vector<std::string> words;  ///< behind the program's own name
  std::string text;                ///< for the record
};

/// The options as the user wrote them.
struct StudyOptions {
  SelectionOptions selection;
  std::vector<std::string> devices;  ///< default_devices() if empty
  int threads = 0;
  EffortOptions effort;
  CounterOptions counters;
  bool ceilings = false;  ///< bench: measure them too, for percents of the roof
  bool energy = false;    ///< measure the energy of rows and ceilings, too
  bool resume = false;    ///< goes on with the rows that an interrupted run has left
  CommandLine line;
  std::string out;  ///< folder of roofline's and plot's report
  std::string csv;  ///< bench: file of the rows as a table; empty: none
};

/// What a command derives from its options.
struct StudyPlan {
  MeasureOptions measuring;
  std::function<void(std::vector<Case>&)> adjust;  ///< changes the selected cases; may be empty
  bool little_time = false;                        ///< measures in the order of spread()
  bool ceilings = false;
  bool quick_ceilings = true;
  std::string mode;  ///< for the record: what --quick left out; empty: nothing
  std::string file;  ///< where rows are written as they come; empty: nowhere
};

struct MeasuredStudy {
  Study study;
  RunEntry run;
  ExitCode code = kDone;
};

/// Throws Error(invalid_argument) for misuse, before any device is opened.
MeasuredStudy measure_study(const StudyOptions& options, const StudyPlan& plan, Console& console);

/// "warm", "cold" or "both". Throws Error(invalid_argument).
std::vector<perf::Cache> parse_caches(const std::string& name);

/// Measures rounds of ceilings, the first one in full unless `quick`, with progress on the console, and their energy if
/// that is wanted. The arguments must outlive it.
CeilingSource ceiling_source(const perf::Machine& machine, bool quick, Console& console,
                             EnergyMeasurer* energy = nullptr);

}  // namespace gable::bench
