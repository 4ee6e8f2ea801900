// What CUDA loads into a measured program: how it tells launches apart, what it keeps of their times, and that a
// program without a driver goes on.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "perfcounters/cupti/injection/argument_hash.h"
#include "perfcounters/cupti/injection/launch_table.h"
#include "perfcounters/cupti/injection/recording_cost.h"
#include "perfcounters/cupti/injection/reservoir.h"
#include "perfcounters/program/kernels.h"
#include "tests/perfcounters/session_folder.h"

using namespace gable::perf;

TEST_CASE("the arguments of a launch: the same without its addresses, others with another size") {
  const auto high = [](std::uint64_t word) { return word >> 40 == 0x7f; };
  struct Passed {
    std::uint64_t data;
    int rows, columns;
    std::uint64_t more;
  };
  const auto hash = [&](const Passed& passed, float scale) {
    gable::cupti::ArgumentHash all;
    all.add(&passed, sizeof passed, high);
    all.add(&scale, sizeof scale, high);
    return all.value();
  };
  const Passed first{0x7f0012345600, 64, 128, 0x7f0099999900};
  CHECK(hash(first, 1) == hash({0x7f8812345640, 64, 128, 0x7f0000000100}, 1));
  CHECK(hash(first, 1) != hash({0x7f0012345600, 64, 256, 0x7f0099999900}, 1));
  CHECK(hash(first, 1) != hash({0x7f0012345600, 128, 64, 0x7f0099999900}, 1));
  CHECK(hash(first, 1) != hash(first, 2));
  CHECK(hash({0x7f0012345600, 64, 128, 0}, 1) != hash(first, 1));  // no array
  CHECK(gable::cupti::ArgumentHash().value() != 0);
  // A byte that nobody set, of a function object without members, is no other work; a truth value is.
  const auto byte = [&](unsigned char value) {
    gable::cupti::ArgumentHash all;
    all.add(&value, 1, high);
    return all.value();
  };
  CHECK(byte(0x7f) == byte(0xc3));
  CHECK(byte(0) != byte(1));

  gable::cupti::FirstArguments<int> kernels;
  for (std::uint64_t seed = 1; seed <= 32; ++seed) CHECK(kernels.limited(1, seed) == seed);
  CHECK(kernels.limited(1, 33) == 0);
  CHECK(kernels.limited(1, 7) == 7);
  CHECK(kernels.limited(2, 33) == 33);
  CHECK(kernels.number(1) == 32);
  CHECK(kernels.number(3) == 0);
}

TEST_CASE("the times of many calls: all in the sum and the extremes, a sample in the quartiles") {
  gable::cupti::Reservoir reservoir;
  for (int i = 1; i <= 100000; ++i) reservoir.add(i * 1e-9);
  const CallTimes times = reservoir.times();
  CHECK(times.calls == 100000);
  CHECK(times.seconds == doctest::Approx(5.00005));
  CHECK(times.fastest == doctest::Approx(1e-9));
  CHECK(times.slowest == doctest::Approx(1e-4));
  CHECK(times.q1 == doctest::Approx(2.5e-5).epsilon(0.1));
  CHECK(times.median == doctest::Approx(5e-5).epsilon(0.1));
  CHECK(times.q3 == doctest::Approx(7.5e-5).epsilon(0.1));
  gable::cupti::Reservoir few;
  for (const double seconds : {3., 1., 2.}) few.add(seconds);
  CHECK(few.times().median == 2);
  CHECK(gable::cupti::Reservoir().times().calls == 0);
}

