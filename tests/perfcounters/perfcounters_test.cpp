// What perfcounters promises: arithmetic of counts and of samples, ceilings in a plausible order, honest refusals.
// Tests of measured values allow for a noisy machine; everything else is exact.
#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "perfcounters/ceilings/arena.h"
#include "perfcounters/ceilings/ceilings.h"
#include "perfcounters/ceilings/loops.h"
#include "perfcounters/machine.h"
#include "perfcounters/roofline/roofline.h"
#include "perfcounters/sources/perf_event.h"
#include "perfcounters/sources/source.h"
#include "perfcounters/timing.h"

using namespace gable::perf;

namespace {

namespace fs = std::filesystem;

// A folder that looks like /sys/bus/event_source/devices.
class FakeDevices {
 public:
  FakeDevices() : root_(fs::temp_directory_path() / ("gable_devices_" + unique())) {}
  ~FakeDevices() { fs::remove_all(root_); }
  FakeDevices(const FakeDevices&) = delete;
  FakeDevices& operator=(const FakeDevices&) = delete;
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  std::string path() const { return root_.string(); }

 private:
  static std::string unique() { return std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()); }
  fs::path root_;
};

RawGroup whole(std::vector<std::uint64_t> values) { return {1000, 1000, std::move(values)}; }

Machine cpu_of(const std::string& vendor, int family, std::vector<std::string> simd) {
  Machine machine;
  machine.vendor = vendor;
  machine.family = family;
  machine.simd = std::move(simd);
  return machine;
}

Machine icelake() { return cpu_of("GenuineIntel", 6, {"avx512f"}); }
Machine sapphire_rapids() { return cpu_of("GenuineIntel", 6, {"avx512f", "avx512_bf16", "avx512_fp16", "amx_tile"}); }
Machine zen(int family, bool bf16) {
  return cpu_of("AuthenticAMD", family, bf16 ? std::vector<std::string>{"avx512_bf16"} : std::vector<std::string>{});
}
Machine neoverse() { return cpu_of("0x41", 0, {"neon", "sve"}); }

std::vector<FlopEvent> amd_events() { return flop_groups(zen(0x19, true)).front(); }

/// Hands out raw counts by configuration: a core event's is the same on each of two threads.
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

void describe_box(const FakeDevices& devices, const std::string& box, const char* read, const char* write) {
  devices.write(box + "/type", "14");
  devices.write(box + "/cpumask", "0,48");
  devices.write(box + "/events/cas_count_read", read);
  devices.write(box + "/events/cas_count_write", write);
}

const CountOptions kFlopAndBytes{.metrics = {Metric::flop, Metric::dram_bytes}, .repetitions = 1};

/// Reads what `system` counts around nothing, on a machine with these boxes.
Reading read_on(const Machine& machine, const FakeDevices& devices, const std::shared_ptr<FakePerf>& system,
                const std::string& dtype = "f32") {
  PerfEventSource source({machine, devices.path(), 0, 128}, system);
  Workload workload{.run = [] {}};
  workload.dtype = dtype;
  return source.measure(workload, kFlopAndBytes);
}

Ceiling compute(const std::string& name, const std::string& dtype, int threads, double value) {
  Ceiling ceiling{.name = name, .kind = "compute", .isa_or_level = name, .dtype = dtype};
  ceiling.threads = threads;
  ceiling.value = value;
  return ceiling;
}

Ceiling bandwidth(const std::string& level, int threads, double value) {
  Ceiling ceiling{.name = level + " read", .kind = "bandwidth", .isa_or_level = level, .dtype = "f32"};
  ceiling.threads = threads;
  ceiling.value = value;
  return ceiling;
}

// A machine of 4 threads: 100 GFLOP/s a thread, bf16 unit of 800, DRAM saturated by two threads.
std::vector<Ceiling> small_machine() {
  return {compute("sse4", "f32", 1, 50e9),  compute("avx2", "f32", 1, 100e9), compute("sse4", "f32", 4, 200e9),
          compute("avx2", "f32", 4, 400e9), compute("amx", "bf16", 1, 800e9), compute("amx", "bf16", 4, 3200e9),
          bandwidth("l1", 1, 400e9),        bandwidth("l1", 4, 1600e9),       bandwidth("l2", 1, 200e9),
          bandwidth("l2", 4, 800e9),        bandwidth("l3", 1, 100e9),        bandwidth("l3", 4, 300e9),
          bandwidth("dram", 1, 20e9),       bandwidth("dram", 4, 40e9)};
}

