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

/// What kind of number it is, best first.
enum class Provenance { counter, simulated, analytic };

/// "counter", "simulated", "analytic".
const char* to_string(Provenance provenance);

/// Whether a source gives one quantity here.
struct Ability {
  Metric metric = Metric::flop;
  bool available = false;
  std::string reason;  ///< why not, in the system's own words; or, where available, under which conditions
  std::string cure;    ///< empty when there is nothing to cure
};

struct SourceStatus {
  std::string name;  ///< "steady_clock", "analytic", "perf_event", "pcm", "callgrind", "cupti"
  bool available = false;
  std::string provides;  ///< what it gives here, or would give: "W", "Q(dram)", "T" and their conditions
  std::string reason;    ///< empty when everything in `provides` is available; else why not, in the system's own words
  std::string cure;      ///< empty when there is nothing to cure
  std::vector<Ability> abilities{};  ///< one each quantity that the source knows of
};

/// The ability of that metric; one that isn't available, with a reason, where the source does not know of it.
Ability ability(const SourceStatus& status, Metric metric);

/// A number or the reason for which there is none.
struct Quantity {
  std::optional<double> value{};  ///< median over the repetitions
  std::string reason{};           ///< why there is no value
  double q1 = 0;                  ///< quartiles; equal to the value where there was one repetition
  double q3 = 0;
  int repetitions = 1;
  /// time_enabled / time_running of the counters behind it. A value is given at 1 alone: above it, it would be an
  /// extrapolation, and `reason` says so.
  double multiplex = 1;
  std::string note{};  ///< what to know of this value: what it does not see, what was rounded
};

/// Median and quartiles of one quantity over repetitions; the first refusal among them refuses the whole.
Quantity combine(const std::vector<Quantity>& repetitions);

/// What a child process is to do (see Workload::child).
struct ChildTask {
  int repetitions = 1;   ///< of the workload inside the measured region
  bool cold = false;     ///< the region begins with empty caches; needs markers
  bool markers = false;  ///< the region is marked for callgrind
};

/// One piece of work and what a source may need around it. Only `run` is always there.
struct Workload {
  std::function<void()> run{};      ///< once, to its end: on a GPU it returns when the device is done
  std::function<void()> restore{};  ///< makes the inputs what they were before run(); empty: run() may just be repeated
  std::function<void()> flush{};    ///< makes the next run find cold caches; empty: runs are warm
  int gpu = -1;                     ///< index of the CUDA device that it runs on; -1: the host
  double seconds = 0;               ///< about what run() takes, summed over its threads; 0: not known
  double flop = 0;                  ///< its analytic W; 0: not known
  std::string dtype{};              ///< of the operands: units without an event of their own show in it
  /// argv of a process that does the same work, for sources that count around or inside a process of their own.
  std::function<std::vector<std::string>(const ChildTask&)> child{};
};

struct CountOptions {
  std::vector<Metric> metrics{Metric::flop, Metric::l1_bytes, Metric::l2_bytes, Metric::l3_bytes, Metric::dram_bytes};
  int repetitions = 3;
  bool deep = false;           ///< also the named extra values: instruction roofline, stall ratios
  double seconds_limit = 120;  ///< of one child process: a workload that takes longer is refused with that reason
};

/// What a source will do for these options: how often it runs the workload.
struct PassPlan {
  int passes = 1;           ///< runs of the workload for one repetition of all quantities
  std::string explanation;  ///< for people: which quantities share a pass
};

/// What a source read around one workload.
struct Reading {
  std::string source;  ///< the concrete source: "perf_event", "callgrind", "cupti"
  Provenance provenance = Provenance::counter;
  std::map<Metric, Quantity> quantities;  ///< one entry each metric that was asked for
  std::map<std::string, double> extra;    ///< further values by the vendor's own names
  PassPlan plan;

  /// The quantity; a refused one where it was not asked for.
  Quantity at(Metric metric) const;
};

/// A workload of known W and Q, against which a source is calibrated.
struct KnownWork {
  std::string name;  ///< "FMA chain, 8 lanes f32", "triad beyond the caches"
  Workload workload;
  std::map<Metric, double> expected;
  double tolerance = 0.02;  ///< relative
  double allowance = 0;     ///< absolute, beside the relative one: for what should be nothing
};

class CounterSource {
 public:
  virtual ~CounterSource() = default;

  virtual std::string name() const = 0;
  virtual Provenance provenance() const = 0;
  /// Whether it counts what runs on GPUs; if not, it counts the host.
  virtual bool on_gpu() const { return false; }
  /// Tries what is cheap to try; runs no workload.
  virtual SourceStatus status() const = 0;
  /// Plans the passes. Quantities that the source can't give are left out here and refused by measure().
  virtual PassPlan prepare(const CountOptions& options);
  /// Runs `workload` as often as the plan says, restoring its inputs between runs, and flushing before each where it
  /// says how. Never use the time of such a run as T. Throws std::invalid_argument for a workload without what this
  /// source needs (`run`, or `child`).
  virtual Reading measure(const Workload& workload, const CountOptions& options) = 0;
  /// Kernels of known W and Q on this source's device that its readings must agree with.
  virtual std::vector<KnownWork> known_work() const = 0;
};

/// Every source of W and Q that gable knows, available or not, best first. `helper` is the program that can be started
/// for calibration in a child process: it does run_known_work() for the words `counted --kernel NAME …`. Empty: none,
/// and sources that need a child are calibrated by nothing.
std::vector<std::unique_ptr<CounterSource>> open_counter_sources(const std::string& helper = "");

/// The status of each of them, and of what needs no opening (analytic, the clock).
std::vector<SourceStatus> counter_sources();

}  // namespace gable::perf
