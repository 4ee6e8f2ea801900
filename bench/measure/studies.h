// The commands that measure and report: bench, ceilings, roofline and plot.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/console.h"
#include "bench/cli/selection.h"
#include "bench/measure/outcome.h"

namespace gable::bench {

struct StudyOptions {
  SelectionOptions selection;
  std::vector<std::string> devices;  ///< default_devices() if empty
  int threads = 0;
  std::string cache;   ///< "warm", "cold", "both"; empty: the command's own default
  double seconds = 0;  ///< of one device on one case; 0: the command's own default
  bool quick = false;
  bool ceilings = false;       ///< bench: measure them too, for percents of the roof
  std::string counters;        ///< where W and Q come from: parse_counter_mode(); empty: analytic
  double counter_seconds = 0;  ///< longest run of a process under a simulation; 0: the default
  std::string out;             ///< folder of roofline's and plot's report
  std::string command;         ///< the command line, for the record
};

ExitCode bench_command(const StudyOptions& options, Console& console);
ExitCode ceilings_command(const StudyOptions& options, Console& console);
ExitCode roofline_command(const StudyOptions& options, Console& console);
/// Throws Error(invalid_argument) for a file that is no study.
ExitCode plot_command(const std::vector<std::string>& files, const std::string& out, Console& console);

}  // namespace gable::bench
