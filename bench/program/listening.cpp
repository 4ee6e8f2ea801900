// See listening.h.
#include "bench/program/listening.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/common/text.h"

namespace gable::bench {
namespace {

constexpr double kMostPart = 0.02;  // as of recording GPU kernels

bool is_inside(const perf::RegionRecord& region, const std::string& path) {
  return region.path.size() > path.size() && region.path.compare(0, path.size(), path) == 0 &&
         region.path[path.size()] == '/';
}

/// Seconds of the begins and ends in a part's time. The program has all of them.
double listening_seconds(const MeasuredPart& part, const std::vector<perf::RegionRecord>& regions,
                         const perf::RegionCost& cost) {
  double seconds = 0;
  for (const perf::RegionRecord& region : regions) {
    const auto calls = static_cast<double>(region.times.calls);
    if (part.kind == "program" || is_inside(region, part.name)) {
      seconds += calls * cost.pair;
    } else if (region.path == part.name && region.origin == part.called.origin) {
      seconds += calls * cost.inside;
    }
  }
  return seconds;
}

}  // namespace

std::string flag_listening(std::vector<MeasuredPart>& parts, const std::vector<perf::RegionRecord>& regions,
                           const perf::RegionCost& cost, double cpu_seconds) {
  std::string note;
  for (MeasuredPart& part : parts) {
    const bool is_program = part.kind == "program";
    if (!is_program && part.kind != "region") continue;
    // Threads of a program run regions at the same time; a region's seconds are those of all its calls.
    const double time = is_program ? std::max(part.called.seconds, cpu_seconds) : part.called.seconds;
    const double seconds = listening_seconds(part, regions, cost);
    if (seconds <= kMostPart * time) continue;
    part.flags.push_back(
        fmt::format("T is too long: begins and ends of regions take about {:.0f} % of it while gable listens",
                    std::min(100.0, 100 * seconds / time)));
    if (!is_program) continue;
    double calls = 0;
    for (const perf::RegionRecord& region : regions) calls += static_cast<double>(region.times.calls);
    note = fmt::format(
        "{:.0f} calls of regions at {} each, for their begins and ends while gable listens, took about {}: the "
        "program is so much faster alone. Put regions around more work",
        calls, seconds_text(cost.pair), seconds_text(seconds));
  }
  return note;
}

}  // namespace gable::bench
