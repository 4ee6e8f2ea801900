// W and Q of programs and of their regions from counters: the arithmetic with injected counts of three CPUs, the words
// of refusals, and, with events of software, that the kernel counts a program with its threads and children.
#include <doctest/doctest.h>
#include <linux/perf_event.h>

#include <array>
#include <cerrno>
#include <map>
#include <memory>

#include "perfcounters/program/perf_counts.h"
#include "tests/perfcounters/fake_perf.h"
#include "tests/perfcounters/session_folder.h"

using namespace gable::perf;

namespace {

constexpr int kPid = 4711;

/// Raw counts by configuration, of the program's process and of the memory controllers.
class ProgramPerf final : public PerfSystem {
 public:
  explicit ProgramPerf(std::map<std::uint64_t, std::uint64_t> counts) : counts_(std::move(counts)) {}
  int open(const PerfEvent& event) override {
    if (event.config == refused_config && (event.program || !only_programs)) return -error;
    if (event.program) CHECK(event.thread == kPid);
    opened_.push_back(event);
    ++alive;
    return static_cast<int>(opened_.size()) - 1;
  }
  void close(int) override { --alive; }
  void start(int leader) override { CHECK_FALSE(opened_.at(static_cast<std::size_t>(leader)).program); }
  void stop(int) override {}
  RawGroup read(int leader, std::size_t members) override {
    CHECK(members == 1);
    return read_alone(leader);
  }
  RawGroup read_alone(int descriptor) override {
    const PerfEvent& event = opened_.at(static_cast<std::size_t>(descriptor));
    return {1000, event.config == multiplexed_config ? 400U : 1000U, {counts_[event.config]}};
  }
  std::vector<int> threads() const override { return {1}; }

  std::uint64_t refused_config = 0, multiplexed_config = 0;
  bool only_programs = false;
  int error = EINVAL;
  int alive = 0;

 private:
  std::map<std::uint64_t, std::uint64_t> counts_;
  std::vector<PerfEvent> opened_;
};

using Counts = std::map<std::uint64_t, std::uint64_t>;

RegionRecord region(const std::string& path, std::int64_t calls, const std::vector<std::uint64_t>& values) {
  RegionRecord record;
  record.path = path;
  record.times.calls = calls;
  for (const std::uint64_t value : values) record.counts.push_back({500, 500, {value}});
  return record;
}

SessionRecords with(std::vector<RegionRecord> regions) {
  SessionRecords records;
  records.regions = std::move(regions);
  return records;
}

void run(ProgramCounts& counts, int number, const SessionRecords& session = {}) {
  counts.attach(kPid, number);
  counts.collect(session);
}

FakeDevices& intel_boxes(FakeDevices& devices) {
  devices.write_box("uncore_imc_0", "event=0x05,umask=0xcf", "event=0x05,umask=0xf0");
  return devices;
}

std::string listed(const ProgramCounts& counts, int number) {
  const auto environment = counts.environment(number);
  return environment.empty() ? "" : environment.front().second;
}

}  // namespace

TEST_CASE("Sapphire Rapids: W by type from a run for each, Q from all boxes, and its regions' of one call") {
  FakeDevices devices;
  intel_boxes(devices);
  const auto system = std::make_shared<ProgramPerf>(Counts{{0x01C7, 5},
                                                           {0x40C7, 100},
                                                           {0x20C7, 7},
                                                           {0x80C7, 1000},
                                                           {0x10CF, 10},
                                                           {0x02B7, 0},
                                                           {0xcf05, 300},
                                                           {0xf005, 100}});
  ProgramCounts counts({sapphire_rapids(), devices.path(), 0, 128}, system);
  REQUIRE(counts.runs() == 3);
  CHECK(listed(counts, 0) ==
        "4:0x1c7:1,4:0x4c7:2,4:0x10c7:4,4:0x40c7:8,14:0xcf05:64:0,14:0xcf05:64:48,14:0xf005:64:0,14:0xf005:64:48");
  CHECK(listed(counts, 1) == "4:0x2c7:1,4:0x8c7:4,4:0x20c7:8,4:0x80c7:16");
  CHECK(listed(counts, 2) == "4:0x1cf:1,4:0x4cf:8,4:0x8cf:16,4:0x10cf:32,4:0x2b7:0");
  // Two processes ran "a" in the first run. Scalar, 128, 256, 512 bits; then reads and writes on two sockets.
  run(counts, 0, with({region("a", 3, {1, 0, 0, 20, 50, 6, 4, 0}), region("a", 1, {3, 0, 0, 0, 0, 0, 0, 0})}));
  run(counts, 1, with({region("a", 2, {0, 1, 1, 1}), region("b", 1, {1, 0, 0, 0})}));
  run(counts, 2, with({region("a", 8, {0, 0, 0, 16, 0})}));
  const ProgramCounts::Work program = counts.program();
  CHECK(program.flop.value == 5 + 100 * 8 + 7 * 8 + 1000 * 16 + 10 * 32);
  CHECK(program.flop_by_type == std::map<std::string, double>{{"f64", 805}, {"f32", 16056}, {"f16", 320}});
  CHECK(program.flop.note == "bf16 dot products (VDPBF16PS) have no event: they are not in it");
  CHECK(program.dram_bytes.value == 2 * (300 + 100) * 64);
  const auto regions = counts.regions();
  CHECK(regions.at("a").flop.value == (4 + 20 * 8) / 4.0 + (4 + 8 + 16) / 2.0 + 16 * 32 / 8.0);
  CHECK(regions.at("a").flop_by_type == std::map<std::string, double>{{"f64", 41}, {"f32", 14}, {"f16", 64}});
  CHECK(regions.at("a").dram_bytes.value == 60 * 64 / 4.0);
  CHECK(regions.at("b").flop.value == 1);
  CHECK_FALSE(regions.at("b").dram_bytes.value.has_value());
  CHECK(system->alive == 0);
}

