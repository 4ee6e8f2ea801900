// perf_event as a source: the events of each CPU, the meaning of their counts, and when they are refused. The system
// call and sysfs are fakes, except in one test.
#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "perfcounters/machine.h"
#include "perfcounters/sources/perf_event.h"
#include "perfcounters/sources/source.h"
#include "tests/perfcounters/fake_perf.h"
#include "tests/tools/comma_locale.h"

using namespace gable::perf;

namespace {

RawGroup whole(std::vector<std::uint64_t> values) { return {1000, 1000, std::move(values)}; }

std::vector<FlopEvent> amd_events() { return flop_groups(zen(0x19, true)).front(); }

/// Returns raw counts by configuration; a core event has the same count on each of two threads.
class FakePerf final : public PerfSystem {
 public:
  explicit FakePerf(std::map<std::uint64_t, std::uint64_t> counts) : counts_(std::move(counts)) {}
  int open(const PerfEvent& event) override {
    if (refused_config == event.config) return -EINVAL;
    opened_.push_back(event);
    leader_of_.push_back(event.leader < 0 ? static_cast<int>(opened_.size()) - 1 : event.leader);
    ++alive;
    return static_cast<int>(opened_.size()) - 1;
  }
  void close(int) override { --alive; }
  void start(int) override { ++started; }
  void stop(int) override {}
  RawGroup read(int leader, std::size_t members) override {
    RawGroup group{1000, multiplexed ? 700U : 1000U, {}};
    for (std::size_t i = 0; i < opened_.size(); ++i)
      if (leader_of_[i] == leader) group.values.push_back(counts_[opened_[i].config]);
    CHECK(group.values.size() == members);
    return group;
  }
  std::vector<int> threads() const override { return {100, 101}; }

  std::uint64_t refused_config = 0;
  bool multiplexed = false;
  int alive = 0;
  int started = 0;

 private:
  std::map<std::uint64_t, std::uint64_t> counts_;
  std::vector<PerfEvent> opened_;
  std::vector<int> leader_of_;
};

const CountOptions kFlopAndBytes{.metrics = {Metric::flop, Metric::dram_bytes}, .repetitions = 1};

/// Reads what `system` counts around nothing, on a machine with these boxes.
Reading read_on(const Machine& machine, const FakeDevices& devices, const std::shared_ptr<FakePerf>& system,
                const std::string& dtype = "f32") {
  PerfEventSource source({machine, devices.path(), 0, 128}, system);
  Workload workload{.run = [] {}};
  workload.dtype = dtype;
  return source.measure(workload, kFlopAndBytes);
}

}  // namespace

TEST_CASE("Intel's counts become FLOP by lanes; an FMA is counted twice by the PMU, not here") {
  const auto groups = flop_groups(icelake());
  REQUIRE(groups.size() == 1);
  const auto& events = groups.front();
  REQUIRE(events.size() == 5);
  CHECK(events.front().config == 0x03C7);
  CHECK(events.back().config == 0x80C7);
  // scalar, 128-bit double, 4 lanes, 8 lanes, 512-bit single
  const Quantity flop = flop_from_counts(events, whole({7, 10, 100, 1000, 10000}));
  REQUIRE(flop.value.has_value());
  CHECK(*flop.value == 7 * 1 + 10 * 2 + 100 * 4 + 1000 * 8 + 10000 * 16);
}

TEST_CASE("f16 is counted by its own events in a second run, and AMX by cycles that are no FLOP") {
  const auto groups = flop_groups(sapphire_rapids());
  REQUIRE(groups.size() == 2);
  const auto& events = groups.back();
  REQUIRE(events.size() == 5);
  CHECK(events[0].config == 0x01CF);
  CHECK(events[3].config == 0x10CF);
  CHECK(events[4].config == 0x02B7);
  const Quantity flop = flop_from_counts(events, whole({3, 10, 100, 1000, 999999}));
  CHECK(flop.value == 3 * 1 + 10 * 8 + 100 * 16 + 1000 * 32);
}

TEST_CASE("AMD's one event counts FLOP itself, with the unit mask of its generation; unknown vendors have no events") {
  CHECK(flop_groups(zen(0x19, true)).front().front().config == 0x1F03);   // Zen 4: with bf16
  CHECK(flop_groups(zen(0x19, false)).front().front().config == 0x0F03);  // Zen 3
  CHECK(flop_groups(zen(0x1a, true)).front().front().config == 0x0F03);   // Zen 5: all types
  CHECK(flop_from_counts(amd_events(), whole({123456})).value == 123456);
  Machine unknown;
  unknown.cpu.vendor = "CyrixInstead";
  CHECK(flop_groups(unknown).empty());
}

