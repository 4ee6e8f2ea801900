// Plans the measurements, runs them on pinned threads and adds each formula.
#include "perfcounters/ceilings/ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "perfcounters/ceilings/arena.h"
#include "perfcounters/ceilings/loops.h"
#include "perfcounters/ceilings/pinned_team.h"
#include "perfcounters/interrupt.h"
#include "perfcounters/timing.h"

namespace gable::perf {
namespace {

constexpr std::size_t kGrain = 256 * sizeof(float);  // the loops' counts are multiples of 256 floats

std::size_t round_down(std::size_t bytes) { return std::max(kGrain, bytes / kGrain * kGrain); }

using Clock = std::chrono::steady_clock;

struct Effort {
  int runs;
  double sample_seconds;
  Clock::time_point retry_until;  ///< after this nothing is measured twice
};

Effort effort(bool quick) {
  const auto now = Clock::now();
  return quick ? Effort{5, 0.010, now + std::chrono::seconds(4)} : Effort{9, 0.025, now + std::chrono::seconds(14)};
}

// One measurement: `run(thread, iterations)`, each iteration counting `units` FLOP or bytes on each thread.
struct Kernel {
  std::function<void(int, std::int64_t)> run;
  double units = 0;
};

// Takes the fastest of a few runs, because a thread may wait for its CPU in a single run.
double quickest_run(PinnedTeam& team, const Kernel& kernel, std::int64_t iterations, int tries) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < tries; ++i)
    least = std::min(least, team.run([&](int thread) { kernel.run(thread, iterations); }));
  return least;
}

// The number of iterations that takes about `wanted` seconds.
std::int64_t calibrate(PinnedTeam& team, const Kernel& kernel, double wanted) {
  std::int64_t iterations = 1;
  double taken = quickest_run(team, kernel, iterations, 3);
  while (taken < wanted / 4 && iterations < (std::int64_t{1} << 40)) {
    iterations *= taken < wanted / 64 ? 8 : 2;
    taken = quickest_run(team, kernel, iterations, 2);
  }
  const double scale = wanted / std::max(taken, 1e-9);
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(iterations) * scale));
}

Timing sample_once(PinnedTeam& team, const Kernel& kernel, const Effort& effort) {
  const std::int64_t iterations = calibrate(team, kernel, effort.sample_seconds);
  const double work = kernel.units * static_cast<double>(iterations) * team.size();
  std::vector<double> rates;
  for (int run = 0; run < effort.runs; ++run) rates.push_back(work / quickest_run(team, kernel, iterations, 1));
  return summarize(std::move(rates));
}

bool disturbed(const Timing& rates) { return rates.q3 - rates.q1 > 0.1 * rates.seconds; }

// Measures again if the samples of the first attempt disagree, and keeps the higher rate: other programs can only lower
// it.
Timing sample(PinnedTeam& team, const Kernel& kernel, const Effort& effort) {
  Timing rates = sample_once(team, kernel, effort);
  if (!disturbed(rates) || Clock::now() > effort.retry_until) return rates;
  Timing again = sample_once(team, kernel, effort);
  return again.seconds > rates.seconds ? again : rates;
}

void add_note(Ceiling& ceiling, const std::string& text) {
  if (text.empty()) return;
  if (!ceiling.limit.note.empty()) ceiling.limit.note += "; ";
  ceiling.limit.note += text;
}

void fill(Ceiling& ceiling, const Timing& rates) {
  ceiling.limit.value = rates.seconds;  // the samples are rates: their median
  ceiling.limit.q1 = rates.q1;
  ceiling.limit.q3 = rates.q3;
  ceiling.limit.runs = rates.runs;
  if (disturbed(rates)) add_note(ceiling, "samples differ by more than a tenth: other programs were running");
}

// The threads of one configuration and the clock that they reach when all run.
struct Configuration {
  std::unique_ptr<PinnedTeam> team;
  int cores = 1;
  double clock_hz = 0;
  bool all = false;
};

// Clock speed drifts with the load of the whole chip: formulas use the highest clock seen in a configuration.
void observe_clock(Configuration& where, double seconds) {
  std::vector<double> clocks(static_cast<std::size_t>(where.team->size()));
  where.team->run([&](int thread) { clocks[static_cast<std::size_t>(thread)] = measure_clock_hz(seconds); });
  std::sort(clocks.begin(), clocks.end());
  where.clock_hz = std::max(where.clock_hz, quantile(clocks, 0.5));
}