TEST_CASE("Zen 4: one run; the event counts FLOP itself") {
  FakeDevices devices;
  devices.write("amd_umc_0/type", "30");
  devices.write("amd_umc_0/cpumask", "0");
  const auto system = std::make_shared<ProgramPerf>(Counts{{0x1F03, 5000}, {0x10a, 6}, {0x20a, 1}});
  ProgramCounts counts({zen(0x19, true), devices.path(), 0, 128}, system);
  REQUIRE(counts.runs() == 1);
  CHECK(listed(counts, 0) == "4:0x1f03:1,30:0x10a:64:0,30:0x20a:64:0");
  run(counts, 0, with({region("a", 2, {4000, 5, 1})}));
  CHECK(counts.program().flop.value == 5000);
  CHECK(counts.program().flop_by_type == std::map<std::string, double>{{"", 5000}});
  CHECK(counts.program().dram_bytes.value == 7 * 64);
  CHECK(counts.regions().at("a").flop.value == 2000);
  CHECK(counts.regions().at("a").dram_bytes.value == 3 * 64);
}

TEST_CASE("Neoverse: scalable operations by vector length; no memory controllers, and the reason") {
  const FakeDevices none;
  const auto system = std::make_shared<ProgramPerf>(Counts{{0x80C0, 30}, {0x80C1, 4}});
  ProgramCounts counts({neoverse(), none.path(), 0, 256}, system);
  REQUIRE(counts.runs() == 1);
  CHECK(listed(counts, 0) == "4:0x80c0:2,4:0x80c1:1");
  run(counts, 0, with({region("a", 1, {10, 3})}));
  CHECK(counts.program().flop.value == 64);
  CHECK(counts.program().flop.note == "speculative operations count too");
  CHECK(counts.program().dram_bytes.reason == "the kernel lists no memory-controller PMU (uncore_imc_*, amd_umc_*)");
  CHECK(counts.regions().at("a").flop.value == 23);
  CHECK(counts.regions().at("a").dram_bytes.reason ==
        "the kernel lists no memory-controller PMU (uncore_imc_*, amd_umc_*)");
}

TEST_CASE("busy AMX refuses W of the program, and of the regions that used it") {
  FakeDevices devices;
  const auto system = std::make_shared<ProgramPerf>(Counts{{0x80C7, 1000}, {0x02B7, 77}});
  ProgramCounts counts({sapphire_rapids(), devices.path(), 0, 128}, system);
  run(counts, 0, with({region("amx", 1, {0, 0, 0, 1}), region("avx", 1, {0, 0, 0, 1})}));
  run(counts, 1, with({region("amx", 1, {0, 0, 0, 1}), region("avx", 1, {0, 0, 0, 1})}));
  run(counts, 2, with({region("amx", 1, {0, 0, 0, 0, 77}), region("avx", 1, {0, 0, 0, 0, 0})}));
  CHECK(counts.program().flop.reason == "AMX was busy for 77 cycles, and its operations have no event");
  CHECK(counts.regions().at("amx").flop.reason == "AMX was busy for 77 cycles, and its operations have no event");
  CHECK(counts.regions().at("avx").flop.value == 8 + 16);
}