bool mentions(const std::vector<std::string>& flags, const std::string& text) {
  return std::any_of(flags.begin(), flags.end(),
                     [&](const auto& flag) { return flag.find(text) != std::string::npos; });
}

std::vector<Ceiling>& quick_ceilings() {
  static std::vector<Ceiling> ceilings = measure_ceilings(describe_machine(), {.quick = true, .progress = {}});
  return ceilings;
}

// Other programs can only lower a rate: keep the best of another round.
void measure_another_round() {
  const auto again = measure_ceilings(describe_machine(), {.quick = true, .progress = {}});
  for (std::size_t i = 0; i < again.size(); ++i)
    if (again[i].value > quick_ceilings()[i].value) quick_ceilings()[i] = again[i];
}

// Whether a property of the ceilings shows, at the latest in a second round.
bool shows(const std::function<bool()>& property) {
  static int rounds = 1;
  while (!property()) {
    if (rounds++ >= 2) return false;
    measure_another_round();
  }
  return true;
}

// The measured value, or 0 when this machine has no such ceiling.
double measured(const std::string& name, int threads = 1) {
  for (const Ceiling& ceiling : quick_ceilings())
    if (ceiling.name == name && ceiling.threads == threads) return ceiling.value;
  return 0;
}

}  // namespace

// ---- timing

TEST_CASE("median and quartiles are interpolated order statistics, samples keep their order") {
  const Timing odd = summarize({5, 1, 4, 2, 3});
  CHECK(odd.seconds == 3);
  CHECK(odd.q1 == 2);
  CHECK(odd.q3 == 4);
  CHECK(odd.fastest == 1);
  CHECK(odd.runs == 5);
  CHECK(odd.samples == std::vector<double>{5, 1, 4, 2, 3});
  const Timing even = summarize({4, 1, 3, 2});
  CHECK(even.seconds == doctest::Approx(2.5));
  CHECK(even.q1 == doctest::Approx(1.75));
  CHECK(even.q3 == doctest::Approx(3.25));
  const Timing single = summarize({7});
  CHECK(single.q1 == 7);
  CHECK(single.q3 == 7);
  CHECK_THROWS_AS(summarize({}), std::invalid_argument);
}

TEST_CASE("calls are measured in turn, each rewarmed, and results keep their order") {
  std::string order;
  const auto slow = [&](char name) { order += name, std::this_thread::sleep_for(std::chrono::microseconds(50)); };
  const std::vector<std::function<void()>> calls{[&] { slow('A'); }, [&] { slow('B'); }};
  TimingOptions options{.min_runs = 3, .max_runs = 3};
  options.rewarm_below_seconds = 0;
  const auto timings = measure_alternating(calls, options);
  CHECK(order == "ABABABAB");  // one warm-up each, then three samples in turn
  REQUIRE(timings.size() == 2);
  CHECK(timings[0].runs == 3);

  order.clear();
  options.rewarm_below_seconds = 1;
  measure_alternating(calls, options);
  CHECK(order == "ABAABBAABBAABB");
}

TEST_CASE("a call that is too short for the clock is batched, warm only") {
  long count = 0;
  const TimingOptions options{.min_runs = 5, .max_runs = 5, .min_sample_seconds = 1e-3};
  const Timing warm = measure([&] { ++count; }, options);
  CHECK(warm.calls_per_run > 1000);
  CHECK(warm.seconds < 1e-6);
  CHECK(count > 5 * static_cast<long>(warm.calls_per_run));
  TimingOptions cold_options = options;
  cold_options.cache = Cache::cold;
  CHECK(measure([&] { ++count; }, cold_options).calls_per_run == 1);
}

