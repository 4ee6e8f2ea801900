// See changed_run.h.
#include "perfcounters/program/changed_run.h"

#include <string>

#include "perfcounters/machine.h"
#include "perfcounters/machine/files.h"
#include "perfcounters/program/launch.h"
#include "perfcounters/program/preload_list.h"
#include "perfcounters/program/time_limit.h"
#include "perfcounters/sources/counter_plugins.h"

namespace gable::perf {
namespace {

/// Makes the change in `what`; false where it can't be made. `folder` is for files that the run needs.
bool make(Change change, const std::string& folder, Launch& what) {
  if (change == Change::one_cpu) {
    const Machine machine = describe_machine();
    if (machine.threads.cpus.empty()) return false;
    what.one_cpu = machine.threads.cpus.front();
    return true;
  }
  const CounterPlugin preloaded = find_counter_plugin("libgable_preload.so");
  if (preloaded.file.empty()) return false;
  const std::string preload = preload_list(preloaded.file, folder);
  if (preload.empty()) return false;
  what.environment.emplace_back("LD_PRELOAD", preload);
  what.environment.emplace_back("GABLE_FLUSH_DENORMALS", "1");
  return true;
}

}  // namespace

std::optional<double> changed_cpu_seconds(const std::vector<std::string>& argv, Change change, double seconds_limit,
                                          int status) {
  Launch what{.argv = argv, .own_streams = false};
  const TemporaryFolder folder("gable_changed_run");
  if (!make(change, folder.path(), what)) return std::nullopt;
  std::optional<TimeLimit> limit;
  what.attach = [&](int pid) { limit.emplace(pid, seconds_limit); };
  const LaunchEnd end = launch(what);
  const bool killed = limit && limit->stop();
  if (killed || end.interrupted || !end.reason.empty() || end.status() != status) return std::nullopt;
  return end.cpu_seconds;
}

}  // namespace gable::perf
