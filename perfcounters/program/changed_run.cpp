// See changed_run.h.
#include "perfcounters/program/changed_run.h"

#include <cstdlib>

#include "perfcounters/machine.h"
#include "perfcounters/program/launch.h"
#include "perfcounters/program/time_limit.h"
#include "perfcounters/sources/counter_plugins.h"

namespace gable::perf {
namespace {

/// Makes the change in `what`; false where it can't be made.
bool make(Change change, Launch& what) {
  if (change == Change::one_cpu) {
    const Machine machine = describe_machine();
    if (machine.threads.cpus.empty()) return false;
    what.one_cpu = machine.threads.cpus.front();
    return true;
  }
  const CounterPlugin preloaded = find_counter_plugin("libgable_preload.so");
  if (preloaded.file.empty()) return false;
  const char* others = std::getenv("LD_PRELOAD");
  what.environment.emplace_back("LD_PRELOAD",
                                others == nullptr || *others == '\0' ? preloaded.file : preloaded.file + ":" + others);
  what.environment.emplace_back("GABLE_FLUSH_DENORMALS", "1");
  return true;
}

}  // namespace

std::optional<double> changed_cpu_seconds(const std::vector<std::string>& argv, Change change, double seconds_limit,
                                          int status) {
  Launch what{.argv = argv, .own_streams = false};
  if (!make(change, what)) return std::nullopt;
  std::optional<TimeLimit> limit;
  what.attach = [&](int pid) { limit.emplace(pid, seconds_limit); };
  const LaunchEnd end = launch(what);
  const bool killed = limit && limit->stop();
  if (killed || end.interrupted || !end.reason.empty() || end.status() != status) return std::nullopt;
  return end.cpu_seconds;
}

}  // namespace gable::perf
