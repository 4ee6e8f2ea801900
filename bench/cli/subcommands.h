// The subcommands of `gable`: their options and actions.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "bench/cli/choice_commands.h"
#include "bench/cli/cliffs_command.h"
#include "bench/cli/diff_command.h"
#include "bench/cli/profile_command.h"
#include "bench/cli/program_command.h"
#include "bench/cli/run_conv2d.h"
#include "bench/cli/study_commands.h"
#include "bench/cli/verify_command.h"
#include "bench/console/console.h"
#include "bench/counting/workload_process.h"

namespace gable::bench {

/// The values of all options. Each subcommand reads the ones that it has.
struct Arguments {
  StudyOptions study;
  RunOptions run;
  ProfileOptions profile;
  WorkloadOptions workload;
  CliffOptions cliffs;
  ChoiceOptions choice;
  DiffArguments diff;
  ProgramArguments program;
  RandomVerifyOptions random;
  std::string json;
  bool gpu = false;
  PlotOptions plot;
  std::function<int(Arguments&, Console&)> action;  ///< the chosen subcommand's; returns the exit code
};

/// Adds every subcommand. Parsing sets `arguments.action`; `arguments` must outlive it.
void add_subcommands(CLI::App& app, Arguments& arguments);

}  // namespace gable::bench
