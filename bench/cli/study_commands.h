// The commands that measure and report: bench, ceilings, roofline and plot.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/study_run.h"
#include "bench/console/console.h"
#include "bench/measure/outcome.h"

namespace gable::bench {

ExitCode bench_command(const StudyOptions& options, Console& console);
ExitCode ceilings_command(const StudyOptions& options, Console& console);
ExitCode roofline_command(const StudyOptions& options, Console& console);
struct PlotOptions {
  std::vector<std::string> files;
  std::string out;     ///< folder of the report; empty: none
  bool ascii = false;  ///< print the roofline as text
};
/// Throws Error(invalid_argument) where no file is a study.
ExitCode plot_command(const PlotOptions& options, Console& console);

}  // namespace gable::bench