Configuration configuration(const Machine& machine, bool all) {
  const std::vector<int> cpus(machine.threads.cpus.begin(),
                              all ? machine.threads.cpus.end() : machine.threads.cpus.begin() + 1);
  Configuration made{.team = std::make_unique<PinnedTeam>(cpus), .cores = all ? machine.threads.cores : 1, .all = all};
  observe_clock(made, 0.03);
  return made;
}

class Progress {
 public:
  Progress(const CeilingOptions& options, int total) : options_(options), total_(total) {}
  void next(const std::string& name, int threads) {
    if (options_.progress)
      options_.progress(fmt::format("{} ({} thread{})", name, threads, threads == 1 ? "" : "s"), done_, total_);
    ++done_;
  }
  void finish() const {
    if (options_.progress) options_.progress("done", total_, total_);
  }

 private:
  const CeilingOptions& options_;
  int done_ = 0;
  int total_;
};

// ---- arithmetic

// Instructions for each cycle as a whole number, from the one-thread measurement: the least number of units. FMA loops
// reach their units' rate, so it is rounded; mixed loops lose a little to scheduling, so it is rounded up.
double inferred_rate(const ComputeLoop& loop, double flops, double clock_hz) {
  if (loop.instructions_per_cycle_known > 0) return loop.instructions_per_cycle_known;
  const double measured = flops / (clock_hz * loop.flop_per_instruction);
  return std::max(1.0, loop.fma ? std::round(measured) : std::ceil(measured - 0.1));
}

void add_compute_formula(Ceiling& ceiling, const ComputeLoop& loop, const Configuration& where,
                         std::map<std::string, double>& single_thread_rates) {
  if (where.clock_hz <= 0) {
    ceiling.limit.formula = "not known: this architecture's clock cannot be measured";
    return;
  }
  if (!where.all) single_thread_rates[ceiling.name] = inferred_rate(loop, ceiling.limit.value, where.clock_hz);
  const double rate = single_thread_rates[ceiling.name];
  const double measured_rate = ceiling.limit.value / (where.clock_hz * where.cores * loop.flop_per_instruction);
  ceiling.limit.theoretical = where.clock_hz * where.cores * loop.flop_per_instruction * rate;
  const std::string clock =
      fmt::format("{:.2f} GHz x {} core{}", where.clock_hz * 1e-9, where.cores, where.cores == 1 ? "" : "s");
  if (loop.instructions_per_cycle_known > 0)
    ceiling.limit.formula =
        fmt::format("{} x {} {} per tile product / {:.0f} cycles (vendor's rate)", clock, loop.flop_per_instruction,
                    loop.dtype == "i8" ? "operations" : "FLOP", 1 / loop.instructions_per_cycle_known);
  else if (!loop.fma)
    ceiling.limit.formula =
        fmt::format("{} x {} lane{} x {:.0f} instructions a cycle (measured {:.2f}, rounded up)", clock,
                    loop.flop_per_instruction, loop.flop_per_instruction == 1 ? "" : "s", rate, measured_rate);
  else
    ceiling.limit.formula =
        fmt::format("{} x {} lane{} x 2 (FMA) x {:.0f} FMA unit{} (measured {:.2f} a cycle, rounded)", clock,
                    loop.flop_per_instruction / 2, loop.flop_per_instruction == 2 ? "" : "s", rate, rate > 1 ? "s" : "",
                    measured_rate);
}

/// Lets the caller run a ceiling's loop for longer.
void hold(const CeilingOptions& options, PinnedTeam& team, const Kernel& kernel, Ceiling& ceiling) {
  if (!options.hold) return;
  constexpr double kSeconds = 0.01;
  const std::int64_t iterations = calibrate(team, kernel, kSeconds);
  const double work = kernel.units * static_cast<double>(iterations) * team.size();
  options.hold(ceiling, [&] {
    team.run([&](int thread) { kernel.run(thread, iterations); });
    return work;
  });
}

/// One call of measure_ceilings().
struct Run {
  const Machine& machine;
  const CeilingOptions& options;
  Effort effort;
  Progress progress;
  std::vector<Ceiling> ceilings{};

