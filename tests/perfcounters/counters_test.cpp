// Sources of W and Q for the host: parsing of callgrind's and PCM's output, and the cache simulation on kernels of
// known traffic.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "perfcounters/sources/calibration.h"
#include "perfcounters/sources/callgrind.h"
#include "perfcounters/sources/child_process.h"
#include "perfcounters/sources/known_work.h"
#include "perfcounters/sources/pcm.h"
#include "perfcounters/sources/source.h"
#include "tests/tools/comma_locale.h"

using namespace gable::perf;

namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder()
      : path_(fs::temp_directory_path() /
              ("gable_counters_" + std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()))) {}
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text << '\n';
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

CallgrindSource callgrind_here() { return {read_cache_geometries(), GABLE_COMMAND}; }

}  // namespace

// ---- child processes

TEST_CASE("a child's output, exit code and signal are reported") {
  const ChildResult said =
      run_child({"sh", "-c", "echo $GREETING; echo oops >&2; exit 3"}, 600, {{"GREETING", "hello"}});
  CHECK(said.output == "hello\n");
  CHECK(said.exit_code == 3);
  CHECK(said.failure() == "it ended with exit code 3: oops");
  const ChildResult killed = run_child({"sh", "-c", "kill -9 $$"}, 600);
  CHECK(killed.signal == 9);
  CHECK(killed.failure().find("signal 9") != std::string::npos);
  CHECK(run_child({"true"}, 600).failure().empty());
}

TEST_CASE("a child that takes too long is stopped with everything that it started") {
  const auto start = std::chrono::steady_clock::now();
  const ChildResult slow = run_child({"sh", "-c", "sleep 3600; true"}, 0.2);
  CHECK(slow.timed_out);
  CHECK_FALSE(slow.succeeded());
  CHECK(slow.failure().find("stopped after") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - start <
        std::chrono::minutes(30));  // its output stays open as long as it runs
}

TEST_CASE("a program that does not exist is an error with the reason") {
  const ChildResult none = run_child({"/nowhere/at/all"}, 600);
  CHECK(none.exit_code == 127);
  CHECK(none.errors.find("No such file") != std::string::npos);
  CHECK(find_program("no-such-program-anywhere").empty());
  CHECK_FALSE(find_program("sh").empty());
  CHECK_THROWS_AS(run_child({}, 1), std::invalid_argument);
}

// ---- callgrind's files

TEST_CASE("cache geometries are read from sysfs, instructions apart") {
  const Folder folder;
  const auto write = [&](int index, const char* level, const char* type, const char* size, const char* ways) {
    const std::string base = "index" + std::to_string(index) + "/";
    folder.write(base + "level", level);
    folder.write(base + "type", type);
    folder.write(base + "size", size);
    folder.write(base + "ways_of_associativity", ways);
    folder.write(base + "coherency_line_size", "64");
  };
  write(0, "1", "Data", "48K", "12");
  write(1, "1", "Instruction", "32K", "8");
  write(2, "2", "Unified", "2048K", "16");
  const CacheGeometries caches = read_cache_geometries(folder.path());
  CHECK(caches.l1d == CacheGeometry{49152, 12, 64});
  CHECK(caches.l1i == CacheGeometry{32768, 8, 64});
  CHECK(caches.l2 == CacheGeometry{2097152, 16, 64});
  CHECK_FALSE(caches.l3.has_value());
  CHECK_FALSE(read_cache_geometries("/nowhere").l1d.has_value());
}

TEST_CASE("a cache with a power of two of sets keeps its geometry, others nearly keep their capacity") {
  const CacheGeometry zen5_l1{48 << 10, 12, 64};
  CHECK(with_power_of_two_sets(zen5_l1) == zen5_l1);
  CHECK(to_option(zen5_l1) == "49152,12,64");
  for (const CacheGeometry real : {CacheGeometry{std::size_t{105} << 20, 15, 64}, CacheGeometry{3 << 20, 8, 64},
                                   CacheGeometry{std::size_t{1408} << 10, 11, 64}}) {
    const CacheGeometry simulated = with_power_of_two_sets(real);
    CAPTURE(to_option(simulated));
    CHECK((simulated.sets() & (simulated.sets() - 1)) == 0);
    CHECK(simulated.bytes <= real.bytes);
    CHECK(static_cast<double>(simulated.bytes) >= 0.9 * static_cast<double>(real.bytes));
  }
}