TEST_CASE("Arm's scalable operations are counted per 128 bits of vector length") {
  const auto groups = flop_groups(neoverse(), 256);
  REQUIRE(groups.size() == 1);
  CHECK(groups.front()[0].config == 0x80C0);
  CHECK(groups.front()[1].config == 0x80C1);
  CHECK(flop_from_counts(groups.front(), whole({100, 7})).value == 207);
}

TEST_CASE("a multiplexed, an unscheduled and an incomplete group are refused with a reason") {
  const auto events = amd_events();
  const Quantity shared = flop_from_counts(events, RawGroup{1000, 999, {5}});
  CHECK_FALSE(shared.value.has_value());
  CHECK(shared.reason.find("multiplexed") != std::string::npos);
  CHECK(shared.reason.find("999") != std::string::npos);
  const Quantity idle = flop_from_counts(events, RawGroup{1000, 0, {0}});
  CHECK_FALSE(idle.value.has_value());
  CHECK(idle.reason.find("never ran") != std::string::npos);
  CHECK_FALSE(flop_from_counts(events, whole({1, 2})).value.has_value());
  const Quantity wrapped = flop_from_counts(events, whole({~std::uint64_t{0} - 5}));
  CHECK_FALSE(wrapped.value.has_value());
  CHECK(wrapped.reason.find("overflowed") != std::string::npos);
}

TEST_CASE("threads' groups are summed, sleeping ones skipped, one bad group refuses the sum") {
  const auto events = amd_events();
  const RawGroup asleep{0, 0, {0}};
  const std::vector<RawGroup> good{whole({5}), asleep, whole({7})};
  CHECK(flop_from_counts(events, good).value == 12);
  const std::vector<RawGroup> bad{whole({5}), RawGroup{1000, 10, {7}}};
  CHECK_FALSE(flop_from_counts(events, bad).value.has_value());
  CHECK_FALSE(flop_from_counts(events, std::vector<RawGroup>{asleep}).value.has_value());
}

TEST_CASE("event descriptions of sysfs become configurations") {
  CHECK(parse_event_config("event=0x05,umask=0xcf") == 0xcf05);
  CHECK(parse_event_config("event=0x04,umask=0x0f") == 0x0f04);
  CHECK_THROWS_AS(parse_event_config("event=0x05,edge=1"), std::invalid_argument);
  CHECK_THROWS_AS(parse_event_config("nonsense"), std::invalid_argument);
}

TEST_CASE("Intel's memory boxes are read from sysfs: names, scale, one CPU a socket, sub-channels") {
  const gable::test::CommaLocale locale;  // sysfs has C's numbers all the same
  FakeDevices devices;
  for (const std::string box : {"uncore_imc_0/", "uncore_imc_1/"}) {
    devices.write(box + "type", "14");
    devices.write(box + "cpumask", "0,48");
    devices.write(box + "events/cas_count_read", "event=0x05,umask=0xcf");
    devices.write(box + "events/cas_count_read.scale", "6.103515625e-5");
    devices.write(box + "events/cas_count_read.unit", "MiB");
    devices.write(box + "events/cas_count_write", "event=0x05,umask=0xf0");
  }
  devices.write("uncore_imc_2/type", "15");
  devices.write("uncore_imc_2/events/cas_count_read_sch0", "event=0x05,umask=0xcf");
  devices.write("uncore_imc_2/events/cas_count_read_sch1", "event=0x06,umask=0xcf");
  devices.write("uncore_imc_free_running_0/type", "20");
  devices.write("cpu/type", "4");
  const auto events = memory_events(devices.path());
  REQUIRE(events.size() == 6);
  CHECK(events[0].box == "uncore_imc_0");
  CHECK(events[0].type == 14);
  CHECK(events[0].config == 0xcf05);
  CHECK(events[0].cpus == std::vector<int>{0, 48});
  CHECK(events[0].bytes_per_count == doctest::Approx(64));
  CHECK(events[1].config == 0xf005);
  CHECK(events[5].config == 0xcf06);

  std::vector<std::vector<RawGroup>> groups(events.size(), {whole({100}), whole({1})});
  const Quantity bytes = bytes_from_counts(events, groups);
  REQUIRE(bytes.value.has_value());
  CHECK(*bytes.value == doctest::Approx(6 * 101 * 64));
  groups[3][1].time_running = 1;
  const Quantity refused = bytes_from_counts(events, groups);
  CHECK_FALSE(refused.value.has_value());
  CHECK(refused.reason.find("uncore_imc_1/cas_count_write") != std::string::npos);
}

