// Sources of W, Q and T. For each quantity a source states whether it is available on this machine, or the reason and
// the cure if not. Nothing falls back to another source in silence. All sources have one interface: the caller
// describes a workload and names quantities, and gets each value with its spread and provenance, or the reason for its
// absence. A source is trusted after it has measured kernels of known W and Q correctly: see calibration.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gable::perf {

/// The quantities. A level's traffic is the bytes that it serves: `l1` the core's loads and stores, `l2` the misses and
/// write-backs of the L1s, `l3` those of the L2s, `dram` those of the last level. The bandwidth ceilings of the same
/// names are in these bytes.
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
  std::string provides;  ///< its quantities, available here or not: "W", "Q(dram)", "T", and their conditions
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
  /// time_enabled / time_running of its counters. There is a value only at 1: above 1 it would be extrapolated, and
  /// `reason` says so.
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

/// One piece of work, with the callables that a source may need. Only `run` is mandatory.
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
  bool instructions = false;   ///< also the instruction roofline of a GPU
  bool deep = false;           ///< also the named extra values: instruction roofline, stall ratios
  double seconds_limit = 120;  ///< of one child process: a workload that takes longer is refused with that reason
};

/// A source's plan for these options: how often it runs the workload.
struct PassPlan {
  int passes = 1;           ///< runs of the workload for one repetition of all quantities
  std::string explanation;  ///< for people: which quantities share a pass
};

/// Instructions of a GPU's warps beside the transactions that they caused in a memory ("An Instruction Roofline Model
/// for GPUs", Ding and Williams 2019).
struct InstructionLevel {
  double instructions = 0;
  double transactions = 0;
};

struct InstructionCounts {
  double warp = 0;           ///< instructions of warps
  double thread = 0;         ///< of their threads: at most 32 a warp's
  double thread_active = 0;  ///< of threads that were not predicated off
  /// "l1", "l2", "dram": all of them, and transactions of 32 B. "global", "shared": loads and stores of that memory,
  /// and the sectors of 32 B in L1 or the wavefronts of 128 B that they took. Without transactions there is no entry.
  std::map<std::string, InstructionLevel> levels{};

  /// The share of the warps' 32 threads that did something.
  double active_share() const { return warp > 0 ? thread_active / (32 * warp) : 0; }
};

/// A source's values for one workload.
struct Reading {
  std::string source;  ///< the concrete source: "perf_event", "callgrind", "cupti"
  Provenance provenance = Provenance::counter;
  std::map<Metric, Quantity> quantities;            ///< one entry for each requested metric
  std::map<std::string, double> extra;              ///< further values by the vendor's own names
  std::optional<InstructionCounts> instructions{};  ///< if they were asked for and the source counts them
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
  /// True if it counts GPUs, false if it counts the host.
  virtual bool on_gpu() const { return false; }
  /// Makes cheap checks only; runs no workload.
  virtual SourceStatus status() const = 0;
  /// Plans the passes. Quantities that the source can't provide are left out here and refused by measure().
  virtual PassPlan prepare(const CountOptions& options);
  /// Runs `workload` as often as the plan says. Restores inputs and flushes caches before each run if the workload can.
  /// Never use the time of such a run as T. Throws std::invalid_argument for a workload without the callable that this
  /// source needs (`run` or `child`).
  virtual Reading measure(const Workload& workload, const CountOptions& options) = 0;
  /// Kernels of known W and Q on this source's device, for its calibration.
  virtual std::vector<KnownWork> known_work() const = 0;
  /// A line that names everything that this source's readings of known work depend on, so that they may be kept for
  /// other processes. Empty: they also depend on what else the machine does, and each process calibrates anew.
  virtual std::string calibration_identity() const { return ""; }
};

/// Every source of W and Q that gable knows, available or not, best first. `helper` is the program for calibration in a
/// child process: `HELPER counted --kernel NAME …` must call run_known_work(). Empty: sources that need a child are not
/// calibrated.
std::vector<std::unique_ptr<CounterSource>> open_counter_sources(const std::string& helper = "");

/// The status of each source, and of those without a reader (analytic, the clock).
std::vector<SourceStatus> counter_sources();

}  // namespace gable::perf
