// Where numbers come from. Every source of W, Q or T says quantity by quantity what it can give on this machine, or why
// not and what would cure it; nothing falls back in silence to another source. All sources are asked in one way:
// describe a workload, name the quantities, and get each value with its spread and its provenance, or the reason why
// there is none. A source is believed after it has read kernels of known W and Q right: see calibration.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gable::perf {

/// What can be measured. A level's traffic is what that level serves: `l1` is what the core loads and stores, `l2` what
/// the L1s exchange with it (L1's misses and write-backs), `l3` likewise, `dram` what the last level exchanges with
/// memory. They are the bytes under the bandwidth ceilings of the same names.
enum class Metric { flop, l1_bytes, l2_bytes, l3_bytes, dram_bytes, seconds };

/// "W", "Q(l1)", "Q(l2)", "Q(l3)", "Q(dram)", "T".
const char* to_string(Metric metric);

/// The kind of number, best first.
enum class Provenance { counter, simulated, analytic };

/// "counter", "simulated", "analytic".
const char* to_string(Provenance provenance);

/// Whether a source provides one quantity on this machine.
struct Ability {
  Metric metric = Metric::flop;
  bool available = false;
  std::string reason;  ///< why not, in the system's own words; or, where available, under which conditions
  std::string cure;    ///< empty when there is nothing to cure
};

struct SourceStatus {
  std::string name;  ///< "steady_clock", "analytic", "perf_event", "pcm", "callgrind", "cupti"
  bool available = false;
  std::string provides;  ///< what it provides here, or would: "W", "Q(dram)", "T" and their conditions
  std::string reason;    ///< empty when everything in `provides` is available; else why not, in the system's own words
  std::string cure;      ///< empty when there is nothing to cure
  std::vector<Ability> abilities{};  ///< one for each quantity that the source knows
};

/// The ability for that metric; unavailable, with a reason, if the source does not know the metric.
Ability ability(const SourceStatus& status, Metric metric);

/// A number or the reason for its absence.
struct Quantity {
  std::optional<double> value{};  ///< median over the repetitions
  std::string reason{};           ///< why there is no value
  double q1 = 0;                  ///< quartiles; equal to the value where there was one repetition
  double q3 = 0;
  int repetitions = 1;
  /// time_enabled / time_running of the counters behind it. A value is given at 1 alone: above it, it would be an
  /// extrapolation, and `reason` says so.
  double multiplex = 1;
  std::string note{};  ///< limits of this value: what it misses, what was rounded
};

/// Median and quartiles of one quantity over repetitions; the first refusal among them refuses the whole.
Quantity combine(const std::vector<Quantity>& repetitions);

/// The task of a child process (see Workload::child).
struct ChildTask {
  int repetitions = 1;   ///< of the workload inside the measured region
  bool cold = false;     ///< the region begins with empty caches; needs markers
  bool markers = false;  ///< the region is marked for callgrind
};

/// One piece of work with what a source may need around it. Only `run` is mandatory.
struct Workload {
  std::function<void()> run{};      ///< runs the work once and waits for it, also on a GPU
  std::function<void()> restore{};  ///< restores the inputs that run() changed; empty: run() is repeatable as it is
  std::function<void()> flush{};    ///< empties the caches for the next run; empty: runs are warm
  int gpu = -1;                     ///< index of the CUDA device that it runs on; -1: the host
  double seconds = 0;               ///< about what run() takes, summed over its threads; 0: not known
  double flop = 0;                  ///< its analytic W; 0: not known
  std::string dtype{};              ///< of the operands: some units have no event, and only the dtype shows their use
  /// argv of a process that does the same work, for sources that count a separate process.
  std::function<std::vector<std::string>(const ChildTask&)> child{};
};

struct CountOptions {
  std::vector<Metric> metrics{Metric::flop, Metric::l1_bytes, Metric::l2_bytes, Metric::l3_bytes, Metric::dram_bytes};
  int repetitions = 3;
  bool deep = false;           ///< also the named extra values: instruction roofline, stall ratios
  double seconds_limit = 120;  ///< of one child process: a workload that takes longer is refused with that reason
};

/// A source's plan for these options: how often it runs the workload.
struct PassPlan {
  int passes = 1;           ///< runs of the workload for one repetition of all quantities
  std::string explanation;  ///< for people: which quantities share a pass
};

/// A source's values for one workload.
struct Reading {
  std::string source;  ///< the concrete source: "perf_event", "callgrind", "cupti"
  Provenance provenance = Provenance::counter;
  std::map<Metric, Quantity> quantities;  ///< one entry for each requested metric
  std::map<std::string, double> extra;    ///< further values by the vendor's own names
  PassPlan plan;

  /// The quantity; a refused one if it was not requested.
  Quantity at(Metric metric) const;
};

/// A workload of known W and Q, against which a source is calibrated.
struct KnownWork {
  std::string name;  ///< "FMA chain, 8 lanes f32", "triad beyond the caches"
  Workload workload;
  std::map<Metric, double> expected;
  double tolerance = 0.02;  ///< relative
  double allowance = 0;     ///< absolute, in addition to the relative one: for expected zeros
};

class CounterSource {
 public:
  virtual ~CounterSource() = default;

  virtual std::string name() const = 0;
  virtual Provenance provenance() const = 0;
  /// Whether it counts what runs on GPUs; if not, it counts the host.
  virtual bool on_gpu() const { return false; }
  /// Makes cheap checks only; runs no workload.
  virtual SourceStatus status() const = 0;
  /// Plans the passes. Quantities that the source can't provide are left out here and refused by measure().
  virtual PassPlan prepare(const CountOptions& options);
  /// Runs `workload` as often as the plan says. Restores inputs and flushes caches before each run if the workload can.
  /// Never use the time of such a run as T. Throws std::invalid_argument for a workload that lacks what this source
  /// needs
  /// (`run` or `child`).
  virtual Reading measure(const Workload& workload, const CountOptions& options) = 0;
  /// Kernels of known W and Q on this source's device, for its calibration.
  virtual std::vector<KnownWork> known_work() const = 0;
};

/// Every source of W and Q that gable knows, available or not, best first. `helper` is the program for calibration in a
/// child process: `HELPER counted --kernel NAME …` must call run_known_work(). Empty: sources that need a child are not
/// calibrated.
std::vector<std::unique_ptr<CounterSource>> open_counter_sources(const std::string& helper = "");

/// The status of each source, and of those without a reader (analytic, the clock).
std::vector<SourceStatus> counter_sources();

}  // namespace gable::perf
