// The commands that measure and report: bench, ceilings, roofline and plot.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/console.h"
#include "bench/cli/study_run.h"
#include "bench/measure/outcome.h"

namespace gable::bench {

ExitCode bench_command(const StudyOptions& options, Console& console);
ExitCode ceilings_command(const StudyOptions& options, Console& console);
ExitCode roofline_command(const StudyOptions& options, Console& console);
/// Throws Error(invalid_argument) for a file that is no study.
ExitCode plot_command(const std::vector<std::string>& files, const std::string& out, Console& console);

}  // namespace gable::bench