TEST_CASE("sampling stops at the budget, but not before min_runs nor after max_runs") {
  const auto sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  CHECK(measure(sleep, {.min_runs = 4, .max_runs = 100, .budget_seconds = 0}).runs == 4);
  CHECK(measure(sleep, {.min_runs = 1, .max_runs = 6, .budget_seconds = 10}).runs == 6);
  const int runs = measure(sleep, {.min_runs = 1, .max_runs = 1000, .budget_seconds = 0.05}).runs;
  CHECK(runs >= 1);
  CHECK(runs <= 11);
}

TEST_CASE("cold runs find their data outside the caches") {
  // A chain of dependent loads through 2048 lines in shuffled order: no prefetcher and no compiler hides its latency.
  constexpr std::size_t kLines = 2048;
  constexpr std::size_t kStep = 8;
  std::vector<std::size_t> order(kLines);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  std::vector<std::size_t> next(kLines * kStep);
  for (std::size_t i = 0; i < kLines; ++i) next[order[i] * kStep] = order[(i + 1) % kLines] * kStep;
  std::size_t at = 0;
  const auto chase = [&] {
    for (std::size_t i = 0; i < kLines; ++i) at = next[at];
  };
  TimingOptions options{.min_runs = 15, .max_runs = 15};
  const double warm = measure(chase, options).seconds;
  options.cache = Cache::cold;
  const double cold = measure(chase, options).seconds;
  CAPTURE(warm);
  CAPTURE(cold);
  CHECK(at < next.size());
  CHECK(cold > 2 * warm);
}

TEST_CASE("a subject brings its own clock and its own flush") {
  int calls_timed = 0;
  int flushed = 0;
  const Subject subject{[&](int calls) { return calls_timed += calls, 0.25 * calls; }, [&] { ++flushed; }};
  TimingOptions options{.min_runs = 3, .max_runs = 3};
  const Timing warm = measure_alternating(std::span(&subject, 1), options).front();
  CHECK(warm.seconds == 0.25);
  CHECK(calls_timed == 4);  // a warm-up and three samples
  CHECK(flushed == 0);
  options.cache = Cache::cold;
  CHECK(measure_alternating(std::span(&subject, 1), options).front().seconds == 0.25);
  CHECK(flushed == 3);
}

TEST_CASE("contradictory options and empty callables are refused") {
  CHECK_THROWS_AS(measure({}), std::invalid_argument);
  CHECK_THROWS_AS(measure([] {}, {.min_runs = 5, .max_runs = 4}), std::invalid_argument);
  CHECK_THROWS_AS(measure([] {}, {.min_runs = 0}), std::invalid_argument);
}

// ---- machine

TEST_CASE("CPU lists of the kernel are parsed") {
  CHECK(parse_cpu_list("0-3,8,10-11") == std::vector<int>{0, 1, 2, 3, 8, 10, 11});
  CHECK(parse_cpu_list("5") == std::vector<int>{5});
  CHECK(parse_cpu_list("").empty());
}

TEST_CASE("the machine's description is complete and consistent") {
  const Machine machine = describe_machine();
  CHECK_FALSE(machine.cpu_model.empty());
  CHECK_FALSE(machine.kernel.empty());
  CHECK_FALSE(machine.compiler.empty());
  CHECK(machine.threads_available >= 1);
  CHECK(machine.threads_available <= machine.threads_online);
  CHECK(machine.cores_available <= machine.threads_available);
  CHECK(static_cast<int>(machine.cpus.size()) == machine.threads_available);
  CHECK(machine.l1d_bytes >= 8 << 10);
  CHECK(machine.l2_bytes > machine.l1d_bytes);
  CHECK(machine.memory_available_bytes > 0);
  CHECK(machine.memory_available_bytes <= machine.memory_bytes);
  CHECK(machine.date.size() == std::string("2025-01-31T12:00:00Z").size());
  CHECK(machine.date[10] == 'T');
#if defined(__x86_64__)
  CHECK(machine.has("sse2"));
  CHECK(machine.clock_hz > 0.5e9);
  CHECK(machine.clock_hz < 8e9);
  CHECK(machine.virtual_machine == !machine.hypervisor.empty());
#endif
}

