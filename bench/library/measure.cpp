// See gable/measure.h. T comes first, before any counter counts: the libraries behind counters could disturb it.
#include <fmt/format.h>
#include <gable/measure.h>
#include <gable/region.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "bench/counting/row_counters.h"
#include "bench/library/own_counters.h"
#include "bench/library/own_row.h"
#include "bench/measure/in_turn.h"
#include "bench/measure/judge.h"
#include "bench/measure/timed_row.h"
#include "perfcounters/machine/gpus.h"

namespace gable {
namespace {

using bench::Row;

[[noreturn]] void refuse(const Callable& one, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("measure '{}': {}", one.name, what));
}

void check_options(const Callable& one) {
  constexpr std::array kDtypes{"f64", "f32", "tf32", "f16", "bf16", "i8"};
  const MeasureOptions& o = one.options;
  if (one.name.empty()) refuse(one, "the name is empty");
  if (!one.call) refuse(one, "the callable is empty");
  if (std::find(kDtypes.begin(), kDtypes.end(), o.dtype) == kDtypes.end())
    refuse(one, fmt::format(".dtype = \"{}\"; must be f64, f32, tf32, f16, bf16 or i8", o.dtype));
  if (o.flop && !(*o.flop >= 0 && std::isfinite(*o.flop)))
    refuse(one, fmt::format(".flop = {}; must be 0 or more", *o.flop));
  if (o.bytes && !(*o.bytes > 0 && std::isfinite(*o.bytes)))
    refuse(one, fmt::format(".bytes = {}; must be above 0, or left out", *o.bytes));
  if (o.threads < 1) refuse(one, fmt::format(".threads = {}; must be 1 or more", o.threads));
  if (o.gpu && *o.gpu < 0) refuse(one, fmt::format(".gpu = {}; must be the index of a GPU, from 0 on", *o.gpu));
  if (!(o.seconds > 0)) refuse(one, fmt::format(".seconds = {}; must be above 0", o.seconds));
  if (o.max_runs < 1) refuse(one, fmt::format(".max_runs = {}; must be 1 or more", o.max_runs));
  if (o.gpu && o.cache == CacheState::cold && !o.flush)
    refuse(one, "a cold run on a GPU needs .flush, which empties its L2");
}

/// What the options name must be there: a row is drawn under the roofs of that GPU, or of so many threads.
void check_machine(const Callable& one) {
  const MeasureOptions& o = one.options;
  const int most = bench::this_machine().threads.online;
  if (!o.gpu && o.threads > most) refuse(one, fmt::format(".threads = {}; this machine has {}", o.threads, most));
  if (!o.gpu) return;
  const perf::GpuCount gpus = perf::count_gpus();
  if (*o.gpu < gpus.count) return;
  throw Error(ErrorCode::unavailable,
              fmt::format("measure '{}': .gpu = {}: {}", one.name, *o.gpu,
                          gpus.count == 0 ? gpus.reason : fmt::format("this process sees {} GPUs", gpus.count)));
}

void check_share_a_round(const Callable& first, const Callable& other) {
  const MeasureOptions &a = first.options, &b = other.options;
  const auto differs = [&](const char* option) {
    refuse(other, fmt::format("{} differs from that of '{}', with which it takes turns", option, first.name));
  };
  if (a.cache != b.cache) differs(".cache");
  if (a.seconds != b.seconds) differs(".seconds");
  if (a.max_runs != b.max_runs) differs(".max_runs");
  if (a.counters != b.counters) differs(".counters");
}

/// Wraps the callable: under `gable measure -- program`, each call is a region with its name, so that the simulation or
/// counters of the whole program see it.
std::function<void()> as_region(const Callable& one) {
  return [&one] {
    const GableRegion region(one.name.c_str(), one.options.flop.value_or(0), one.options.bytes.value_or(0));
    one.call();
  };
}

/// `one` must outlive it.
bench::Turn turn_of(const Callable& one) {
  const MeasureOptions& o = one.options;
  bench::Turn turn{.subject = perf::on_host(as_region(one)), .by_events = static_cast<bool>(o.time)};
  if (o.time) {
    turn.subject.time = [&one](int calls) {
      const double seconds = one.options.time(calls);
      if (!(seconds >= 0 && std::isfinite(seconds)))
        refuse(one, fmt::format(".time returned {} s for {} calls; must be 0 or more", seconds, calls));
      return seconds;
    };
  }
  turn.subject.flush = o.flush;
  turn.first_run = bench::run_first(as_region(one), o.gpu.has_value());
  return turn;
}

perf::Workload workload_of(const Callable& one, const Row& row) {
  const MeasureOptions& o = one.options;
  perf::Workload workload{.run = one.call, .restore = o.restore};
  if (o.cache == CacheState::cold) workload.flush = o.flush ? o.flush : perf::sweep_caches();
  workload.gpu = o.gpu.value_or(-1);
  workload.seconds = row.time.seconds * (o.gpu ? 1 : o.threads);
  workload.flop = o.flop.value_or(0);
  workload.dtype = o.dtype;
  return workload;
}

MeasuredQuantity quantity_of(const bench::Quantity& counted, std::optional<double> declared) {
  MeasuredQuantity quantity{.declared = declared, .note = counted.note, .reason = counted.reason};
  if (counted.is_analytic()) {
    quantity.value = declared;
    if (declared) quantity.source = counted.source;
    return quantity;
  }
  quantity.value = counted.value;
  quantity.source = counted.source;
  quantity.by = counted.by;
  quantity.q1 = counted.spread.q1.value_or(counted.value);
  quantity.q3 = counted.spread.q3.value_or(counted.value);
  quantity.repetitions = counted.spread.repetitions.value_or(1);
  return quantity;
}

perf::Metric metric_of(const std::string& level) {
  if (level == "l1") return perf::Metric::l1_bytes;
  if (level == "l2") return perf::Metric::l2_bytes;
  return level == "l3" ? perf::Metric::l3_bytes : perf::Metric::dram_bytes;
}

/// Adds what the sources say of themselves: the calibration behind a counted value, or why there is none.
void explain(MeasuredQuantity& quantity, perf::Metric metric, const bench::OwnCounters& counters) {
  if (!quantity.by.empty()) {
    quantity.calibration = counters.calibration(quantity.by, metric);
    return;
  }
  const std::string unavailable = counters.unavailable(metric);
  if (!unavailable.empty()) quantity.reason += (quantity.reason.empty() ? "" : "; ") + unavailable;
}

Measurement measurement_of(const Callable& one, const Row& row) {
  Measurement m{.name = one.name, .options = one.options};
  m.time_source = row.time.source;
  m.time = {.seconds = row.time.seconds,
            .q1 = row.time.q1,
            .q3 = row.time.q3,
            .fastest = row.time.fastest.value_or(row.time.q1),
            .runs = row.time.runs,
            .calls_per_run = row.time.calls_per_run.value_or(1)};
  m.work = quantity_of(row.work, one.options.flop);
  for (const auto& [level, bytes] : row.traffic)
    m.traffic[level] = quantity_of(bytes, level == "dram" ? one.options.bytes : std::nullopt);
  m.extra = row.counters.extra;
  return m;
}

Measurement counted(const Callable& one, const Row& timed) {
  const MeasureOptions& o = one.options;
  if (o.counters == CounterUse::declared) return measurement_of(one, timed);
  bench::OwnCounters& counters = bench::own_counters(o.counters, o.gpu.has_value());
  Measurement m = measurement_of(one, counters.rows().count(timed, workload_of(one, timed)));
  explain(m.work, perf::Metric::flop, counters);
  for (auto& [level, bytes] : m.traffic) explain(bytes, metric_of(level), counters);
  return m;
}

void set_flags(Measurement& m) {
  if (!m.is_point()) return;
  std::vector<Row> rows{bench::row_of(m)};
  bench::judge_rows(rows, {}, bench::this_machine());
  m.flags = rows[0].verdict.flags;
}

}  // namespace