  bool wants(const std::string& name, const Configuration& where) const {
    return options.only.empty() || options.only.contains({name, where.team->size()});
  }
};

void measure_compute(Run& run, Configuration& where, const std::vector<ComputeLoop>& loops,
                     std::map<std::string, double>& single_thread_rates) {
  const std::size_t first = run.ceilings.size();
  std::vector<const ComputeLoop*> measured;
  for (const ComputeLoop& loop : loops) {
    if (!run.wants(loop.name(), where)) continue;
    measured.push_back(&loop);
    Ceiling ceiling{.name = loop.name(), .kind = "compute", .isa_or_level = loop.isa, .dtype = loop.dtype};
    ceiling.threads = where.team->size();
    run.progress.next(ceiling.name, ceiling.threads);
    const Kernel kernel{[&](int, std::int64_t n) { loop.run(n); },
                        static_cast<double>(loop.flop_per_instruction) * loop.instructions_per_iteration};
    fill(ceiling, sample(*where.team, kernel, run.effort));
    hold(run.options, *where.team, kernel, ceiling);
    if (!where.team->pinned()) add_note(ceiling, "threads could not be pinned");
    observe_clock(where, 0.004);
    run.ceilings.push_back(std::move(ceiling));
  }
  // Formulas come last, when the clock that the loops ran at is known.
  for (std::size_t i = 0; i < measured.size(); ++i)
    add_compute_formula(run.ceilings[first + i], *measured[i], where, single_thread_rates);
}

// ---- memory

// Last-level cache bytes within reach of one thread, or of all.
std::size_t last_level_bytes(const Machine& machine, bool all) {
  const std::size_t bytes = machine.caches.l3.bytes > 0 ? machine.caches.l3.bytes : machine.caches.l2.bytes;
  const int instances = machine.caches.l3.bytes > 0 ? machine.caches.l3.instances : machine.caches.l2.instances;
  return bytes * static_cast<std::size_t>(all ? std::max(1, instances) : 1);
}

// One of the three arrays of the triad, all threads together: four times the last level, at most a twelfth of the free
// memory, so that three arrays take a quarter of it.
std::size_t dram_array_bytes(const Machine& machine, bool all) {
  const std::size_t wanted = 4 * last_level_bytes(machine, all);
  const std::size_t allowed = machine.memory.available_bytes / 12;
  return machine.memory.available_bytes == 0 ? wanted : std::min(wanted, allowed);
}

struct Level {
  std::string name;
  int number;  // 0: DRAM
};

std::vector<Level> levels(const Machine& machine) {
  std::vector<Level> found{{"l1", 1}, {"l2", 2}};
  if (machine.caches.l3.bytes > 0) found.push_back({"l3", 3});
  found.push_back({"dram", 0});
  return found;
}

void add_bandwidth_formula(Ceiling& ceiling, const Configuration& where, int level) {
  if (level == 0) {
    ceiling.limit.formula = "not known: channels x transfers a second x 8 B; neither is visible to a process";
    return;
  }
  if (where.clock_hz <= 0) {
    ceiling.limit.formula = "not known: this architecture's clock cannot be measured";
    return;
  }
  const std::size_t per_cycle = level == 1 ? 2 * load_bytes() : level == 2 ? 64 : 32;
  ceiling.limit.theoretical = where.clock_hz * where.cores * static_cast<double>(per_cycle);
  const std::string bytes = level == 1 ? fmt::format("2 loads x {} B", load_bytes()) : fmt::format("{} B", per_cycle);
  ceiling.limit.formula = fmt::format("{:.2f} GHz x {} core{} x {} a cycle (assumed)", where.clock_hz * 1e-9,
                                      where.cores, where.cores == 1 ? "" : "s", bytes);
}

using Arenas = std::vector<std::unique_ptr<Arena>>;

