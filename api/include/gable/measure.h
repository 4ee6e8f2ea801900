// T, W and Q of your own code, by the protocol of `gable bench`, in a record that `gable plot` reads. This is a
// separate library: find_package(gable COMPONENTS measure), target gable::measure; pkg-config gable-measure.
//
//   gable::Measurement m = gable::measure("triad", [&] { triad(a, b, c); },
//                                         {.flop = 2.0 * n, .bytes = 32.0 * n, .dtype = "f64"});
//   gable::Record record;
//   record.add(m);
//   record.measure_ceilings();
//   std::printf("%s", record.table().c_str());
//   record.write("study.json");
//
// A measured callable runs many times and must do the same work each time. Calls of this library must not overlap.
#pragma once

#include <gable/error.h>
#include <gable/export.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gable {

enum class CacheState {
  warm,  ///< repeated runs on the same data
  cold,  ///< the caches are emptied before each run, outside the timed part
};

/// Where W and Q come from.
enum class CounterUse {
  automatic,  ///< counters, if the machine has some that read known work correctly; otherwise what is declared
  counter,    ///< counters; an Error if there are none
  declared,   ///< no counter is opened
};
/// How a callable is measured, and what it declares. Designated initialisers need this order.
struct MeasureOptions {
  CacheState cache = CacheState::warm;
  std::optional<double> flop{};   ///< declared W of one call: multiplications and additions, an FMA is two
  std::optional<double> bytes{};  ///< declared Q of one call: the least bytes that memory must read and write
  std::string dtype = "f64";      ///< of the arithmetic: "f64", "f32", "tf32", "f16", "bf16" or "i8"; chooses the roof
  int threads = 1;                ///< that the callable runs on, on a CPU
  std::optional<int> gpu{};       ///< index of the NVIDIA GPU that does the work; the callable must wait for it
  CounterUse counters = CounterUse::automatic;
  double seconds = 1;     ///< of running; a callable that takes longer runs once
  int max_runs = 50;      ///< samples; a short callable is called several times for each
  std::string problem{};  ///< for readers of the record: "n = 16777216"

  /// Runs the work `calls` times and returns their seconds, by events of a GPU, for example. Empty: the host's clock.
  std::function<double(int calls)> time{};
  std::function<void()> flush{};    ///< empties the caches for a cold run. Required on a GPU; a CPU's are swept without
  std::function<void()> restore{};  ///< called before each counted run: restores inputs that the callable changed
};

/// T of one call, in seconds.
struct MeasuredTime {
  double seconds = 0;                  ///< median
  double q1 = 0, q3 = 0, fastest = 0;  ///< quartiles, least
  int runs = 0;                        ///< samples
  int calls_per_run = 1;               ///< of a sample
};

/// W in FLOP, or Q at one level in bytes.
struct MeasuredQuantity {
  std::optional<double> value{};     ///< of one call; empty: neither declared nor counted
  std::optional<double> declared{};  ///< what the options declared
  std::string source{};              ///< "counter", or "analytic" for a declared value; empty without a value
  std::string by{};                  ///< the counter's source: "perf_event" or "cupti"
  double q1 = 0, q3 = 0;             ///< of a counted value
  int repetitions = 0;               ///< of a counted value
  std::string calibration{};         ///< of a counted value: how many checks with known work its source passed
  std::string note{};                ///< limits of the value
  std::string reason{};              ///< why no counter gave the value: what each source lacks here
};
/// What measure() found.
struct GABLE_API Measurement {
  std::string name{};
  MeasureOptions options{};
  std::string time_source{};  ///< "clock" or "event"
  MeasuredTime time{};
  MeasuredQuantity work{};                            ///< W
  std::map<std::string, MeasuredQuantity> traffic{};  ///< Q by level: "dram" always, "l3", "l2", "l1" where counted
  std::map<std::string, double> extra{};              ///< further values of the counters, by the vendors' names
  std::vector<std::string> flags{};                   ///< contradictions between the numbers, a sentence each

  // Under ceilings; set in Record::measurements() after Record::measure_ceilings().
  std::optional<double> percent_of_roof{};
  std::string bound{};  ///< "compute", "memory:dram", ..., "overhead"; empty: no ceiling was measured
  std::string roof{};   ///< the ceiling that limits it

  double flops() const { return work.value.value_or(0) / time.seconds; }  ///< FLOP/s; 0 without W
  /// A point of the roofline has both W and Q(dram).
  bool is_point() const;
};

/// A callable for measure_in_turn().
struct Callable {
  std::string name{};
  std::function<void()> call{};
  MeasureOptions options{};
};

/// Measures T, then W and Q in further runs. Throws Error(invalid_argument) for an empty name or callable and for
/// options that make no sense or ask for more threads than the machine has, Error(unavailable) if there is no GPU of
/// that index, and Error(unsupported) if CounterUse::counter finds no counters. Exceptions of the callable pass
/// through.
GABLE_API Measurement measure(const std::string& name, const std::function<void()>& call,
                              const MeasureOptions& options = {});

/// The same for several callables that take turns (A B A B ...), so that drift of the machine's clock does not affect
/// their ratios. Their `cache`, `seconds`, `max_runs` and `counters` must be equal.
GABLE_API std::vector<Measurement> measure_in_turn(const std::vector<Callable>& callables);

/// A study: measurements with the machine and its ceilings.
class GABLE_API Record {
 public:
  Record();
  ~Record();
  Record(Record&&) noexcept;
  Record& operator=(Record&&) noexcept;

  /// Adds a measurement. Without W or without Q(dram) it is no point of a roofline: the record then lists it as
  /// refused, with its time and the reason. Throws Error(invalid_argument) for impossible numbers, such as T = 0.
  void add(const Measurement& measurement);

  /// Measures the ceilings of the CPU, and of each GPU that a measurement ran on, and judges all measurements: 10 to 30
  /// seconds, `quick` 4 to 10.
  void measure_ceilings(bool quick = true);

  /// All measurements, as points under the ceilings if those were measured.
  std::vector<Measurement> measurements() const;

  /// The table of `gable bench`.
  std::string table() const;
  /// The study as JSON (docs/record.md).
  std::string json() const;
  /// Writes json() to a file, whole or not at all. Throws Error(invalid_argument) with the system's reason.
  void write(const std::string& path) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gable