bool Measurement::is_point() const {
  const auto dram = traffic.find("dram");
  return work.value && dram != traffic.end() && dram->second.value;
}

std::vector<Measurement> measure_in_turn(const std::vector<Callable>& callables) {
  if (callables.empty()) throw Error(ErrorCode::invalid_argument, "measure_in_turn: there is no callable");
  for (const Callable& one : callables) {
    check_options(one);
    check_machine(one);
    check_share_a_round(callables.front(), one);
    if (one.options.counters == CounterUse::counter)
      bench::own_counters(CounterUse::counter, one.options.gpu.has_value()).require(one.name);
  }
  std::vector<bench::Turn> turns;
  for (const Callable& one : callables) turns.push_back(turn_of(one));
  const MeasureOptions& shared = callables.front().options;
  const auto cache = shared.cache == CacheState::warm ? perf::Cache::warm : perf::Cache::cold;
  const std::vector<perf::Timing> timings =
      bench::time_in_turn(turns, {.cache = cache, .budget = shared.seconds, .max_runs = shared.max_runs});

  std::vector<Measurement> measured;
  for (std::size_t i = 0; i < callables.size(); ++i) {
    const Callable& one = callables[i];
    Row own = bench::own_row(one.name, one.options);
    const Row timed = bench::timed_row(std::move(own.identity), std::move(own.place),
                                       {.time_source = one.options.time ? "event" : "clock",
                                        .timing = timings[i],
                                        .flop = one.options.flop.value_or(0),
                                        .bytes = one.options.bytes.value_or(0)});
    measured.push_back(counted(one, timed));
    set_flags(measured.back());
  }
  return measured;
}

Measurement measure(const std::string& name, const std::function<void()>& call, const MeasureOptions& options) {
  return measure_in_turn({{name, call, options}}).front();
}

}  // namespace gable
