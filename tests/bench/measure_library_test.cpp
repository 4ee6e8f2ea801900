// libgable_measure as a program of others sees it: what it measures and refuses, and the record that it writes.
#include <doctest/doctest.h>
#include <gable/measure.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/report/study.h"
#include "perfcounters/sources/child_process.h"
#include "tests/perfcounters/session_folder.h"
#include "tests/tools/expect.h"
#include "tests/tools/out_of_memory.h"

using namespace gable;
using nlohmann::json;

namespace {

/// Options of a short measurement with declared work: its 50 runs end it, not the time, of which a busy machine takes
/// any amount.
MeasureOptions declared(double flop, double bytes) {
  return {.flop = flop, .bytes = bytes, .counters = CounterUse::declared, .seconds = 60};
}

void spin() {
  for (int i = 0; i < 1000; ++i) asm volatile("");
}

Measurement short_measurement(const MeasureOptions& options) { return measure("spin", spin, options); }

}  // namespace

TEST_CASE("T has ordered quartiles and its number of runs; declared W and Q are analytic") {
  const Measurement m = short_measurement(declared(2000, 640));
  CHECK(m.name == "spin");
  CHECK(m.time_source == "clock");
  CHECK(m.time.fastest > 0);
  CHECK(m.time.fastest <= m.time.q1);
  CHECK(m.time.q1 <= m.time.seconds);
  CHECK(m.time.seconds <= m.time.q3);
  CHECK(m.time.runs >= 5);
  CHECK(m.time.runs <= 50);
  CHECK(m.time.calls_per_run > 1);  // a call of a microsecond is batched
  CHECK(m.work.value == 2000);
  CHECK(m.work.source == "analytic");
  CHECK(m.work.by.empty());
  CHECK(m.traffic.at("dram").value == 640);
  CHECK(m.is_point());
  CHECK(m.flops() == doctest::Approx(2000 / m.time.seconds));
  CHECK_FALSE(m.percent_of_roof);
}

TEST_CASE("a callable that takes longer than its budget runs once more than to size it, and keeps that time") {
  int calls = 0;
  MeasureOptions options = declared(1, 1);
  options.seconds = 0.001;
  const auto sleeps = [&] {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  const Measurement m = measure("sleep", sleeps, options);
  CHECK(calls == 1);
  CHECK(m.time.runs == 1);
  CHECK(m.time.seconds >= 0.005);
}

TEST_CASE("callables take turns") {
  std::string order;
  const auto callable = [&](char name) {
    MeasureOptions options = declared(1, 1);
    options.seconds = 60;
    options.max_runs = 6;
    return Callable{std::string(1, name),
                    [&order, name] {
                      order += name;
                      std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    },
                    options};
  };
  const std::vector<Measurement> both = measure_in_turn({callable('A'), callable('B')});
  REQUIRE(both.size() == 2);
  CHECK(both[0].name == "A");
  CHECK(both[1].name == "B");
  std::string turns = order;
  turns.erase(std::unique(turns.begin(), turns.end()), turns.end());
  CHECK(turns.size() >= 12);  // A B for the first run, the warm-up and each sample
}

TEST_CASE("cold runs empty the caches by the caller's own means, where it has some") {
  int flushed = 0;
  MeasureOptions options = declared(1, 1);
  options.cache = CacheState::cold;
  options.max_runs = 5;
  options.flush = [&] { ++flushed; };
  const Measurement m = short_measurement(options);
  CHECK(flushed >= m.time.runs);
  CHECK(m.time.calls_per_run == 1);
}

TEST_CASE("the caller's own clock is taken where it gives one") {
  MeasureOptions options = declared(1e6, 1e6);
  options.time = [](int calls) { return calls * 0.25; };
  const Measurement m = short_measurement(options);
  CHECK(m.time.seconds == 0.25);
  CHECK(m.time_source == "event");
}

TEST_CASE("options that make no sense are refused by name") {
  const auto refused = [](MeasureOptions options) { return message_of([&] { short_measurement(options); }); };
  CHECK(contains(refused({.flop = -1}), ".flop = -1; must be 0 or more"));
  CHECK(contains(refused({.bytes = 0}), ".bytes = 0; must be above 0, or left out"));
  CHECK(contains(refused({.dtype = "double"}), ".dtype = \"double\"; must be f64, f32"));
  CHECK(contains(refused({.threads = 0}), ".threads = 0"));
  CHECK(contains(refused({.gpu = -1}), ".gpu = -1"));
  CHECK(contains(refused({.seconds = 0}), ".seconds = 0; must be above 0"));
  CHECK(contains(refused({.max_runs = 0}), ".max_runs = 0"));
  CHECK(contains(refused({.cache = CacheState::cold, .gpu = 0}), "needs .flush"));
  CHECK(contains(message_of([] { measure("", spin); }), "the name is empty"));
  CHECK(contains(message_of([] { measure("x", {}); }), "measure 'x': the callable is empty"));
  CHECK(contains(message_of([] { measure_in_turn({}); }), "no callable"));
  CHECK(contains(message_of([] {
                   measure_in_turn({{"a", spin, {}}, {"b", spin, {.seconds = 2}}});
                 }),
                 "'b': .seconds differs from that of 'a'"));
  CHECK_THROWS_AS(measure("x", [] { throw std::runtime_error("mine"); }), std::runtime_error);
  for (const double seconds : {-1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)})
    CHECK(contains(refused({.seconds = 0.01, .time = [seconds](int) { return seconds; }}), ".time returned "));
}