// Three arrays a thread, touched by the thread that will use them.
Arenas make_arenas(const Machine& machine, Configuration& where) {
  const auto threads = static_cast<std::size_t>(where.team->size());
  std::size_t bytes = dram_array_bytes(machine, where.all) / threads;
  for (const Level& level : levels(machine))
    if (level.number != 0) bytes = std::max(bytes, working_set(machine, level.number, where.all) / 3 + kGrain);
  Arenas arenas(threads);
  std::atomic<bool> complete{true};
  where.team->run([&](int thread) {
    auto& arena = arenas[static_cast<std::size_t>(thread)];
    arena = std::make_unique<Arena>(3 * round_down(bytes));
    if (arena->data() == nullptr)
      complete = false;
    else
      std::fill_n(arena->data(), arena->bytes() / sizeof(float), 1.0F);
  });
  if (!complete)
    throw std::runtime_error(fmt::format("{} MiB for measuring bandwidth were refused; {} MiB seemed available",
                                         threads * 3 * bytes >> 20, machine.memory.available_bytes >> 20));
  return arenas;
}

/// Goes through each thread's arrays in pieces, repeatedly. A sample then takes the wanted time instead of that of a
/// pass through several times the last-level cache.
class Pieces {
 public:
  Pieces(std::size_t floats, std::size_t threads) : next_(threads, 0) {
    constexpr std::size_t kPieceFloats = (std::size_t{16} << 20) / sizeof(float);
    count_ = std::max<std::size_t>(1, floats / kPieceFloats);
    floats_ = round_down(floats / count_ * sizeof(float)) / sizeof(float);
  }

  std::size_t floats() const { return floats_; }
  /// Where the thread's next piece begins.
  std::size_t next(std::size_t thread) { return next_[thread]++ % count_ * floats_; }

 private:
  std::size_t count_ = 1, floats_ = 0;
  std::vector<std::size_t> next_;
};

/// Other programs move memory, too: longer samples than those of loops that stay in a core.
Effort of_dram(Effort effort) {
  effort.sample_seconds *= 4;
  return effort;
}

Ceiling bandwidth_ceiling(const std::string& name, const Level& level, const Configuration& where) {
  Ceiling ceiling{.name = name, .kind = "bandwidth", .isa_or_level = level.name, .dtype = "f32"};
  ceiling.threads = where.team->size();
  add_bandwidth_formula(ceiling, where, level.number);
  return ceiling;
}

std::string dram_note(const Machine& machine, const Configuration& where, std::size_t array_bytes) {
  const double ratio = static_cast<double>(array_bytes) / static_cast<double>(last_level_bytes(machine, where.all));
  if (ratio >= 3.9) return "";
  return fmt::format("an array is only {:.1f} times the last-level cache, as memory is short", ratio);
}

void measure_reads(Run& run, Configuration& where, const Arenas& arenas) {
  const Machine& machine = run.machine;
  for (const Level& level : levels(machine)) {
    if (!run.wants(level.name + " read", where)) continue;
    Ceiling ceiling = bandwidth_ceiling(level.name + " read", level, where);
    run.progress.next(ceiling.name, ceiling.threads);
    const std::size_t array = arenas[0]->bytes() / 3;
    const std::size_t bytes = level.number == 0 ? array : round_down(working_set(machine, level.number, where.all));
    std::vector<float> sums(arenas.size());
    Pieces pieces(bytes / sizeof(float), arenas.size());
    const bool in_dram = level.number == 0;
    const Kernel kernel{[&](int thread, std::int64_t passes) {
                          const auto t = static_cast<std::size_t>(thread);
                          if (!in_dram) {
                            sums[t] = read_loop(arenas[t]->data(), bytes / sizeof(float), passes);
                            return;
                          }
                          for (std::int64_t pass = 0; pass < passes; ++pass)
                            sums[t] += read_loop(arenas[t]->data() + pieces.next(t), pieces.floats(), 1);
                        },
                        static_cast<double>(in_dram ? pieces.floats() * sizeof(float) : bytes)};
    fill(ceiling, sample(*where.team, kernel, in_dram ? of_dram(run.effort) : run.effort));
    hold(run.options, *where.team, kernel, ceiling);
    ceiling.working_set_bytes = bytes * arenas.size();
    add_note(ceiling, fmt::format("reads {} KiB a thread again and again; counts 4 B a float read", bytes >> 10));
    if (level.number == 0) add_note(ceiling, dram_note(machine, where, bytes * arenas.size()));
    run.ceilings.push_back(std::move(ceiling));
  }
}

