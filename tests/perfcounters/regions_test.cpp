// Regions, from gable/region.h through libgable_listen.so to read_session(): every program here is run as a user's is.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "perfcounters/listen/names.h"
#include "perfcounters/listen/region_file.h"
#include "perfcounters/program/region_cost.h"
#include "perfcounters/sources/child_process.h"
#include "tests/perfcounters/session_folder.h"

using namespace gable::perf;

namespace {

namespace fs = std::filesystem;

/// A session with the regions of one program by path.
struct Ran {
  SessionRecords records;
  std::map<std::string, RegionRecord> regions;
  LaunchEnd end;
  std::string output{};

  std::int64_t calls(const std::string& path) const {
    const auto found = regions.find(path);
    return found == regions.end() ? -1 : found->second.times.calls;
  }
};

Ran read(const SessionFolder& folder) {
  Ran ran{.records = read_session(folder.path()), .regions = {}, .end = {}};
  for (const RegionRecord& region : ran.records.regions) ran.regions[region.path] = region;
  return ran;
}

Ran run(const std::string& what, const std::string& argument = "") {
  const SessionFolder folder;
  std::vector<std::string> argv{GABLE_REGIONS_APP, what};
  if (!argument.empty()) argv.push_back(argument);
  const LaunchEnd end = folder.run(argv);
  Ran ran = read(folder);
  ran.end = end;
  ran.output = folder.text("output");
  return ran;
}

std::vector<std::string> file_names(const SessionFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    if (entry.path().filename().string().rfind("regions.", 0) == 0) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Overwrites bytes of a region file as something else than the listener would.
template <class T>
void damage(const std::string& file, std::size_t at, T value) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(at));
  stream.write(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

TEST_CASE("nested regions: calls, times, declared work; a name outside is another region than inside") {
  const Ran ran = run("nested");
  CHECK(ran.end.status() == 0);
  REQUIRE(ran.records.regions.size() == 3);
  CHECK(ran.calls("outer") == 3);
  CHECK(ran.calls("outer/inner") == 6);
  CHECK(ran.calls("inner") == 1);
  const RegionRecord& outer = ran.regions.at("outer");
  CHECK(outer.origin == "gable");
  CHECK(outer.threads == 1);
  CHECK_FALSE(outer.overlapped);
  CHECK(outer.flop == 300);
  CHECK(outer.bytes == 30);
  CHECK(ran.regions.at("outer/inner").flop == 42);
  CHECK(outer.times.fastest >= 0.004);  // it sleeps so long
  CHECK(outer.times.fastest <= outer.times.q1);
  CHECK(outer.times.q1 <= outer.times.median);
  CHECK(outer.times.median <= outer.times.q3);
  CHECK(outer.times.q3 <= outer.times.slowest * 1.000001);  // the sample is in single precision
  CHECK(outer.times.seconds >= 0.012);
  CHECK(outer.busy_threads > 0);
  CHECK(outer.busy_threads < 0.9);  // asleep
  REQUIRE(ran.records.processes.size() == 1);
  const ProcessRecord& process = ran.records.processes.front();
  CHECK(process.ended_well);
  CHECK(process.command == std::string(GABLE_REGIONS_APP) + " nested");
  CHECK(process.parent == getpid());
  CHECK(process.cpu_seconds > 0);
  CHECK(process.seconds >= 0);
  CHECK(ran.records.notes.empty());
}

TEST_CASE("declared work that is negative or no number is not used, and that is said") {
  const Ran ran = run("impossible");
  CHECK(ran.regions.at("negative").flop == 0);
  CHECK(ran.regions.at("negative").bytes == 21);
  CHECK(ran.regions.at("none").flop == 0);
  for (const char* name : {"negative", "none"})
    CHECK(any_says(ran.records.notes, "region '" + std::string(name) + "' declares fewer than 0 (or nan) FLOP in all"));
}

TEST_CASE("a region that runs a million times is one record, with quartiles of a sample") {
  const Ran ran = run("million");
  CHECK(ran.calls("tiny") == 1000000);
  const CallTimes& times = ran.regions.at("tiny").times;
  CHECK(times.fastest > 0);
  CHECK(times.median >= times.fastest);
  CHECK(times.median < 10e-6);
  CHECK(times.slowest >= times.q3);
  CHECK(ran.regions.at("tiny").busy_threads == 0);  // too short to be known
}

TEST_CASE("what a region costs is measured in a session of its own, and this process's regions are left alone") {
  const SessionFolder folder;
  const std::optional<RegionCost> cost = measure_region_cost(folder.path());
  REQUIRE(cost.has_value());
  CHECK(cost->inside > 0);
  CHECK(cost->pair > 0);
  CHECK(read(folder).calls("round/empty") == 5 * 20000);
  CHECK(std::getenv("GABLE_SESSION_FOLDER") == nullptr);
  CHECK_FALSE(measure_region_cost("/nowhere").has_value());
}

TEST_CASE("threads: each has its own nesting, and regions of two at once are overlapped") {
  const Ran ran = run("threads");
  CHECK_MESSAGE(ran.end.status() == 0, ran.output);  // what ThreadSanitizer says, if it is in the program
  CHECK(ran.calls("work") == 4000);
  CHECK(ran.records.regions.size() == 3 + 50 + 4 * 50);
  for (int i = 0; i < 50; ++i) {
    const std::string shared = "shared " + std::to_string(i);
    CHECK(ran.calls(shared) == 4);
    CHECK(ran.regions.at(shared).threads == 4);
    CHECK(ran.regions.at(shared).flop == 4);
    for (int t = 0; t < 4; ++t) CHECK(ran.calls(shared + "/own " + std::to_string(t)) == 1);
  }
  CHECK(ran.regions.at("work").threads == 4);
  CHECK(ran.regions.at("work").overlapped);
  CHECK(ran.regions.at("team").overlapped);
  CHECK(ran.regions.at("team").threads == 1);
  CHECK_FALSE(ran.regions.at("alone").overlapped);
}

TEST_CASE("a forked process has its own file; regions that were open are its parent's") {
  const Ran ran = run("fork");
  REQUIRE(ran.records.processes.size() == 2);
  const int parent = std::min(ran.records.processes[0].pid, ran.records.processes[1].pid);
  std::map<std::string, int> pid;
  for (const RegionRecord& region : ran.records.regions) {
    CHECK(pid.emplace(region.path, region.pid).second);  // no region twice
    CHECK((region.pid == parent) == (region.path != "around/child"));
  }
  CHECK(ran.calls("around/child") == 5);
  CHECK(ran.calls("around/before") == 1);
  CHECK(ran.calls("around/after") == 1);
  CHECK(ran.calls("around") == 1);
  for (const ProcessRecord& process : ran.records.processes) {
    CHECK(process.ended_well);
    if (process.pid != parent) CHECK(process.parent == parent);
  }
  CHECK(any_says(ran.records.notes, "1 region was open when it was forked"));
}

TEST_CASE("a fork that libc does not know of is noticed too") {
  const Ran ran = run("raw_fork");
  CHECK(ran.records.processes.size() == 2);
  REQUIRE(ran.records.regions.size() == 2);
  CHECK(ran.records.regions[0].times.calls == 1);
  CHECK(ran.records.regions[1].times.calls == 1);
}

TEST_CASE("however the process ends, what was measured is there, and the open call is said") {
  struct End {
    const char* how;
    int status;
    bool well;
  };
  for (const End& end : {End{"segv", 128 + 11, false}, End{"abort", 128 + 6, false}, End{"kill", 128 + 9, false},
                         End{"_exit", 5, false}, End{"return", 3, true}}) {
    CAPTURE(end.how);
    const Ran ran = run(end.how);
    CHECK(ran.end.status() == end.status);
    CHECK(ran.calls("done") == 10);
    CHECK(ran.calls("open") == -1);
    CHECK(any_says(ran.records.notes, "1 call of region 'open' did not end: not counted"));
    REQUIRE(ran.records.processes.size() == 1);
    CHECK(ran.records.processes.front().ended_well == end.well);
  }
}

TEST_CASE("exec: the program before and the one after are two records of one process number") {
  const Ran ran = run("exec");
  REQUIRE(ran.records.processes.size() == 2);
  CHECK(ran.records.processes[0].pid == ran.records.processes[1].pid);
  CHECK(ran.records.processes[0].ended_well);
  CHECK(ran.records.processes[1].command == "again nested");
  CHECK(ran.calls("done") == 10);
  CHECK(ran.calls("outer") == 3);
}

TEST_CASE("ends without a begin are counted and noted") {
  const Ran ran = run("unbalanced");
  CHECK(ran.end.status() == 0);
  CHECK(ran.calls("left open") == 1);
  CHECK(ran.calls("left open/inside") == 1);
  CHECK(any_says(ran.records.notes, "2 ends of a region without a begin: ignored"));
  CHECK(any_says(ran.records.notes, "1 call of region 'never ended' did not end"));
}

TEST_CASE("any text is a name: separators, control characters, bad UTF-8, none, too long, a buffer used again") {
  const Ran ran = run("names");
  CHECK(ran.calls("a|b") == 1);
  CHECK(ran.calls("tab here and line") == 1);
  CHECK(ran.calls("(no name)") == 3);
  CHECK(ran.calls("sch\xc3\xb6n") == 1);
  CHECK(ran.calls("bad ? utf8") == 1);
  CHECK(ran.calls(std::string(200, 'x')) == 1);
  CHECK(any_says(ran.records.notes, "was longer than 200 bytes and is cut"));
  CHECK(ran.calls("first") == 1);
  CHECK(ran.calls("other") == 1);
}

TEST_CASE("a name is cut between characters, and broken ones are replaced") {
  char name[201];
  const std::string euros(3 * 70, 'x');
  std::string text;
  for (int i = 0; i < 70; ++i) text += "\xe2\x82\xac";
  CHECK_FALSE(gable::listen::copy_name(text.c_str(), name, 200));
  CHECK(std::strlen(name) == 198);
  CHECK(gable::listen::copy_name("\xc0\xaf \xed\xa0\x80 \xf5 \xe2\x82", name, 200));
  CHECK(std::string(name) == "?? ??? ? ??");
}

TEST_CASE("nesting beyond 64 levels, and more regions than slots, are said and not fatal") {
  const Ran deep = run("deep");
  CHECK(deep.end.status() == 0);
  CHECK(deep.records.regions.size() == 64);
  CHECK(any_says(deep.records.notes, "36 begins of regions that are nested too deeply"));
  const Ran many = run("many");
  CHECK(many.end.status() == 0);
  CHECK(many.records.regions.size() == 4096);
  CHECK(any_says(many.records.notes, "904 begins of regions beyond the first 4096"));
}

TEST_CASE("regions in C and in a library that is opened late are the program's too") {
  const Ran c = run("c");
  CHECK(c.calls("c") == 1);
  CHECK(c.calls("c/step") == 4);
  CHECK(c.regions.at("c/step").bytes == 64);
  const Ran plugin = run("plugin", GABLE_REGIONS_PLUGIN);
  CHECK(plugin.end.status() == 0);
  CHECK(plugin.calls("host/plugin") == 1);
}

TEST_CASE("without a listener, with one that is not there, or statically linked, a program runs as ever") {
  for (const std::string listener : {"", "/nowhere/libgable_listen.so", "libgable_listen.so"}) {
    CAPTURE(listener);
    CHECK(run_child({GABLE_REGIONS_APP, "nested"}, 600, {{"GABLE_LISTENER", listener}}).exit_code == 0);
  }
  const SessionFolder folder;
  CHECK(folder.run({GABLE_REGIONS_APP, "nested"}, SessionMode::time, {{"GABLE_SESSION_FOLDER", "/nowhere"}}).status() ==
        0);
#ifdef GABLE_REGIONS_STATIC
  CHECK(folder.run({GABLE_REGIONS_STATIC, "c"}).status() == 0);
  CHECK(read(folder).records.processes.empty());
#endif
}

TEST_CASE("a program that closes files that it did not open keeps its regions, and its own files") {
  const SessionFolder folder;
  const std::string inside = "cd " + folder.path() + " && exec \"$0\" closes";
  CHECK(folder.run({"sh", "-c", inside, GABLE_REGIONS_APP}).status() == 0);
  CHECK(read(folder).records.regions.size() == 201);
  CHECK(folder.run({"sh", "-c", inside, GABLE_REGIONS_APP}, SessionMode::time, {{"GABLE_SESSION_EVENTS", "1:0x1:1"}})
            .status() == 0);
}

TEST_CASE("a process with few regions takes little of the disk") {
  const SessionFolder folder;
  REQUIRE(folder.run({GABLE_REGIONS_APP, "nested"}).status() == 0);
  REQUIRE(read(folder).records.regions.size() == 3);
  struct stat status {};
  REQUIRE(stat(folder.file(file_names(folder).front()).c_str(), &status) == 0);
  CHECK(512 * status.st_blocks < 256 << 10);
}

TEST_CASE("a small limit of file sizes means fewer regions, and none at all where nothing fits") {
  const SessionFolder folder;
  CHECK(folder.run({"sh", "-c", "ulimit -f 200; exec \"$0\" many", GABLE_REGIONS_APP}).status() == 0);
  const Ran ran = read(folder);
  CHECK(ran.records.regions.size() > 3);
  CHECK(ran.records.regions.size() < 100);
  CHECK(folder.run({"sh", "-c", "ulimit -f 1; exec \"$0\" nested", GABLE_REGIONS_APP}).status() == 0);
}

#ifdef GABLE_NVTX_APP
TEST_CASE("NVTX ranges are regions: push and pop, wide and registered strings, domains, ranges that end elsewhere") {
  const SessionFolder folder;
  CHECK(folder.run({GABLE_NVTX_APP}).status() == 0);
  const Ran ran = read(folder);
  CHECK(ran.calls("step") == 1);
  CHECK(ran.regions.at("step").origin == "nvtx");
  CHECK(ran.calls("step/w\xc3\xaf"
                  "de") == 3);
  CHECK(ran.calls("step/lib:in the library") == 1);
  CHECK(ran.calls("lib:registered") == 1);
  CHECK(ran.calls("async") == 1);
  CHECK(ran.regions.at("async").overlapped);
  CHECK(ran.calls("after") == 1);
  CHECK(ran.calls("aten::mm") == 2);
  CHECK(any_says(ran.records.notes, "1 end of a region without a begin"));
}
#endif

TEST_CASE("under callgrind the profile is split at regions") {
  if (find_program("valgrind").empty()) {
    MESSAGE("skipped, no valgrind");
    return;
  }
  const SessionFolder folder;
  const std::string out = "--callgrind-out-file=" + folder.file("profile");
  CHECK(folder.run({"valgrind", "--tool=callgrind", out, GABLE_REGIONS_APP, "c"}, SessionMode::simulated).status() ==
        0);
  const Ran ran = read(folder);
  if (ran.regions.at("c").marked_calls == 0) {
    MESSAGE("skipped, built without valgrind's header");
    return;
  }
  CHECK(ran.regions.at("c").marked_calls == 1);
  CHECK(ran.regions.at("c/step").marked_calls == 4);
  std::map<std::string, int> parts;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    std::ifstream profile(entry.path());
    for (std::string line; std::getline(profile, line);)
      if (says(line, "Client Request: ")) ++parts[line.substr(line.find("Client Request: ") + 16)];
  }
  CHECK(parts["gable:"] == 1);        // before c
  CHECK(parts["gable:c"] == 5);       // before each step, and after the last
  CHECK(parts["gable:c/step"] == 4);  // each step
}

TEST_CASE("a damaged session gives what it has, and a note") {
  using gable::listen::FileHeader;
  using gable::listen::Slot;
  const SessionFolder folder;
  REQUIRE(folder.run({GABLE_REGIONS_APP, "nested"}).status() == 0);
  const std::vector<std::string> names = file_names(folder);
  REQUIRE(names.size() == 1);
  const std::string file = folder.file(names.front());
  const std::string whole = file + ".whole";
  fs::resize_file(file, sizeof(FileHeader) + 3 * sizeof(Slot));  // the rest is room for more
  fs::copy_file(file, whole);
  const auto restore = [&] { fs::copy_file(whole, file, fs::copy_options::overwrite_existing); };

  SUBCASE("cut off in the second region") {
    fs::resize_file(file, sizeof(FileHeader) + sizeof(Slot) + 10);
    const Ran ran = read(folder);
    CHECK(ran.calls("outer") == 3);
    CHECK(ran.regions.size() == 1);
    CHECK(any_says(ran.records.notes, "is cut off: 2 of its 3 regions are lost"));
  }
  SUBCASE("cut off in the header, empty, of another version") {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}}) {
      fs::resize_file(file, bytes);
      CHECK(read(folder).records.processes.empty());
      CHECK(any_says(read(folder).records.notes, "is cut off before its first region"));
      restore();
    }
    damage(file, 7, '9');
    CHECK(any_says(read(folder).records.notes, "not written by the libgable_listen.so of this gable"));
    fs::resize_file(file, 0);
    fs::resize_file(file, sizeof(FileHeader) + sizeof(Slot));  // as the listener leaves it on a full disk
    CHECK(read(folder).records.processes.empty());
    CHECK(any_says(read(folder).records.notes, "the folder in TMPDIR is full"));
  }
  SUBCASE("numbers that can't be true") {
    damage(file, offsetof(FileHeader, used), std::uint32_t{1000000});
    CHECK(any_says(read(folder).records.notes, "its header contradicts itself"));
    restore();
    damage(file, offsetof(FileHeader, events), std::uint32_t{1000000});
    CHECK(any_says(read(folder).records.notes, "its header contradicts itself"));
    restore();
    damage(file, sizeof(FileHeader) + sizeof(Slot) + offsetof(Slot, parent), std::uint32_t{77});
    CHECK(any_says(read(folder).records.notes, "region 1 is inside a later one"));
    restore();
    for (const double flop : {1e300, -1.0, static_cast<double>(INFINITY), static_cast<double>(NAN), 1e-300}) {
      damage(file, sizeof(FileHeader) + offsetof(Slot, flop), flop);
      const Ran ran = read(folder);
      CHECK(ran.regions.at("outer").flop == 0);
      CHECK(ran.regions.at("outer").bytes == 30);
      CHECK(any_says(ran.records.notes, "FLOP in all, which no program does: not used"));
      CHECK(any_says(ran.records.notes, "declares fewer than 0 (or nan) FLOP") == std::isnan(flop));
      restore();
    }
    damage(file, sizeof(FileHeader) + offsetof(Slot, calls), ~std::uint64_t{0});
    damage(file, sizeof(FileHeader) + offsetof(Slot, samples), std::uint32_t{0x7fc00000});  // NaN
    const Ran ran = read(folder);
    CHECK(ran.calls("outer") > 0);
    CHECK(ran.regions.at("outer").times.median == ran.regions.at("outer").times.median);
  }
  SUBCASE("a name without its end, with control characters, separators and no UTF-8") {
    std::array<char, sizeof(Slot::name)> name{};
    name.fill('\xff');
    name[0] = '\n';
    name[1] = '/';
    damage(file, sizeof(FileHeader) + offsetof(Slot, name), name);
    const Ran ran = read(folder);
    CHECK(ran.calls(" |" + std::string(198, '?')) == 3);
  }
  SUBCASE("other files in the folder") {
    std::ofstream(folder.file("regions.1.2.3")) << "x";
    std::ofstream(folder.file("regions.abc")) << "x";
    fs::create_directory(folder.file("regions.7.0"));
    CHECK(read(folder).calls("outer") == 3);
  }
  CHECK(read_session("/nowhere").regions.empty());
}
