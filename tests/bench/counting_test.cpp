// --counters: the source of a row's W and Q, the record's fields for it, and the process that is counted.
#include "bench/counting/row_counters.h"

#include <doctest/doctest.h>
#include <gable/error.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/counting/op_workload.h"
#include "bench/counting/workload_process.h"
#include "bench/measure/energy.h"
#include "bench/measure/judge.h"
#include "bench/measure/timed_row.h"
#include "bench/record/row_json.h"
#include "bench/record/schema.h"
#include "bench/record/study_json.h"
#include "bench/workloads/identity.h"
#include "bench/workloads/suites.h"

using namespace gable;
using namespace gable::bench;
using perf::Metric;
using perf::Provenance;

namespace {

/// A source that gives the values of its constructor and passes its calibration.
class FakeSource final : public perf::CounterSource {
 public:
  FakeSource(std::string name, Provenance provenance, std::map<Metric, double> values, double honesty = 1,
             std::chrono::milliseconds taken = {})
      : name_(std::move(name)), provenance_(provenance), values_(std::move(values)), honesty_(honesty), taken_(taken) {}
  std::string name() const override { return name_; }
  Provenance provenance() const override { return provenance_; }
  perf::SourceStatus status() const override {
    perf::SourceStatus status{name_, !values_.empty(), "what it gives", values_.empty() ? "no PMU" : "",
                              values_.empty() ? "bare metal" : ""};
    for (const auto& [metric, value] : values_) status.abilities.push_back({metric, true, "", ""});
    return status;
  }
  perf::Reading measure(const perf::Workload& workload, const perf::CountOptions& options) override {
    perf::Reading reading{.source = name_, .provenance = provenance_, .quantities = {}, .extra = {}, .plan = {}};
    const bool calibrating = !workload.run;
    // Calibration takes longer than any row.
    std::this_thread::sleep_for(calibrating ? 40 * taken_ : taken_);
    for (const Metric metric : options.metrics) {
      const double value = calibrating ? 1000 * honesty_ : values_.at(metric);
      reading.quantities[metric] = {.value = value, .q1 = value, .q3 = value, .repetitions = 3};
    }
    return reading;
  }
  std::vector<perf::KnownWork> known_work() const override {
    perf::KnownWork known{.name = "known", .workload = {}, .expected = {}, .tolerance = 0.02};
    for (const auto& [metric, value] : values_) known.expected[metric] = 1000;
    return {known};
  }

 private:
  std::string name_;
  Provenance provenance_;
  std::map<Metric, double> values_;
  double honesty_;
  std::chrono::milliseconds taken_;
};

using Sources = std::vector<std::unique_ptr<perf::CounterSource>>;

template <class... Parts>
Sources sources_of(Parts... parts) {
  Sources sources;
  (sources.push_back(std::make_unique<FakeSource>(std::move(parts))), ...);
  return sources;
}

/// One timed row of a small convolution on the reference.
struct TimedRow {
  explicit TimedRow(perf::Cache cache = perf::Cache::warm)
      : devices(open_devices({"reference"}, 0)),
        one{"", "small", Conv2d{.input = {1, 4, 8, 8}, .weights = {4, 4, 3, 3}}},
        data(gable::bench::random_data(one.op)),
        runner(devices.front(), one.op) {
    runner.prepare(data);
    Placement place = runner.placement();
    place.cache = cache == perf::Cache::warm ? "warm" : "cold";
    const Work least = runner.plan().work();
    measured = {&one, &runner,
                timed_row(identity_of(one), place, {"clock", perf::summarize({1e-3}), least.flop, least.bytes()})};
    record = to_json(measured.row);
  }
  std::vector<OpenDevice> devices;
  Case one;
  OpData data;
  /// The row after counting, also as JSON.
  Row count(RowCounters& counters, double seconds = std::numeric_limits<double>::infinity()) {
    counted = counters.count(measured.row, workload_of(measured, "gable"), seconds);
    record = to_json(counted);
    return counted;
  }
  OpRunner runner;
  Measured measured;
  Row counted;
  nlohmann::json record;
};

void check_is_valid(const Row& row) {
  CHECK_NOTHROW(to_json(Study{.rows = {row}}, RunEntry{.machine = perf::describe_machine(), .command = "test"}));
}

WorkloadOptions parsed(std::vector<std::string> words) {
  WorkloadOptions options;
  CLI::App app;
  add_workload_options(app, options);
  std::reverse(words.begin(), words.end());
  app.parse(words);
  return options;
}

}  // namespace

