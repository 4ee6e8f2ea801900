// See region_cost.h. The child writes a session as any program does: a region around many empty ones has their pairs,
// and an empty one has what a call's own T has of its pair. A child, since a process listens once, for one session.
#include "perfcounters/program/region_cost.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gable/region.h"
#include "perfcounters/program/launch.h"
#include "perfcounters/program/session.h"

namespace gable::perf {
namespace {

constexpr int kRounds = 5;
constexpr int kPairs = 20000;

void run_empty_regions() {
  for (int round = 0; round < kRounds; ++round) {
    GABLE_REGION("round");
    for (int i = 0; i < kPairs; ++i) {
      GABLE_REGION("empty");
      asm volatile("" ::: "memory");
    }
  }
}

}  // namespace

std::optional<RegionCost> measure_region_cost(const std::string& folder) {
  const auto environment = session_environment(folder, SessionMode::time);
  const pid_t child = fork();
  if (child < 0) return std::nullopt;
  if (child == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    run_empty_regions();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  RegionCost cost;
  for (const RegionRecord& region : read_session(folder).regions) {
    if (region.path == "round") cost.pair = region.times.median / kPairs;
    if (region.path == "round/empty") cost.inside = region.times.median;
  }
  return cost.pair > 0 ? std::optional(cost) : std::nullopt;
}

}  // namespace gable::perf