// ---- counters

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
  unknown.vendor = "CyrixInstead";
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
  describe_box(devices, "uncore_imc_0", "event=0x05,umask=0xcf", "event=0x05,umask=0xf0");
  describe_box(devices, "uncore_imc_1", "event=0x05,umask=0xcf", "event=0x05,umask=0xf0");
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
  describe_box(icx, "uncore_imc_0", "event=0x04,umask=0x0f", "event=0x04,umask=0x30");
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
  describe_box(devices, "uncore_imc_0", "event=0x04,umask=0x0f", "event=0x04,umask=0x30");
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

// ---- roofline

TEST_CASE("a dtype's roof is its best unit, or f32's where it has none") {
  const auto ceilings = small_machine();
  CHECK(compute_roof(ceilings, "f32", 0).value == 400e9);
  CHECK(compute_roof(ceilings, "bf16", 0).name == "amx");
  CHECK(compute_roof(ceilings, "f16", 0).name == "avx2");
  CHECK(compute_roof(ceilings, "f16", 1).value == 100e9);
}

TEST_CASE("between one thread and all, a roof scales up to the measured whole") {
  const auto ceilings = small_machine();
  CHECK(compute_roof(ceilings, "f32", 2).value == 200e9);
  CHECK(compute_roof(ceilings, "f32", 64).value == 400e9);
  CHECK(bandwidth_roof(ceilings, "dram", 1).value == 20e9);
  CHECK(bandwidth_roof(ceilings, "dram", 3).value == 40e9);  // 3 x 20 is more than all reach
  CHECK(bandwidth_roof(ceilings, "hbm", 1).value == 0);
}

TEST_CASE("the ridge point is where the roofs meet") {
  const auto ceilings = small_machine();
  CHECK(ridge_point(ceilings, "f32", "dram", 0) == doctest::Approx(10));
  CHECK(ridge_point(ceilings, "f32", "l1", 0) == doctest::Approx(0.25));
  CHECK(ridge_point(ceilings, "f32", "hbm", 0) == 0);
}

TEST_CASE("the roof that demands the most time bounds a point") {
  const auto ceilings = small_machine();
  const Verdict heavy =
      judge(ceilings, {.flop = 400e9, .bytes = {.dram = 1e9, .l3 = {}, .l2 = {}, .l1 = {}}, .seconds = 2});
  CHECK(heavy.bound == "compute");
  CHECK(heavy.roof == "avx2");
  CHECK(heavy.flops == 200e9);
  CHECK(heavy.attainable == doctest::Approx(400e9));
  CHECK(heavy.percent_of_roof == doctest::Approx(50));

  // Intensity 1 at DRAM: 40 GFLOP/s.
  const Verdict light =
      judge(ceilings, {.flop = 40e9, .bytes = {.dram = 40e9, .l3 = 40e9, .l2 = 40e9, .l1 = 40e9}, .seconds = 4});
  CHECK(light.bound == "memory:dram");
  CHECK(light.attainable == doctest::Approx(40e9));
  CHECK(light.percent_of_roof == doctest::Approx(25));
  CHECK(light.flags.empty());

  const auto bound = [&](Traffic bytes) { return judge(ceilings, {.flop = 1e9, .bytes = bytes, .seconds = 10}).bound; };
  CHECK(bound({.dram = 1e9, .l3 = 30e9, .l2 = 30e9, .l1 = 30e9}) == "memory:l3");
  CHECK(bound({.dram = 1e9, .l3 = 1e9, .l2 = 80e9, .l1 = 80e9}) == "memory:l2");
  CHECK(bound({.dram = 1e9, .l3 = 1e9, .l2 = 1e9, .l1 = 160e9}) == "memory:l1");
}

TEST_CASE("a pure copy is judged by its bytes") {
  const Verdict copy =
      judge(small_machine(), {.flop = 0, .bytes = {.dram = 40e9, .l3 = {}, .l2 = {}, .l1 = {}}, .seconds = 2});
  CHECK(copy.bound == "memory:dram");
  CHECK(copy.attainable == 0);
  CHECK(copy.percent_of_roof == doctest::Approx(50));
}