TEST_CASE("AMD's memory controllers count reads and writes of 64 bytes") {
  FakeDevices devices;
  devices.write("amd_umc_0/type", "30");
  devices.write("amd_umc_0/cpumask", "0");
  const auto events = memory_events(devices.path());
  REQUIRE(events.size() == 2);
  CHECK(events[0].config == 0x10a);
  CHECK(events[1].config == 0x20a);
  const std::vector<std::vector<RawGroup>> groups{{whole({10})}, {whole({5})}};
  CHECK(bytes_from_counts(events, groups).value == 15 * 64);
  CHECK_FALSE(bytes_from_counts({}, {}).value.has_value());
}

TEST_CASE("a failed open is explained by its cause: permission, no PMU, seccomp, too few counters") {
  const SourceStatus denied = explain_failure(EACCES, 4, false, true);
  CHECK(denied.reason.find("perf_event_paranoid = 4") != std::string::npos);
  CHECK(denied.cure.find("CAP_PERFMON") != std::string::npos);
  const SourceStatus guest = explain_failure(ENOENT, 2, true, false);
  CHECK(guest.reason.find("no PMU in this virtual machine") != std::string::npos);
  CHECK(explain_failure(ENOSYS, 2, false, true).cure.find("seccomp") != std::string::npos);
  CHECK(explain_failure(EINVAL, 2, false, true).cure.find("nmi_watchdog") != std::string::npos);
}

TEST_CASE("every unavailable source names a reason and a cure; T and analytic are always there") {
  std::map<std::string, SourceStatus> sources;
  for (const SourceStatus& source : counter_sources()) {
    CAPTURE(source.name);
    CHECK_FALSE(source.provides.empty());
    CHECK((source.available || !source.reason.empty()));
    CHECK(source.reason.empty() == source.cure.empty());
    sources[source.name] = source;
  }
  CHECK(sources.at("analytic").available);
  CHECK(sources.at("steady_clock").available);
  CHECK(sources.count("perf_event") == 1);
  CHECK(sources.count("pcm") == 1);
  CHECK(sources.count("cupti") == 1);
  CHECK(sources.count("simulated") == 0);
}

TEST_CASE("Sapphire Rapids: W of two runs on all threads, Q of all boxes on both sockets") {
  const FakeDevices devices;
  devices.write_box("uncore_imc_0", "event=0x05,umask=0xcf", "event=0x05,umask=0xf0");
  devices.write_box("uncore_imc_1", "event=0x05,umask=0xcf", "event=0x05,umask=0xf0");
  const auto system = std::make_shared<FakePerf>(std::map<std::uint64_t, std::uint64_t>{
      {0x80C7, 1000}, {0x03C7, 5}, {0x10CF, 10}, {0x02B7, 0}, {0xcf05, 300}, {0xf005, 100}});
  const Reading reading = read_on(sapphire_rapids(), devices, system);
  CHECK(reading.at(Metric::flop).value == 2 * (1000 * 16 + 5 + 10 * 32));   // two threads
  CHECK(reading.at(Metric::dram_bytes).value == 2 * 2 * (300 + 100) * 64);  // two boxes, two sockets
  CHECK(reading.plan.passes == 2);
  CHECK(reading.extra.at("exe.amx_busy") == 0);
  CHECK(system->alive == 0);  // every counter is given back
}

TEST_CASE("work of units without an event is refused: busy AMX, and Intel's bf16 dot products") {
  const FakeDevices devices;
  const auto busy = std::make_shared<FakePerf>(std::map<std::uint64_t, std::uint64_t>{{0x80C7, 1000}, {0x02B7, 77}});
  const Reading amx = read_on(sapphire_rapids(), devices, busy);
  CHECK_FALSE(amx.at(Metric::flop).value.has_value());
  CHECK(amx.at(Metric::flop).reason.find("154 cycles") != std::string::npos);
  CHECK(amx.extra.at("exe.amx_busy") == 154);
  const auto quiet = std::make_shared<FakePerf>(std::map<std::uint64_t, std::uint64_t>{{0x80C7, 1000}, {0x1F03, 9}});
  CHECK(read_on(icelake(), devices, quiet, "bf16").at(Metric::flop).reason.find("VDPBF16PS") != std::string::npos);
  CHECK(read_on(zen(0x19, true), devices, quiet, "bf16").at(Metric::flop).value == 18);
}

