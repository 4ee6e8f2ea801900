// See timed_row.h.
#include "bench/measure/timed_row.h"

#include <utility>

namespace gable::bench {

Row timed_row(Identity identity, Placement place, const Sample& sample) {
  const perf::Timing& timing = sample.timing;
  Row row;
  row.identity = std::move(identity);
  row.place = std::move(place);
  row.time = {.source = sample.time_source,
              .seconds = timing.seconds,
              .q1 = timing.q1,
              .q3 = timing.q3,
              .fastest = timing.fastest,
              .runs = timing.runs,
              .calls_per_run = timing.calls_per_run};
  row.work = {.value = sample.flop, .analytic = sample.flop};
  row.traffic["dram"] = {.value = sample.bytes, .analytic = sample.bytes};
  return row;
}

}  // namespace gable::bench