TEST_CASE("a short call far from every roof is bound by overhead, one near a roof is not") {
  const auto ceilings = small_machine();
  CHECK(judge(ceilings, {.flop = 4e5, .bytes = {}, .seconds = 10e-6}).bound == "overhead");
  CHECK(judge(ceilings, {.flop = 3.6e6, .bytes = {}, .seconds = 10e-6}).bound == "compute");
  CHECK(judge(ceilings, {.flop = 4e5, .bytes = {}, .seconds = 10e-3}).bound == "compute");
  CHECK(judge(ceilings, {.flop = 4e5, .bytes = {}, .seconds = 10e-6}, {.overhead_seconds = 5e-6}).bound == "compute");
}

TEST_CASE("impossible numbers are flagged, impossible input is refused") {
  const auto ceilings = small_machine();
  const Verdict inverted =
      judge(ceilings, {.flop = 1e9, .bytes = {.dram = 2e9, .l3 = {}, .l2 = 1e9, .l1 = 3e9}, .seconds = 1});
  CHECK(inverted.flags.size() == 1);
  CHECK(mentions(inverted.flags, "Q(l2)"));
  CHECK(mentions(judge(ceilings, {.flop = 500e9, .bytes = {}, .seconds = 1}).flags, "above the peak"));
  CHECK(
      mentions(judge(ceilings, {.flop = 1, .bytes = {.dram = 50e9, .l3 = {}, .l2 = {}, .l1 = {}}, .seconds = 1}).flags,
               "above the bandwidth"));
  CHECK_THROWS_AS(judge(ceilings, {.flop = 1, .bytes = {}, .seconds = 0}), std::invalid_argument);
  CHECK_THROWS_AS(judge(ceilings, {.flop = -1, .bytes = {}, .seconds = 1}), std::invalid_argument);
  CHECK_THROWS_AS(judge(ceilings, {.flop = std::nan(""), .bytes = {}, .seconds = 1}), std::invalid_argument);
}

// ---- ceilings

TEST_CASE("every ceiling is positive, ordered, named once and carries a formula") {
  std::map<std::string, int> seen;
  for (const Ceiling& ceiling : quick_ceilings()) {
    CAPTURE(ceiling.name);
    CAPTURE(ceiling.threads);
    CHECK(ceiling.value > 0);
    CHECK(ceiling.q1 <= ceiling.value);
    CHECK(ceiling.value <= ceiling.q3);
    CHECK(ceiling.runs >= 3);
    CHECK_FALSE(ceiling.formula.empty());
    CHECK((ceiling.kind == "compute" || (ceiling.kind == "bandwidth" && ceiling.working_set_bytes > 0)));
    CHECK(++seen[ceiling.name + std::to_string(ceiling.threads)] == 1);
  }
  CHECK(measured("scalar f32") > 0);
  CHECK(measured("dram triad nt") > 0);
}

TEST_CASE("wider vectors and fused instructions are not slower") {
  // Each loop for about a millisecond in turn: the fastest of many samples was not interrupted, however busy the
  // machine.
  const std::vector<ComputeLoop> loops = f32_loops();
  constexpr std::int64_t kIterations = 500000;
  std::vector<std::function<void()>> calls;
  for (const ComputeLoop& loop : loops) calls.push_back([&loop] { loop.run(kIterations); });
  TimingOptions options{.min_runs = 40, .max_runs = 40};
  options.rewarm_below_seconds = 0;
  const std::vector<Timing> timings = measure_alternating(calls, options);
  std::map<std::string, double> rates;
  for (std::size_t i = 0; i < loops.size(); ++i)
    rates[loops[i].name()] = loops[i].flop_per_instruction / timings[i].fastest;

  const auto at_least = [&](const std::string& fast, const std::string& slow, double factor) {
    if (rates.count(fast) == 0 || rates.count(slow) == 0) return;
    CAPTURE(fast);
    CAPTURE(slow);
    CHECK(rates[fast] >= factor * rates[slow]);
  };
  at_least("sse4 f32", "scalar f32", 2);
  at_least("avx2 f32", "sse4 f32", 1.5);
  at_least("avx2 fma f32", "sse4 fma f32", 1.5);
  at_least("avx2 fma f32", "avx2 f32", 0.9);
  at_least("avx512 fma f32", "avx2 fma f32", 0.8);
  at_least("neon fma f32", "scalar fma f32", 2);
}