TEST_CASE("a GPU that is not there, and more threads than the machine has, are refused") {
  MeasureOptions options = declared(1, 1);
  options.gpu = 1000;
  CHECK(contains(message_of([&] { short_measurement(options); }, ErrorCode::unavailable),
                 "measure 'spin': .gpu = 1000: "));
  options = declared(1, 1);
  options.threads = 1000000;
  CHECK(contains(message_of([&] { short_measurement(options); }), ".threads = 1000000; this machine has "));
}

TEST_CASE("a record takes no measurement that nobody can have measured, and one that was moved from says so") {
  Record record;
  const auto refused = [&](const std::function<void(Measurement&)>& change) {
    Measurement m = short_measurement(declared(2000, 640));
    change(m);
    return message_of([&] { record.add(m); });
  };
  CHECK(contains(message_of([&] { record.add({}); }), "the name is empty"));
  CHECK(contains(refused([](Measurement& m) { m.time.seconds = NAN; }), "'spin': T is nan s; must be above 0"));
  CHECK(contains(refused([](Measurement& m) { m.time.seconds = 0; }), "T is 0 s"));
  CHECK(contains(refused([](Measurement& m) { m.time.q3 = INFINITY; }), "a time of inf s"));
  CHECK(contains(refused([](Measurement& m) { m.work.value = -1; }), "W is -1; must be 0 or more"));
  CHECK(contains(refused([](Measurement& m) { m.traffic["dram"].value = 0; }), "Q(dram) is 0; must be above 0"));
  CHECK(record.measurements().empty());
  Measurement without = short_measurement(declared(2000, 640));
  without.traffic.clear();
  record.add(without);
  CHECK(contains(record.json(), "Q(dram) is not known"));
  const Record other = std::move(record);
  // NOLINTBEGIN(bugprone-use-after-move): that is what is tested
  for (const auto& call : std::initializer_list<std::function<void()>>{
           [&] { record.add(without); }, [&] { record.json(); }, [&] { record.table(); },
           [&] { record.measurements(); }, [&] { record.write("/not/there"); }, [&] { record.measure_ceilings(); }})
    CHECK(contains(message_of(call), "this record was moved from"));
  // NOLINTEND(bugprone-use-after-move)
}

TEST_CASE("counters give W and Q where the machine has some, else the reason is said") {
  MeasureOptions options = declared(2000, 640);
  options.counters = CounterUse::automatic;
  const Measurement m = short_measurement(options);
  if (m.work.source == "counter") {
    CHECK(m.work.by == "perf_event");
    CHECK(contains(m.work.calibration, "checks with known work passed"));
    return;
  }
  CHECK(m.work.value == 2000);
  CHECK(contains(m.work.reason, "perf_event: "));
  CHECK(contains(m.work.reason, "callgrind: it simulates a process of its own"));
  CHECK(contains(m.work.reason, "`gable measure -- program`"));
  options.counters = CounterUse::counter;
  const std::string none = message_of([&] { short_measurement(options); }, ErrorCode::unsupported);
  CHECK(contains(none, "perf_event: "));
  CHECK(contains(none, ".counters is CounterUse::counter, and no counter works here"));
  CHECK_FALSE(contains(none, "--counters"));  // no command was called
}