TEST_CASE("auto takes each quantity from the best source that has it, and the row names that source") {
  TimedRow row;
  RowCounters counters(
      CounterMode::automatic,
      sources_of(FakeSource("pmu", Provenance::counter, {{Metric::flop, 20000}}),
                 FakeSource("cachesim", Provenance::simulated,
                            {{Metric::flop, 1}, {Metric::l2_bytes, 9000}, {Metric::dram_bytes, 5000}})),
      60);
  row.count(counters);
  CHECK(row.record["W"]["source"] == "counter");
  CHECK(row.record["W"]["by"] == "pmu");
  CHECK(row.record["W"]["flop"] == 20000);
  CHECK(row.record["W"]["analytic"] == work(row.one.op).flop);
  CHECK(row.record["W"]["ratio"].get<double>() == doctest::Approx(20000 / work(row.one.op).flop));
  CHECK(row.record["Q"]["dram"]["source"] == "simulated");
  CHECK(row.record["Q"]["dram"]["by"] == "cachesim");
  CHECK(row.record["Q"]["l2"]["bytes"] == 9000);
  CHECK_FALSE(row.record["Q"].contains("l3"));
  CHECK(row.record["intensity"] == 4.0);
  CHECK(row.record["gflops"].get<double>() == doctest::Approx(20000 / 1e-3 / 1e9));
  check_is_valid(row.counted);
  CHECK(counters.entry()->sources.at(0).checks.at(0).passed);
}

TEST_CASE("what is wrong with the folder of calibrations is said once, not for each source") {
  const char* const before = std::getenv("GABLE_CACHE");
  const std::string value = before == nullptr ? "" : before;
  setenv("GABLE_CACHE", "relative", 1);
  const RowCounters counters(CounterMode::automatic,
                             sources_of(FakeSource("pmu", Provenance::counter, {{Metric::flop, 20000}}),
                                        FakeSource("cachesim", Provenance::simulated, {{Metric::flop, 1}})),
                             60, perf::CalibrationCache::of_user());
  before == nullptr ? unsetenv("GABLE_CACHE") : setenv("GABLE_CACHE", value.c_str(), 1);
  const std::vector<std::string> lines = counters.summary();
  CHECK(std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
          return line.find("GABLE_CACHE=relative") != std::string::npos;
        }) == 1);
}

TEST_CASE("a mode takes only its own kind of source") {
  const auto sources = [] {
    return sources_of(FakeSource("pmu", Provenance::counter, {{Metric::dram_bytes, 7000}}),
                      FakeSource("cachesim", Provenance::simulated, {{Metric::dram_bytes, 5000}}));
  };
  const auto bytes = [&](CounterMode mode) {
    TimedRow row;
    RowCounters counters(mode, sources(), 60);
    counters.require_sources(kinds_of(row.devices));
    row.count(counters);
    return row.record["Q"]["dram"]["bytes"].get<double>();
  };
  CHECK(bytes(CounterMode::counter) == 7000);
  CHECK(bytes(CounterMode::simulated) == 5000);
  CHECK(bytes(CounterMode::analytic) == work(TimedRow().one.op).bytes());
}