TEST_CASE("fills and write-backs are lines; only a cold region counts the lines that it leaves dirty") {
  const std::map<std::string, double> region{{"ILmr", 5}, {"DLmr", 100}, {"DLmw", 10}, {"DLdmr", 20}, {"DLdmw", 3}};
  const std::map<std::string, double> residue{{"DLmr", 1e6}, {"DLdmr", 30}};
  CHECK(callgrind_bytes(region, residue, false, 64) == 64 * (100 + 10 + 20 + 3));
  CHECK(callgrind_bytes(region, residue, true, 64) == 64 * (100 + 10 + 20 + 3 + 30));
}

// ---- the simulation

TEST_CASE(
    "simulated traffic of read, copy, triad and daxpy is the known one within 2 %, a second run's is the same, and so "
    "is "
    "a kept calibration") {
  CallgrindSource source = callgrind_here();
  const SourceStatus status = source.status();
  if (!status.available) {
    CHECK_FALSE(status.cure.empty());
    MESSAGE("skipped: simulated traffic: ", status.reason);
    return;
  }
  const Folder folder;
  CalibrationCache kept(folder.path());
  const std::vector<Metric> metrics{Metric::flop, Metric::l2_bytes, Metric::l3_bytes, Metric::dram_bytes};
  const Calibration calibration = calibrate(source, metrics, kept);
  CHECK(calibration.checks.size() >= 10);
  for (const CalibrationCheck& check : calibration.checks) {
    CAPTURE(check.kernel);
    CAPTURE(to_string(check.metric));
    CAPTURE(check.reason);
    CHECK(check.measured.value_or(-1) ==
          doctest::Approx(check.expected).epsilon(0.02).scale(check.allowance / 0.02 + 1e-9));
    CHECK(check.passed);
    CHECK_FALSE(check.kept);
  }
  const Calibration again = calibrate(source, metrics, kept);
  REQUIRE(again.checks.size() == calibration.checks.size());
  for (std::size_t i = 0; i < again.checks.size(); ++i) {
    CHECK(again.checks[i].kept);
    CHECK(again.checks[i].kernel == calibration.checks[i].kernel);
    CHECK(again.checks[i].measured == calibration.checks[i].measured);
  }
  CHECK(kept.words().empty());
  const KnownWork triad = source.known_work().at(2);
  const CountOptions options{.metrics = {Metric::dram_bytes}};
  const Quantity first = source.measure(triad.workload, options).at(Metric::dram_bytes);
  const Quantity second = source.measure(triad.workload, options).at(Metric::dram_bytes);
  REQUIRE(first.value.has_value());
  CHECK(second.value == doctest::Approx(*first.value).epsilon(1e-3));
}

TEST_CASE("a kept calibration is of one build of gable, one valgrind and one set of caches") {
  CallgrindSource source = callgrind_here();
  if (const SourceStatus status = source.status(); !status.available) {
    MESSAGE("skipped: simulated traffic: ", status.reason);
    return;
  }
  const std::string identity = source.calibration_identity();
  CHECK(identity == callgrind_here().calibration_identity());
  CHECK(identity.find("valgrind-") != std::string::npos);
  CHECK(identity.find('\n') == std::string::npos);
  CacheGeometries others = read_cache_geometries();
  others.l1d->bytes *= 2;
  CHECK(CallgrindSource(others, GABLE_COMMAND).calibration_identity() != identity);
  CHECK(CallgrindSource(read_cache_geometries(), "/bin/sh").calibration_identity() != identity);
  CHECK(CallgrindSource(read_cache_geometries(), "/nowhere").calibration_identity().empty());
}

