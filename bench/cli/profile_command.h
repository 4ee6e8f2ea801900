// `gable profile`: where the time of a suite goes, on GPUs from CUPTI's activity records, on CPUs by phases.
#pragma once

#include <string>

#include "bench/cli/study_commands.h"
#include "bench/console/console.h"
#include "bench/measure/outcome.h"

namespace gable::bench {

struct ProfileOptions {
  int runs = 10;      ///< of each case
  bool deep = false;  ///< GPUs: stall reasons of each kernel, from additional runs
  std::string csv;    ///< file of the table
  std::string trace;  ///< file of the Chrome trace
};

/// Throws Error(unavailable) where a GPU can't be traced.
ExitCode profile_command(const StudyOptions& study, const ProfileOptions& options, Console& console);

}  // namespace gable::bench