TEST_CASE("a source that fails its calibration is not used: the row stays analytic and its reason has the numbers") {
  TimedRow row;
  RowCounters counters(
      CounterMode::automatic,
      sources_of(FakeSource("liar", Provenance::counter, {{Metric::flop, 5}, {Metric::dram_bytes, 5}}, 3)), 60);
  row.count(counters);
  CHECK(row.record["W"]["source"] == "analytic");
  CHECK(row.record["Q"]["dram"]["source"] == "analytic");
  const std::string reason = row.record["Q"]["dram"]["reason"];
  CHECK(reason.find("liar failed its calibration") != std::string::npos);
  CHECK(reason.find("3000") != std::string::npos);
  check_is_valid(row.counted);
}

TEST_CASE("rows whose tensors stay in the caches keep the least traffic and also state the counted bytes") {
  TimedRow row;
  RowCounters counters(
      CounterMode::simulated,
      sources_of(FakeSource("cachesim", Provenance::simulated, {{Metric::dram_bytes, 0}, {Metric::l2_bytes, 6000}})),
      60);
  row.count(counters);
  CHECK(row.record["Q"]["dram"]["source"] == "analytic");
  CHECK(row.record["Q"]["dram"]["simulated"] == 0);
  CHECK(row.record["Q"]["dram"]["reason"].get<std::string>().find("stay in the caches") != std::string::npos);
  CHECK(row.record["Q"]["l2"]["bytes"] == 6000);
  check_is_valid(row.counted);
}

TEST_CASE("a source that took longer than there is time for a row is not asked, and the row says why") {
  TimedRow row;
  RowCounters counters(
      CounterMode::automatic,
      sources_of(FakeSource("pmu", Provenance::counter, {{Metric::flop, 20000}, {Metric::dram_bytes, 5000}}, 1,
                            std::chrono::milliseconds(50))),
      60);
  CHECK(counters.counts(DeviceKind::cpu));
  CHECK_FALSE(counters.counts(DeviceKind::gpu));
  CHECK_FALSE(RowCounters::has_no_count(row.count(counters, 0.1)));
  CHECK(RowCounters::has_no_count(row.count(counters, 0.001)));
  CHECK(row.record["W"]["reason"] == kNotCounted);
  CHECK(row.record["Q"]["dram"]["reason"] == kNotCounted);
  check_is_valid(row.counted);
  CHECK_FALSE(RowCounters::has_no_count(row.count(counters, 1.9)));  // its calibration took 2 s
  CHECK(RowCounters::has_no_count(row.count(counters, 0)));

  RowCounters none(CounterMode::automatic, sources_of(FakeSource("none", Provenance::counter, {})), 60);
  CHECK_FALSE(none.counts(DeviceKind::cpu));
}

TEST_CASE("a kind of source that does not work here is refused with reason and cure") {
  const TimedRow row;
  const RowCounters counters(CounterMode::counter, sources_of(FakeSource("pmu", Provenance::counter, {})), 60);
  try {
    counters.require_sources(kinds_of(row.devices));
    FAIL("nothing was refused");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unsupported);
    CHECK(std::string(error.what()).find("pmu: no PMU") != std::string::npos);
    CHECK(std::string(error.what()).find("cure: bare metal") != std::string::npos);
  }
  CHECK_NOTHROW(RowCounters(CounterMode::automatic, sources_of(FakeSource("pmu", Provenance::counter, {})), 60)
                    .require_sources(kinds_of(row.devices)));
  CHECK_THROWS_AS(parse_counter_mode("some"), Error);
}

TEST_CASE("traffic that grows towards memory and rates above a ceiling are flagged, also without ceilings") {
  TimedRow row;
  RowCounters counters(
      CounterMode::simulated,
      sources_of(FakeSource("cachesim", Provenance::simulated, {{Metric::l2_bytes, 4000}, {Metric::dram_bytes, 5000}})),
      60);
  row.count(counters);
  std::vector<Row> rows{row.counted};
  judge_rows(rows, {}, perf::describe_machine());
  REQUIRE(rows[0].flagged());
  CHECK(rows[0].verdict.flags[0].find("Q(l2)") != std::string::npos);
  CHECK(rows[0].verdict.bound.empty());
  perf::Ceiling slow{.name = "dram read", .kind = "bandwidth", .isa_or_level = "dram", .dtype = "f32"};
  slow.threads = row.devices.front().threads;
  slow.limit.value = 1e6;
  judge_rows(rows, MachineCeilings{.cpu = {slow}, .gpus = {}}, perf::describe_machine());
  CHECK(rows[0].verdict.flags.size() == 2);
}