void measure_triads(Run& run, Configuration& where, const Arenas& arenas) {
  for (const bool streaming : {false, true}) {
    const std::string name = streaming ? "dram triad nt" : "dram triad";
    if (!run.wants(name, where)) continue;
    Ceiling ceiling = bandwidth_ceiling(name, {"dram", 0}, where);
    run.progress.next(ceiling.name, ceiling.threads);
    const std::size_t array = arenas[0]->bytes() / 3;
    const std::size_t count = array / sizeof(float);
    Pieces pieces(count, arenas.size());
    const Kernel kernel{[&](int thread, std::int64_t passes) {
                          const auto t = static_cast<std::size_t>(thread);
                          for (std::int64_t pass = 0; pass < passes; ++pass) {
                            float* a = arenas[t]->data() + pieces.next(t);
                            triad_loop(a, a + count, a + 2 * count, pieces.floats(), 1, streaming);
                          }
                        },
                        3.0 * static_cast<double>(pieces.floats() * sizeof(float))};
    fill(ceiling, sample(*where.team, kernel, of_dram(run.effort)));
    hold(run.options, *where.team, kernel, ceiling);
    ceiling.working_set_bytes = 3 * array * arenas.size();
    add_note(ceiling, streaming ? "a = b + s c with non-temporal stores; counts 12 B an element, all that is moved"
                                : "a = b + s c; counts 12 B an element (STREAM); 16 B are moved where a store first "
                                  "reads its line");
    add_note(ceiling, dram_note(run.machine, where, array * arenas.size()));
    run.ceilings.push_back(std::move(ceiling));
  }
}

}  // namespace

std::size_t working_set(const Machine& machine, int level, bool all_threads) {
  const auto share = [&](std::size_t bytes, int sharers) {
    return bytes / static_cast<std::size_t>(all_threads ? std::max(1, sharers) : 1);
  };
  const std::size_t l1 = share(machine.caches.l1d.bytes, machine.caches.l1d.sharers);
  const std::size_t l2 = share(machine.caches.l2.bytes, machine.caches.l2.sharers);
  const std::size_t l3 = share(machine.caches.l3.bytes, machine.caches.l3.sharers);
  switch (level) {
    case 1:
      return l1 / 2;
    case 2:
      return std::max(2 * l1, l2 / 2);
    case 3:
      if (machine.caches.l3.bytes == 0) return 0;
      // The geometric mean stays clear of both sizes, even if a virtual machine owns less of the L3 than it is told. If
      // a core's share of a victim L3 is hardly larger than its L2, the two capacities add up.
      if (l3 >= 4 * l2) return static_cast<std::size_t>(std::sqrt(static_cast<double>(l2) * static_cast<double>(l3)));
      return l2 + l3 / 2;
    default:
      return dram_array_bytes(machine, all_threads) /
             static_cast<std::size_t>(all_threads ? std::max(1, machine.threads.available) : 1);
  }
}

std::vector<Ceiling> measure_ceilings(const Machine& machine, const CeilingOptions& options) {
  std::vector<ComputeLoop> loops;
  if (options.compute) {
    for (const auto& loops_of_type : {f32_loops, f64_loops, half_precision_loops, i8_loops})
      for (ComputeLoop& loop : loops_of_type()) loops.push_back(std::move(loop));
  }
  std::map<std::string, double> single_thread_rates;
  const int configurations = machine.threads.available > 1 ? 2 : 1;
  const int bandwidths = options.bandwidth ? static_cast<int>(levels(machine).size()) + 2 : 0;
  const int all = configurations * (static_cast<int>(loops.size()) + bandwidths);
  const int measurements = options.only.empty() ? all : static_cast<int>(options.only.size());
  Run run{.machine = machine,
          .options = options,
          .effort = effort(options.quick),
          .progress = Progress(options, measurements)};
  try {
    for (int i = 0; i < configurations; ++i) {
      Configuration where = configuration(machine, i == 1);
      measure_compute(run, where, loops, single_thread_rates);
      if (!options.bandwidth) continue;
      const Arenas arenas = make_arenas(machine, where);
      measure_reads(run, where, arenas);
      measure_triads(run, where, arenas);
    }
    run.progress.finish();
  } catch (const Interrupted&) {  // what was measured is kept
  }
  return std::move(run.ceilings);
}

}  // namespace gable::perf