TEST_CASE("Ice Lake, Zen 4 and Neoverse give W and Q by their own encodings") {
  const FakeDevices icx;
  icx.write_box("uncore_imc_0", "event=0x04,umask=0x0f", "event=0x04,umask=0x30");
  const auto intel =
      std::make_shared<FakePerf>(std::map<std::uint64_t, std::uint64_t>{{0x60C7, 100}, {0x0f04, 40}, {0x3004, 2}});
  const Reading on_icx = read_on(icelake(), icx, intel);
  CHECK(on_icx.at(Metric::flop).value == 2 * 100 * 8);
  CHECK(on_icx.at(Metric::dram_bytes).value == 2 * 42 * 64);

  const FakeDevices umc;
  umc.write("amd_umc_0/type", "30");
  umc.write("amd_umc_0/cpumask", "0");
  const auto amd =
      std::make_shared<FakePerf>(std::map<std::uint64_t, std::uint64_t>{{0x1F03, 5000}, {0x10a, 6}, {0x20a, 1}});
  const Reading on_zen = read_on(zen(0x19, true), umc, amd);
  CHECK(on_zen.at(Metric::flop).value == 10000);
  CHECK(on_zen.at(Metric::dram_bytes).value == 7 * 64);

  const FakeDevices none;
  const auto arm = std::make_shared<FakePerf>(std::map<std::uint64_t, std::uint64_t>{{0x80C0, 30}, {0x80C1, 4}});
  const Reading on_neoverse = read_on(neoverse(), none, arm);
  CHECK(on_neoverse.at(Metric::flop).value == 2 * 34);
  CHECK(on_neoverse.at(Metric::dram_bytes).reason.find("no memory-controller PMU") != std::string::npos);
}

TEST_CASE("a group that shares its counters, or does not fit them, is refused whole") {
  const FakeDevices devices;
  devices.write_box("uncore_imc_0", "event=0x04,umask=0x0f", "event=0x04,umask=0x30");
  const auto shared = std::make_shared<FakePerf>(std::map<std::uint64_t, std::uint64_t>{{0x60C7, 100}});
  shared->multiplexed = true;
  const Reading multiplexed = read_on(icelake(), devices, shared);
  CHECK(multiplexed.at(Metric::flop).reason.find("700 of 1000") != std::string::npos);
  CHECK(multiplexed.at(Metric::dram_bytes).reason.find("700 of 1000") != std::string::npos);
  const auto full = std::make_shared<FakePerf>(std::map<std::uint64_t, std::uint64_t>{{0x60C7, 100}, {0x0f04, 1}});
  full->refused_config = 0x80C7;  // the fifth counter of the group
  devices.write("cpu/type", "4");
  const Reading too_many = read_on(icelake(), devices, full);
  CHECK(too_many.at(Metric::flop).reason.find("too few counters") != std::string::npos);
  CHECK(too_many.at(Metric::dram_bytes).value == 2 * 64);
  CHECK(full->alive == 0);
  const SourceStatus status = PerfEventSource({icelake(), devices.path(), 0, 128}, full).status();
  CHECK(status.available);
  CHECK(ability(status, Metric::dram_bytes).available);
  CHECK_FALSE(ability(status, Metric::flop).available);
  CHECK_FALSE(ability(status, Metric::flop).cure.empty());
}

TEST_CASE("perf_event restores and flushes around each run and gives each number or the reason for its absence") {
  PerfEventSource source;
  std::string order;
  const Workload workload{
      .run = [&] { order += 'r'; }, .restore = [&] { order += 'i'; }, .flush = [&] { order += 'f'; }};
  const Reading reading = source.measure(workload, {.metrics = {Metric::flop, Metric::l1_bytes}, .repetitions = 3});
  CHECK(order == "rifrifrifr");  // uncounted once, for its threads
  CHECK(reading.source == "perf_event");
  CHECK(reading.provenance == Provenance::counter);
  REQUIRE(reading.quantities.size() == 2);
  const Quantity flop = reading.at(Metric::flop);
  CHECK(flop.value.has_value() == flop.reason.empty());
  CHECK_FALSE(reading.at(Metric::l1_bytes).value.has_value());
  CHECK(reading.at(Metric::dram_bytes).reason.find("not asked for") != std::string::npos);
  if (!source.status().available) CHECK_FALSE(flop.value.has_value());
  CHECK_THROWS_AS(source.measure({}, {}), std::invalid_argument);
}

TEST_CASE("repetitions become median and quartiles; one refusal among them refuses the whole") {
  const Quantity all = combine({{.value = 30}, {.value = 10}, {.value = 20}});
  CHECK(all.value == 20);
  CHECK(all.q1 == 15);
  CHECK(all.q3 == 25);
  CHECK(all.repetitions == 3);
  const Quantity refused = combine({{.value = 30}, {.reason = "was shared"}});
  CHECK_FALSE(refused.value.has_value());
  CHECK(refused.reason == "was shared");
  CHECK_FALSE(combine(std::vector<Quantity>{}).value.has_value());
}