TEST_CASE("every op of every suite survives the round trip through the counted process's command line") {
  for (const std::string& name : suite_names()) {
    for (const Case& one : suite(name, false)) {
      CAPTURE(one.name);
      const Op back = op_of(parsed(op_arguments(one.op)));
      CHECK(back == one.op);
    }
  }
  const Op odd = Conv2d{.input = {2, 4, 9, 7},
                        .weights = {6, 2, 3, 1},
                        .stride = {2, 1},
                        .padding = {1, 0, 1, 0},
                        .dilation = {2, 1},
                        .groups = 2,
                        .dtype = DType::f16,
                        .epilogue = {.bias = true, .activation = Activation::tanh, .max_pool = {2, 2}}};
  CHECK(op_of(parsed(op_arguments(odd))) == odd);
  CHECK_THROWS_AS(op_arguments(MaxPool{.input = {1, 1, 4, 4}}), Error);
  CHECK_THROWS_AS(op_of(parsed({"--op", "matmul", "--sizes", "1,2"})), Error);
}

TEST_CASE("--energy: a row has joules of a call, a cold row and a machine without counters the reason") {
  double seconds = 0;
  const auto open = [&](std::optional<int> gpu) -> perf::EnergySource {
    if (gpu) return {.by = "nvml", .reason = "no NVML", .cure = "install it"};
    return {.by = "rapl", .counters = {{"package-0", [&] { return 100 * seconds; }, 0}}, .note = "all CPU packages"};
  };
  const auto clock = [&] { return seconds += 0.005; };
  EnergyMeasurer energy(open, {.seconds = 1, .clock = clock, .nap = [&](double nap) { seconds += nap; }});
  Row row;
  row.time.seconds = 0.02;
  row.work.value = 1e9;
  const perf::Subject subject{.time = [&](int calls) { return seconds += 0.02 * calls, 0.02 * calls; }, .flush = {}};
  energy.measure(row, subject);
  REQUIRE_MESSAGE(row.energy->joules.has_value(), row.energy->reason);
  CHECK(*row.energy->joules == doctest::Approx(2.5));  // 25 ms with the clock's own step
  CHECK(row.energy->by == "rapl");
  CHECK(*row.flop_per_joule() == doctest::Approx(4e8));
  row.place.cache = "cold";
  energy.measure(row, subject);
  CHECK(row.energy->reason.find("sweeping the caches") != std::string::npos);
  Row on_gpu;
  on_gpu.place.kind = DeviceKind::gpu;
  on_gpu.place.gpu = 1;
  energy.measure(on_gpu, subject);
  CHECK(on_gpu.energy->reason == "no NVML");
  REQUIRE(energy.entries().size() == 2);
  CHECK(energy.entries()[0].idle_watts.has_value());
  CHECK(energy.entries()[1].reason == "no NVML");
  CHECK(energy.summary()[1] == "energy of cuda:1: none: no NVML; cure: install it");
  const auto per_joule = energy.per_joule(std::nullopt, [&] { return seconds += 0.02, 1e6; });
  CHECK(*per_joule == doctest::Approx(1e6 / 2.5));
  CHECK_FALSE(energy.per_joule(1, [] { return 1.0; }));

  EnergyMeasurer nowhere([](std::optional<int>) { return perf::EnergySource{.reason = "no /sys/class/powercap"}; });
  nowhere.prepare(std::nullopt);
  CHECK(nowhere.summary() == std::vector<std::string>{"energy: none here: no /sys/class/powercap (cpu)"});
  EnergyMeasurer unwanted;
  Row plain;
  unwanted.measure(plain, subject);
  CHECK_FALSE(plain.energy);
}