TEST_CASE("a workload that would take too long under the simulation, or fails there, is refused with the reason") {
  CallgrindSource source = callgrind_here();
  if (const SourceStatus status = source.status(); !status.available) {
    MESSAGE("skipped: simulated traffic: ", status.reason);
    return;
  }
  Workload workload = source.known_work().front().workload;
  const CountOptions options{.metrics = {Metric::dram_bytes}, .seconds_limit = 30};
  workload.seconds = 10;
  const Quantity estimated = source.measure(workload, options).at(Metric::dram_bytes);
  CHECK_FALSE(estimated.value.has_value());
  CHECK(estimated.reason.find("the limit is 30 s") != std::string::npos);
  workload.seconds = 0;
  workload.flop = 1e12;
  CHECK(source.measure(workload, options).at(Metric::dram_bytes).reason.find("the limit is 30 s") != std::string::npos);
  workload.flop = 0;
  const Quantity stopped =
      source.measure(workload, {.metrics = {Metric::dram_bytes}, .seconds_limit = 0.05}).at(Metric::dram_bytes);
  CHECK_FALSE(stopped.value.has_value());
  CHECK(stopped.reason.find("stopped") != std::string::npos);
  workload.child = [](const ChildTask&) {
    return std::vector<std::string>{GABLE_COMMAND, "counted", "--elements", "256", "--kernel", "no"};
  };
  const Quantity failed =
      source.measure(workload, {.metrics = {Metric::dram_bytes}, .seconds_limit = 600}).at(Metric::dram_bytes);
  CHECK_FALSE(failed.value.has_value());
  CHECK(failed.reason.find("kernel 'no'") != std::string::npos);
  CHECK_THROWS_AS(source.measure({.run = [] {}}, options), std::invalid_argument);
}

// ---- PCM

namespace {

Machine sapphire_rapids() {
  Machine machine;
  machine.cpu.vendor = "GenuineIntel";
  machine.cpu.family = 6;
  machine.cpu.model = 143;
  machine.caches.l3.bytes = std::size_t{105} << 20;
  return machine;
}

/// pcm-raw's output for a child whose start costs 1000 counts of each event and whose runs cost `flop` and `lines`
/// each.
StartChild pcm_of(const std::map<std::string, double>& per_run,
                  std::vector<std::vector<std::string>>* commands = nullptr) {
  return [=](const std::vector<std::string>& argv, double) {
    if (commands != nullptr) commands->push_back(argv);
    const auto at = std::find(argv.begin(), argv.end(), "--repetitions");
    const double runs = std::stod(*(at + 1));
    ChildResult child;
    child.exit_code = 0;
    child.output = " Processor Counter Monitor: raw data\n";
    for (std::size_t i = 0; i + 1 < argv.size(); ++i) {
      if (argv[i] != "-e") continue;
      const std::string name = argv[i + 1].substr(argv[i + 1].find("name=") + 5);
      const double counts = 1000 + runs * (per_run.count(name) != 0 ? per_run.at(name) : 0);
      child.output += "2024-01-31,12:00:00.001," + name + ",40,84000000," + std::to_string(counts / 2) + "," +
                      std::to_string(counts / 2) + "\n";
    }
    return child;
  };
}

Workload in_child() {
  Workload workload;
  workload.seconds = 0.1;
  workload.child = [](const ChildTask& task) {
    return std::vector<std::string>{"gable", "counted", "--repetitions", std::to_string(task.repetitions)};
  };
  return workload;
}

}  // namespace

TEST_CASE("pcm-raw's lines are summed over units and samples; other lines are skipped, broken ones refused") {
  const auto sums = parse_pcm_raw(
      "Processor Counter Monitor\n"
      "2021-09-27,00:07:40.507,UNC_M_CAS_COUNT.RD,1000,2102078418,37565,33584,0,0,0,0,40306,0,37373,0,0,0\n"
      "2021-09-27,00:07:40.507,UNC_M_CAS_COUNT.WR,1000,2102078418,58994,53007,0,0,0,0,25088,0,21901,0,0,0\n"
      "2021-09-27,00:07:41.507,UNC_M_CAS_COUNT.RD,1000,2102078418,1,2\n");
  CHECK(sums.at("UNC_M_CAS_COUNT.RD") == 37565 + 33584 + 40306 + 37373 + 3);
  CHECK(sums.at("UNC_M_CAS_COUNT.WR") == 58994 + 53007 + 25088 + 21901);
  CHECK(parse_pcm_raw("no counts at all\n").empty());
  const gable::test::CommaLocale locale;
  CHECK(gable::test::CommaLocale::works());
  CHECK(parse_pcm_raw("2021-09-27,00:07:40.507,X,1000,2102078418,1.5\n").at("X") == 1.5);
  CHECK_THROWS_AS(parse_pcm_raw("2021-09-27,00:07:40.507,X,1000,2102078418\n"), std::invalid_argument);
  CHECK_THROWS_AS(parse_pcm_raw("2021-09-27,00:07:40.507,X,1000,2102078418,many\n"), std::invalid_argument);
}

