// A program that is not gable's, as a study: it runs once under the clock with its own streams, then again for what the
// counters or the simulation need, with its output thrown away.
#pragma once

#include <string>
#include <vector>

#include "bench/console/console.h"
#include "bench/counting/row_counters.h"
#include "bench/record/study.h"
#include "perfcounters/program/launch.h"

namespace gable::bench {

struct ProgramOptions {
  std::vector<std::string> argv;  ///< the program and its arguments
  CounterMode mode = CounterMode::automatic;
  double counter_seconds = 300;  ///< longest run under a simulation, or that counts GPU kernels
  int top = 20;                  ///< regions, and kernels, with the most time that are kept by themselves
  bool ceilings = false;
  bool quick_ceilings = true;
  bool experiments = false;  ///< runs it up to three times more, to tell what takes its time (findings.h)
  std::string command;       ///< gable's command line, for the record
};

struct ProgramStudy {
  Study study;
  RunEntry run;
  perf::LaunchEnd end;  ///< of the run under the clock
};

/// Call it while a perf::InterruptKeeper lives. Throws Error(unsupported) where the mode names a kind of source that
/// this machine has none of; std::runtime_error where no session folder can be made.
ProgramStudy measure_program(const ProgramOptions& options, Console& console);

}  // namespace gable::bench
