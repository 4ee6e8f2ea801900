// `gable tune` and `gable regret`: measures what `auto` chooses among, and how good its choices are.
#pragma once

#include <string>

#include "bench/console/console.h"
#include "bench/measure/outcome.h"
#include "bench/measure/regret.h"
#include "bench/workloads/selection.h"

namespace gable::bench {

struct ChoiceOptions {
  SelectionOptions selection;
  std::string device = "auto";
  int threads = 0;
  double seconds = 60;    ///< tune: limit of the whole run
  bool again = false;     ///< tune: also ops that were tuned before
  bool ceilings = false;  ///< tune: this machine's ceilings instead of ops
  RegretJob job;          ///< regret
  int rounds = 1;         ///< regret: how often the list is measured, in different orders; medians count
  double geo = 1.05;      ///< regret: exit 1 above it, the geometric mean of a dtype and layout
  double worst = 1.3;     ///< regret: exit 1 above it, one layer
  std::size_t most = 20;  ///< regret: layers to print
  std::string command;    ///< the command line, for the record
};

ExitCode tune_command(const ChoiceOptions& options, Console& console);
ExitCode tune_ceilings_command(const ChoiceOptions& options, Console& console);
/// kCheckFailed where a limit is exceeded.
ExitCode regret_command(const ChoiceOptions& options, Console& console);

}  // namespace gable::bench
