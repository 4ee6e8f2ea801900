// Energy from readings that a test makes up: wrapping, refused, seldom refreshed, or of a machine without counters.
#include "perfcounters/energy/energy.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>

#include "perfcounters/machine/files.h"

using namespace gable::perf;

namespace {

/// A device of constant power whose counter is refreshed now and then; its clock moves only while calls run.
struct FakeDevice {
  double watts = 200;
  double refresh = 0.02;  ///< s
  double range = 0;
  double call_seconds = 1e-3;
  double seconds = 5.013;

  double joules() const {
    const double counted = watts * std::floor(seconds / refresh) * refresh;
    return range > 0 ? std::fmod(counted, range) : counted;
  }
  EnergySource source() const {
    return {.by = "fake", .counters = {{"fake", [this] { return joules(); }, range}}};
  }
  Energy measure(double wanted = 1) {
    return measure_energy(source(), [this](int calls) { seconds += calls * call_seconds; }, call_seconds,
                          {.seconds = wanted, .clock = [this] { return seconds; }});
  }
};

/// A folder like /sys/class/powercap.
struct FakePowercap {
  TemporaryFolder folder{"gable-powercap"};

  void zone(const std::string& name, const std::string& what, const std::string& joules, const std::string& range) {
    const std::filesystem::path path = std::filesystem::path(folder.path()) / name;
    std::filesystem::create_directories(path);
    std::ofstream(path / "name") << what << "\n";
    std::ofstream(path / "energy_uj") << joules << "\n";
    std::ofstream(path / "max_energy_range_uj") << range << "\n";
  }
};

}  // namespace

TEST_CASE("energy: of one call, from refresh to refresh") {
  for (const double refresh : {0.001, 0.02, 0.1}) {
    CAPTURE(refresh);
    FakeDevice device{.refresh = refresh};
    const Energy energy = device.measure();
    REQUIRE_MESSAGE(energy.joules.has_value(), energy.reason);
    CHECK(*energy.joules == doctest::Approx(0.2).epsilon(energy.uncertainty));
    CHECK(energy.watts == doctest::Approx(200).epsilon(energy.uncertainty));
    CHECK(energy.seconds >= 1);
    CHECK(energy.uncertainty <= 0.101);
  }
}

TEST_CASE("energy: a call that takes longer than the whole repetition is counted, too") {
  FakeDevice device{.call_seconds = 2.5};
  const Energy energy = device.measure();
  REQUIRE(energy.joules.has_value());
  CHECK(energy.calls == 1);
  CHECK(*energy.joules == doctest::Approx(500).epsilon(0.01));
}

TEST_CASE("energy: a counter that begins at 0 again counts on") {
  FakeDevice device{.refresh = 0.001, .range = 7};  // 28 times in the repetition
  const Energy energy = device.measure();
  REQUIRE(energy.joules.has_value());
  CHECK(*energy.joules == doctest::Approx(0.2).epsilon(0.01));
  double joules = 100;
  EnergySource source{.by = "fake", .counters = {{"GPU 0", [&] { return joules; }, 0}}};
  EnergyMeter meter(source);
  joules = 90;
  CHECK_THROWS_WITH(meter.read(), "GPU 0 went back by 10 J");
}

TEST_CASE("energy: too few refreshes, too short a repetition, or none at all: refused with the reason") {
  FakeDevice seldom{.refresh = 0.3};
  CHECK(seldom.measure().reason.find("the counter moved only 4 times in 1.20 s") != std::string::npos);
  FakeDevice quick{.refresh = 0.02};
  const Energy brief = quick.measure(0.19);
  CHECK_FALSE(brief.joules);
  CHECK(brief.reason == "0.20 s of repetition are too short for a counter that is refreshed every 20 ms");
  FakeDevice still{.watts = 0};
  CHECK(still.measure().reason == "the counter did not move while the call was repeated");
  CHECK(measure_energy(
            {.reason = "no NVML"}, [](int) {}, 1)
            .reason == "no NVML");
}