TEST_CASE("L1 is read faster than DRAM") {
  CHECK(shows([] { return measured("l1 read") >= 1.5 * measured("dram read"); }));
}

TEST_CASE("all threads together reach more than one does") {
  const int threads = describe_machine().threads_available;
  if (threads == 1) return;
  // Threads wait for the slowest of them, so that another program on one CPU hides the gain of most ceilings; threads
  // that ran one after the other would show none.
  CHECK(shows([&] {
    double best_gain = 0;
    for (const Ceiling& ceiling : quick_ceilings()) {
      if (ceiling.threads == 1) best_gain = std::max(best_gain, measured(ceiling.name, threads) / ceiling.value);
    }
    return best_gain > 1.3;
  }));
}

TEST_CASE("the copy and the triad compute what they count, past the caches too, and nothing beyond") {
  constexpr std::size_t kCount = 512;
  const Arena arena(4 * kCount * sizeof(float));
  REQUIRE(arena.data() != nullptr);
  float* a = arena.data();
  float* b = a + 2 * kCount;
  float* c = b + kCount;
  for (const bool streaming : {false, true}) {
    for (std::size_t i = 0; i < kCount; ++i) b[i] = static_cast<float>(i), c[i] = static_cast<float>(2 * i);
    std::fill_n(a, 2 * kCount, -1.0F);
    copy_loop(a, b, kCount, 2, streaming);
    CHECK(std::equal(b, b + kCount, a));
    triad_loop(a, b, c, kCount, 2, streaming);
    for (std::size_t i = 0; i < kCount; ++i) CHECK(a[i] == static_cast<float>(7 * i));
    CHECK(std::all_of(a + kCount, b, [](float beyond) { return beyond == -1.0F; }));
  }
}

TEST_CASE("progress counts up to its total, and parts can be left out") {
  std::vector<int> done;
  int total = 0;
  CeilingOptions options{.quick = true, .compute = false, .progress = {}};
  options.progress = [&](const std::string& next, int count, int all) {
    CHECK_FALSE(next.empty());
    done.push_back(count);
    total = all;
  };
  Machine machine = describe_machine();
  machine.cpus.resize(1);
  machine.threads_available = machine.cores_available = 1;
  const auto ceilings = measure_ceilings(machine, options);
  CHECK(static_cast<int>(ceilings.size()) == total);
  CHECK(std::is_sorted(done.begin(), done.end()));
  CHECK(done.back() == total);
  for (const Ceiling& ceiling : ceilings) CHECK(ceiling.kind == "bandwidth");
}

TEST_CASE("working sets lie between the cache levels, also where threads share a cache") {
  Machine machine;
  machine.l1d_bytes = 48 << 10;
  machine.l2_bytes = 2 << 20;
  machine.l3_bytes = 105 << 20;
  machine.l1d_sharers = machine.l2_sharers = 2;
  machine.l3_sharers = 96;
  machine.l3_instances = machine.l2_instances = 1;
  machine.threads_available = 96;
  machine.memory_available_bytes = std::size_t{256} << 30;
  CHECK(working_set(machine, 1, true) == 12 << 10);
  CHECK(working_set(machine, 2, false) > machine.l1d_bytes);
  CHECK(working_set(machine, 2, false) < machine.l2_bytes);
  CHECK(working_set(machine, 3, false) > machine.l2_bytes);
  CHECK(working_set(machine, 3, false) < machine.l3_bytes);
  CHECK(working_set(machine, 3, true) > machine.l2_bytes / 2);
  CHECK(working_set(machine, 3, true) * 96 < machine.l3_bytes + 48 * machine.l2_bytes);
  CHECK(working_set(machine, 0, true) * 96 >= 4 * machine.l3_bytes - 96);
  machine.memory_available_bytes = std::size_t{1} << 30;
  CHECK(working_set(machine, 0, false) <= (std::size_t{1} << 30) / 12);
  machine.l3_bytes = 0;
  CHECK(working_set(machine, 3, true) == 0);
}