TEST_CASE("the record is a study that reports read") {
  MeasureOptions options = declared(2000, 640);
  options.dtype = "f32";
  options.problem = "n = 1000";
  Measurement mine_on_two = measure("mine", spin, options);
  mine_on_two.options.threads = 2;
  Record record;
  record.add(mine_on_two);
  options.time = [](int calls) { return calls * 1e-3; };
  Measurement on_gpu = measure("kernel", spin, options);  // of a machine with two GPUs
  on_gpu.options.gpu = 1;
  record.add(on_gpu);
  const auto studies = bench::report::merge({json::parse(record.json())});
  REQUIRE(studies.measurements.size() == 2);
  const bench::Row& mine = studies.measurements[0];
  CHECK(mine.identity.name == "mine");
  CHECK(mine.identity.op == "callable");
  CHECK(mine.identity.suite == "measure_library_test");
  CHECK(mine.identity.problem == "n = 1000");
  CHECK(mine.identity.dtype == "f32");
  CHECK(mine.place.device == "cpu");
  CHECK(mine.place.threads == 2);
  CHECK(mine.place.arithmetic.dtype == "f32");
  CHECK(mine.work.value == 2000);
  CHECK(mine.intensity() == doctest::Approx(2000.0 / 640));
  const bench::Row& kernel = studies.measurements[1];
  CHECK(kernel.on_gpu());
  CHECK(kernel.place.device == "cuda:1");
  CHECK(kernel.place.gpu == 1);
  CHECK_FALSE(kernel.place.threads);
  CHECK(kernel.time.source == "event");
  CHECK(kernel.time.seconds == doctest::Approx(1e-3));
  CHECK(contains(record.table(), "mine"));
  CHECK(record.measurements().size() == 2);
}

TEST_CASE("a measured callable is a region of its name, with its declared work, where somebody listens") {
  const perf::SessionFolder session;
  const perf::LaunchEnd end = session.run({perf::own_executable(), "-tc=T has ordered quartiles*"});
  CHECK(end.exit_code == 0);
  const std::vector<perf::RegionRecord> regions = perf::read_session(session.path()).regions;
  REQUIRE(regions.size() == 1);
  CHECK(regions[0].path == "spin");
  CHECK(regions[0].times.calls > 5);
  CHECK(regions[0].flop == 2000.0 * static_cast<double>(regions[0].times.calls));
  CHECK(regions[0].bytes == 640.0 * static_cast<double>(regions[0].times.calls));
}

TEST_CASE("a measurement without W or Q is no point: the record has its time and the reason") {
  Record record;
  const Measurement m = short_measurement({.counters = CounterUse::declared, .seconds = 60});
  CHECK_FALSE(m.is_point());
  CHECK_FALSE(m.work.value);
  record.add(m);
  const auto studies = bench::report::merge({json::parse(record.json())});
  CHECK(studies.measurements.empty());
  REQUIRE(studies.refused.size() == 1);
  CHECK(studies.refused[0].name == "spin");
  CHECK(contains(studies.refused[0].reason, "T = "));
  CHECK(contains(studies.refused[0].reason, "W is not known: .flop is not declared"));
  CHECK(contains(studies.refused[0].reason, "Q(dram) is not known: .bytes is not declared"));
  CHECK(contains(record.table(), "1 refused"));
}

TEST_CASE("a file is written whole, or an Error names it") {
  Record record;
  record.add(short_measurement(declared(2000, 640)));
  const std::string path = "measure_library_test.json";
  record.write(path);
  std::ifstream file(path);
  CHECK(json::parse(file) == json::parse(record.json()));
  std::remove(path.c_str());
  CHECK(contains(message_of([&] { record.write("/no/such/folder/study.json"); }), "/no/such/folder"));
}

TEST_CASE("a measurement whose allocations fail, one after the other, says so and leaves no memory behind") {
  if (!conformance::can_count_allocations()) return;
  MeasureOptions options = declared(2000, 640);
  options.seconds = 1e-5;
  const auto works_after = [&] { return short_measurement(options).work.value == 2000; };
  CHECK(conformance::out_of_memory_everywhere([&] { short_measurement(options); }, works_after) > 3);
}