TEST_CASE("recording becomes too costly where launches come too fast for long, not for a burst or long kernels") {
  std::int64_t now = 5'000'000'000;
  const auto clock = [&] { return now; };
  /// Launches, each so long after the one before; how many there were until recording was too costly.
  const auto launch = [&](gable::cupti::RecordingCost& cost, int launches, std::int64_t pause, std::int64_t kernels,
                          std::int64_t blocks = 0) {
    for (int i = 0; i < launches; ++i, now += pause) {
      if (cost.add({kernels, blocks}, clock)) return i;
    }
    return -1;
  };
  gable::cupti::RecordingCost fast, slow, bursts, graphs, long_graphs, many_blocks, few_blocks;
  const int launches = launch(fast, 100000, 3'000, 1);
  CHECK(launches > 500);
  CHECK(launches < 5000);
  CHECK(launch(slow, 100000, 60'000, 1) == -1);
  for (int i = 0; i < 50; ++i) {
    CHECK(launch(bursts, 1000, 3'000, 1) == -1);
    now += 100'000'000;
  }
  CHECK(launch(graphs, 1000, 800'000, 200) > 0);           // kernels of 4 us
  CHECK(launch(long_graphs, 1000, 4'000'000, 200) == -1);  // of 20 us
  CHECK(launch(many_blocks, 1000, 200'000, 1, 1 << 18) > 0);
  CHECK(launch(few_blocks, 1000, 200'000, 1, 1 << 14) == -1);
}

#ifdef GABLE_CUPTI_LIBRARY
namespace {

/// Runs the injected entry in a process of its own, which goes on to end with 7; returns how it ended.
int injected_process(const std::string& folder, const char* mode, void (*end)(int) = std::exit) {
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    setenv("GABLE_SESSION_FOLDER", folder.c_str(), 1);
    setenv("GABLE_SESSION_MODE", mode, 1);
    setenv("GABLE_SESSION_METRICS", "dram__bytes_read.sum", 1);
    void* library = dlopen(GABLE_CUPTI_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const auto entry =
        library != nullptr ? reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection")) : nullptr;
    if (entry == nullptr) _exit(1);
    entry();
    entry();  // a second call does nothing
    end(7);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

bool has_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
}

}  // namespace

TEST_CASE("what is known of a launch is found by its correlation number until another one takes its place") {
  using gable::cupti::Launch;
  using gable::cupti::LaunchTable;
  LaunchTable table;
  CHECK(table.get(7).region == nullptr);
  table.put(7, {"step", 41, 3});
  for (int kernels_of_a_graph = 0; kernels_of_a_graph < 2; ++kernels_of_a_graph) {
    const Launch found = table.get(7);
    REQUIRE(found.region != nullptr);
    CHECK(std::string(found.region) == "step");
    CHECK(found.arguments == 41);
    CHECK(found.graph == 3);
  }
  const auto later = static_cast<std::uint32_t>(7 + LaunchTable::kPlaces);
  CHECK(table.get(later).region == nullptr);
  table.put(later, {"other", 1, 0});
  CHECK(table.get(7).region == nullptr);
  CHECK(table.get(later).arguments == 1);
}

TEST_CASE("injected where there is no driver: the reason is in the session's folder, and the program goes on") {
  for (const char* mode : {"time", "counters"}) {
    CAPTURE(mode);
    const SessionFolder folder;
    const int status = injected_process(folder.path(), mode);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
    const SessionRecords all = read_kernels(folder.path());
    REQUIRE(all.processes.size() == 1);
    CHECK(all.processes[0].ended_well);
    if (!has_driver()) CHECK(any_says(all.notes, "GPU kernels: "));
  }
  const SessionFolder quick;
  CHECK(WEXITSTATUS(injected_process(quick.path(), "time", std::quick_exit)) == 7);
  REQUIRE(read_kernels(quick.path()).processes.size() == 1);
  CHECK(read_kernels(quick.path()).processes[0].ended_well);
  // Neither a folder that is not there nor an unknown mode is the program's business.
  CHECK(WEXITSTATUS(injected_process("/nowhere", "time")) == 7);
  const SessionFolder folder;
  CHECK(WEXITSTATUS(injected_process(folder.path(), "simulated")) == 7);
  CHECK(read_kernels(folder.path()).processes.empty());
}
#endif