TEST_CASE("PCM's W and Q are the difference of two processes, so a child's start is not counted") {
  std::vector<std::vector<std::string>> commands;
  PcmSource source(sapphire_rapids(), "gable",
                   pcm_of({{"fp_512_single", 100}, {"fp_scalar", 7}, {"cas_rd", 5000}, {"cas_wr", 1000}}, &commands));
  const Reading reading = source.measure(in_child(), {.metrics = {Metric::flop, Metric::dram_bytes, Metric::l2_bytes}});
  CHECK(reading.at(Metric::flop).value == doctest::Approx(100 * 16 + 7));
  CHECK(reading.at(Metric::dram_bytes).value == doctest::Approx(6000 * 64));
  CHECK(reading.at(Metric::dram_bytes).repetitions == 3);
  CHECK_FALSE(reading.at(Metric::l2_bytes).value.has_value());
  CHECK(commands.size() == 6);
  CHECK(commands[0].front() == "pcm-raw");
  CHECK(std::count(commands[0].begin(), commands[0].end(), "imc/config=0x40cf05,name=cas_rd") == 1);
  CHECK(std::count(commands[0].begin(), commands[0].end(), "core/config=0x4380c7,name=fp_512_single") == 1);
  CHECK(commands[1].back() == "11");  // a second's worth of 0.1 s more
}

TEST_CASE("PCM refuses what it can't count: cold runs, bf16, a tool that fails or prints nothing, other CPUs") {
  PcmSource source(sapphire_rapids(), "gable", pcm_of({{"cas_rd", 1}}));
  const CountOptions both{.metrics = {Metric::flop, Metric::dram_bytes}};
  Workload cold = in_child();
  cold.flush = [] {};
  CHECK(source.measure(cold, both).at(Metric::dram_bytes).reason.find("cold") != std::string::npos);
  Workload bf16 = in_child();
  bf16.dtype = "bf16";
  CHECK_FALSE(source.measure(bf16, both).at(Metric::flop).value.has_value());
  CHECK(source.measure(bf16, both).at(Metric::dram_bytes).value.has_value());
  CHECK_THROWS_AS(source.measure({.run = [] {}}, both), std::invalid_argument);

  PcmSource failing(sapphire_rapids(), "gable", [](const auto&, double) {
    ChildResult child;
    child.exit_code = 1;
    child.errors = "Access to Intel(r) Performance Counter Monitor has denied\n";
    return child;
  });
  CHECK(failing.measure(in_child(), both).at(Metric::flop).reason.find("has denied") != std::string::npos);
  PcmSource silent(sapphire_rapids(), "gable", [](const auto&, double) {
    ChildResult child;
    child.exit_code = 0;
    return child;
  });
  CHECK(silent.measure(in_child(), both).at(Metric::flop).reason.find("no counts of") != std::string::npos);

  Machine amd;
  amd.cpu.vendor = "AuthenticAMD";
  const SourceStatus status = PcmSource(amd, "gable").status();
  CHECK_FALSE(status.available);
  CHECK_FALSE(status.cure.empty());
  CHECK(pcm_events(amd).empty());
  Machine skylake = sapphire_rapids();
  skylake.cpu.model = 85;
  for (const PcmEvent& event : pcm_events(skylake)) CHECK(event.metric == Metric::dram_bytes);
}

TEST_CASE("sweeps refuse sizes that are no multiple of the loop's step, and unknown names") {
  CHECK_THROWS_AS(known_kernel("copy", 100, 1), std::invalid_argument);
  CHECK_THROWS_AS(known_kernel("walk", 256, 1), std::invalid_argument);
  for (const KnownSweep& sweep : known_sweeps()) CHECK_NOTHROW(known_kernel(sweep.name, 256, 1)());
}