TEST_CASE("counters that were shared, could not be opened, or mix two threads' work are refused in exact words") {
  FakeDevices devices;
  intel_boxes(devices);
  devices.write("cpu/type", "4");
  SUBCASE("multiplexed") {
    const auto system = std::make_shared<ProgramPerf>(Counts{{0x10C7, 100}});
    system->multiplexed_config = 0x10C7;  // one event of the group is enough
    ProgramCounts counts({icelake(), devices.path(), 0, 128}, system);
    RegionRecord shared = region("a", 1, {1, 1, 1, 1, 1, 1, 1, 1});
    shared.counts[2].time_running = 100;
    run(counts, 0, with({shared}));
    CHECK(counts.program().flop.reason ==
          "the counters ran 400 of 1000 ns: they were shared (multiplexed), and extrapolated counts are no counts");
    CHECK(counts.regions().at("a").flop.reason ==
          "the counters ran 100 of 500 ns: they were shared (multiplexed), and extrapolated counts are no counts");
    CHECK(counts.regions().at("a").dram_bytes.value == 4 * 64);
  }
  SUBCASE("not opened for the program") {
    const auto system = std::make_shared<ProgramPerf>(Counts{});
    system->refused_config = 0x40C7;
    system->only_programs = true;
    system->error = EACCES;
    ProgramCounts counts({icelake(), devices.path(), 1, 128}, system);
    run(counts, 0);
    CHECK(counts.program().flop.reason ==
          "perf_event_open: Permission denied (errno 13), perf_event_paranoid = 1: not permitted");
    CHECK(counts.program().dram_bytes.value == 0);
  }
  SUBCASE("no PMU at all") {
    const auto system = std::make_shared<ProgramPerf>(Counts{});
    system->refused_config = 0x01C7;
    system->error = ENOENT;
    const FakeDevices none;
    Machine guest = icelake();
    guest.system.virtual_machine = true;
    ProgramCounts counts({guest, none.path(), 2, 128}, system);
    CHECK(counts.runs() == 0);
    CHECK(counts.environment(0).empty());
    CHECK(counts.status().reason ==
          "perf_event_open: No such file or directory (errno 2), perf_event_paranoid = 2: no PMU in this virtual "
          "machine");
    CHECK(counts.program().flop.reason == counts.status().reason);
  }
  SUBCASE("regions of two threads, of a process that could not open them, of a listener without events") {
    const auto system = std::make_shared<ProgramPerf>(Counts{});
    ProgramCounts counts({icelake(), devices.path(), 0, 128}, system);
    RegionRecord both = region("both", 1, {1, 1, 1, 1, 1, 1, 1, 1});
    both.overlapped = true;
    RegionRecord closed = region("closed", 1, {1, 1, 1, 1, 1, 1, 1, 1});
    closed.counts[0].values.clear();
    run(counts, 0, with({both, closed, region("none", 1, {})}));
    const auto regions = counts.regions();
    for (const Quantity& quantity : {regions.at("both").flop, regions.at("both").dram_bytes})
      CHECK(quantity.reason == "two threads were in regions at the same time, so their counts can't be told apart");
    CHECK(regions.at("closed").flop.reason ==
          "the program's own process could not open these events (the session's notes have the reason)");
    CHECK(regions.at("none").flop.reason == "the listener read no counters in its process");
  }
  SUBCASE("more memory controllers than a region reads") {
    for (int box = 1; box < 20; ++box)
      devices.write_box("uncore_imc_" + std::to_string(box), "event=0x05,umask=0xcf", "event=0x05,umask=0xf0");
    const auto system = std::make_shared<ProgramPerf>(Counts{{0xcf05, 1}});
    ProgramCounts counts({icelake(), devices.path(), 0, 128}, system);
    run(counts, 0, with({region("a", 1, {1, 0, 0, 0})}));
    CHECK(counts.program().dram_bytes.value == 20 * 2 * 64);
    CHECK(counts.regions().at("a").flop.value == 1);
    CHECK(counts.regions().at("a").dram_bytes.reason ==
          "this machine's memory controllers have 80 events, and a region reads 60 at most");
  }
}

TEST_CASE("the kernel counts a program from its exec on, with its children, and read one by one") {
  const auto system = linux_perf_system();
  int clock = -ENOENT;
  const LaunchEnd end =
      launch({.argv = {"sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done & wait"},
              .own_streams = false,
              .attach = [&](int pid) {
                clock = system->open(
                    {.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_TASK_CLOCK, .thread = pid, .program = true});
              }});
  CHECK(end.status() == 0);
  if (clock < 0) {
    MESSAGE("skipped, no perf_event_open: errno ", -clock);
    return;
  }
  const RawGroup raw = system->read_alone(clock);
  system->close(clock);
  REQUIRE(raw.values.size() == 1);
  CHECK(raw.values[0] > 1000000);  // nanoseconds; the loop is a child's
  CHECK(raw.time_enabled == raw.time_running);
}

TEST_CASE("the listener reads events around regions, and says which it could not open") {
  const SessionFolder folder;
  // Software: the clock of tasks; and one type that no kernel has.
  folder.run({GABLE_REGIONS_APP, "million"}, SessionMode::time, {{"GABLE_SESSION_EVENTS", "1:0x1:1,1:0x2:1"}});
  const SessionRecords records = read_session(folder.path());
  REQUIRE(records.regions.size() == 1);
  const RegionRecord& tiny = records.regions.front();
  REQUIRE(tiny.counts.size() == 2);
  if (tiny.counts[0].values.empty()) {
    MESSAGE("skipped: ", records.notes.front());
    return;
  }
  CHECK(tiny.counts[0].values[0] > 1000000);
  CHECK(tiny.counts[0].time_enabled == tiny.counts[0].time_running);

  const SessionFolder other;
  other.run({GABLE_REGIONS_APP, "c"}, SessionMode::time, {{"GABLE_SESSION_EVENTS", "999:0x1:1,nonsense"}});
  const SessionRecords refused = read_session(other.path());
  REQUIRE(refused.regions.size() == 2);
  CHECK(refused.regions.front().counts.size() == 2);
  CHECK(refused.regions.front().counts[0].values.empty());
  CHECK(any_says(refused.notes, "its regions are not counted: event 999:0x1: "));
}