TEST_CASE("energy: a counter that fails while it counts is a reason, no crash") {
  int reads = 0;
  const EnergySource source{.by = "fake",
                            .counters = {{"GPU 0",
                                          [&]() -> double {
                                            if (++reads > 3) throw std::runtime_error("GPU is lost");
                                            return reads;
                                          },
                                          0}}};
  CHECK(measure_energy(
            source, [](int) {}, 1e-3)
            .reason == "GPU is lost");
}

TEST_CASE("energy: RAPL counts all packages and their DRAM, not parts of a package twice") {
  FakePowercap machine;
  machine.zone("intel-rapl:0", "package-0", "262143000000", "262143328850");
  machine.zone("intel-rapl:0:0", "core", "1", "262143328850");
  machine.zone("intel-rapl:0:1", "dram", "5000000", "65712999613");
  machine.zone("intel-rapl:1", "package-1", "1000000", "262143328850");
  machine.zone("intel-rapl:2", "psys", "77", "262143328850");
  const EnergySource source = rapl_energy(machine.folder.path());
  REQUIRE(source.counters.size() == 3);
  CHECK(source.note == "all CPU packages and their DRAM");
  EnergyMeter meter(source);
  machine.zone("intel-rapl:0", "package-0", "1671150", "262143328850");  // + 2 J, across the end
  machine.zone("intel-rapl:0:1", "dram", "5500000", "65712999613");      // + 0.5 J
  machine.zone("intel-rapl:1", "package-1", "4000000", "262143328850");  // + 3 J
  CHECK(meter.read() == doctest::Approx(5.5));
}

TEST_CASE("energy: without RAPL, without a package, without permission: the reason and the cure") {
  CHECK(rapl_energy("/nonexistent/powercap").reason == "no /nonexistent/powercap");
  const std::string too_long = "/" + std::string(300, 'a');  // as of any folder that can't be asked about
  CHECK(rapl_energy(too_long).reason == too_long + ": File name too long");
  FakePowercap empty;
  CHECK(rapl_energy(empty.folder.path()).reason == "no CPU package in " + empty.folder.path());
  FakePowercap machine;
  machine.zone("intel-rapl:0", "package-0", "1", "262143328850");
  const auto refuse = [](const std::string& path) {
    return path.ends_with("energy_uj") ? FileRead{.error = EACCES} : read_whole_file(path);
  };
  const EnergySource refused = rapl_energy(machine.folder.path(), refuse);
  CHECK_FALSE(refused.available());
  CHECK(refused.reason == machine.folder.path() + "/intel-rapl:0/energy_uj: Permission denied");
  CHECK(refused.cure.find("chmod a+r") != std::string::npos);
  machine.zone("intel-rapl:0", "package-0", "none", "262143328850");
  CHECK(rapl_energy(machine.folder.path()).reason.find("'none' is no number of microjoules") != std::string::npos);
}

TEST_CASE("energy: NVML counts millijoules; its refusals are told in its own words") {
  unsigned long long millijoules = 1'000'000;
  int code = 0;
  NvmlReader nvml{.read =
                      [&](int, unsigned long long& out) {
                        out = millijoules;
                        return code;
                      },
                  .error_text = [](int error) { return error == 3 ? "Not Supported" : "Insufficient Permissions"; }};
  const EnergySource source = nvml_energy(0, nvml);
  REQUIRE(source.available());
  EnergyMeter meter(source);
  millijoules += 2500;
  CHECK(meter.read() == doctest::Approx(2.5));
  code = 3;
  CHECK(nvml_energy(0, nvml).reason == "nvmlDeviceGetTotalEnergyConsumption: Not Supported");
  CHECK(nvml_energy(0, nvml).cure.find("no MIG") != std::string::npos);
  CHECK_THROWS_WITH(meter.read(), "nvmlDeviceGetTotalEnergyConsumption: Not Supported");
  CHECK(nvml_energy(0, {.reason = "no NVML"}).reason == "no NVML");
}
