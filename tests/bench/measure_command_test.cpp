// `gable measure` on programs that end well and badly.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/record/schema.h"
#include "perfcounters/program/launch.h"
#include "perfcounters/program/perf_counts.h"
#include "tests/tools/expect.h"
#include "tests/tools/folder.h"

using namespace gable;
using namespace gable::bench;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

struct Folder : test::Folder {
  Folder() : test::Folder("program_test") {}
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

using test::read_text;

struct Result {
  int code = -1;
  std::string out, err;
};

Result gable_command(const Folder& folder, const std::string& arguments, const std::string& variables = "") {
  const std::string line =
      variables + " '" GABLE_COMMAND "' " + arguments + " >'" + folder.file("out") + "' 2>'" + folder.file("err") + "'";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(folder.file("out")), read_text(folder.file("err"))};
}

TEST_CASE("measure: the program's output and exit code are its own; the record is valid however it ended") {
  const Folder folder;
  struct Ending {
    std::string script;
    int code;
  };
  for (const Ending& ending : {Ending{"echo said; exit 0", 0}, Ending{"echo said; exit 7", 7},
                               Ending{"echo said; kill -SEGV $$", 139}, Ending{"echo said; (exit 1) & exit 0", 0}}) {
    INFO(ending.script);
    const std::string file = folder.file("study.json");
    const Result result =
        gable_command(folder, "measure --counters analytic --json '" + file + "' -- sh -c '" + ending.script + "'");
    CHECK(result.code == ending.code);
    CHECK(result.out == "said\n");
    CHECK(contains(result.err, "program"));
    const json document = json::parse(read_text(file));
    CHECK(check_study(document).empty());
    CHECK(document["measurements"].empty());
    REQUIRE(document["program"]["parts"].size() == 1);
    CHECK(document["program"]["parts"][0]["reason"] == "--counters analytic");
    fs::remove(file);
  }
}

TEST_CASE("measure: what can't be started is said as a shell says it, and misuse is exit 2") {
  const Folder folder;
  CHECK(gable_command(folder, "measure -- /nowhere/app").code == 127);
  for (const char* nothing : {"measure --", "roofline --", "measure"}) {  // as of an empty variable of a script
    const Result none = gable_command(folder, nothing);
    CHECK(none.code == 2);
    CHECK(contains(none.err, "no program: write it after two dashes"));
  }
  const Result unheeded = gable_command(folder, "roofline --top 3 --out " + folder.file("report"));
  CHECK(unheeded.code == 2);
  CHECK(contains(unheeded.err, "--top: is of programs"));
  const Result denied = gable_command(folder, "measure -- '" + folder.file("") + "'");
  CHECK(denied.code == 126);
  CHECK_FALSE(denied.err.empty());
  const Result none = gable_command(folder, "measure");
  CHECK(none.code == 2);
  CHECK(contains(none.err, "after two dashes"));
  CHECK(contains(gable_command(folder, "measure --help").out, "Exit code: the program's own"));
  const Result both = gable_command(folder, "measure --json -- true");
  CHECK(both.code == 2);
  CHECK(contains(both.err, "standard output is the program's own"));
  CHECK(gable_command(folder, "roofline --suite study -- true").code == 2);
}

TEST_CASE("measure: a program that a signal ended is not run again, whatever the counters") {
  const Folder folder;
  const std::string file = folder.file("runs");
  const Result result = gable_command(folder, "measure -- sh -c 'echo run >>" + file + "; kill -TERM $$'");
  CHECK(result.code == 143);
  CHECK(contains(result.err, "signal 15 ended the program, and it is not run again"));
  CHECK(read_text(file) == "run\n");
}

TEST_CASE("measure: what can't be written or counted is refused before the program runs") {
  const Folder folder;
  const std::string ran = folder.file("ran");
  const auto refused = [&](const std::string& options, int code, const std::string& says) {
    INFO(options);
    const Result result = gable_command(folder, options + " -- touch '" + ran + "'");
    CHECK(result.code == code);
    CHECK(contains(result.err, says));
    CHECK_FALSE(fs::exists(ran));
  };
  refused("measure --json /proc/study.json", 2, "/proc/study.json");  // root may write there, says access()
  refused("measure --json '" + folder.file("none/study.json") + "'", 2, "does not exist");
  refused("roofline --out /proc/report", 2, "--out '/proc/report'");
  refused("measure --top 0", 2, "'0': must be a whole number from 1 to");
  refused("measure --top many", 2, "'many': must be a whole number from 1 to");
  for (const std::string option : {"--threads 2", "--seconds 2", "--suite study", "--cache warm", "--energy"})
    refused("roofline " + option, 2, option.substr(0, option.find(' ')) + ": is of gable's own operations");
  const perf::ProgramCounts counter;
  if (counter.runs() == 0 && !perf::has_nvidia_driver()) refused("measure --counters counter", 3, "--counters auto");
}

TEST_CASE("measure: a TMPDIR that does not exist is named, and none of gable's folders is left in another") {
  const Folder folder;
  const std::string before = environment("TMPDIR");
  const std::string none = folder.file("none");
  ::setenv("TMPDIR", none.c_str(), 1);
  const Result result = gable_command(folder, "measure --counters analytic -- true");
  CHECK(result.code != 0);
  CHECK(contains(result.err, none));
  CHECK(contains(result.err, "TMPDIR"));
  fs::create_directory(none);
  CHECK(gable_command(folder, "measure --counters analytic -- true").code == 0);
  CHECK(fs::is_empty(none));
  if (before.empty()) {
    ::unsetenv("TMPDIR");
  } else {
    ::setenv("TMPDIR", before.c_str(), 1);
  }
}

TEST_CASE("measure: where the program can't run again, what the first run gave is kept, with the reason") {
  const Folder folder;
  const std::string file = folder.file("study.json"), temporary = folder.file("tmp");
  fs::create_directory(temporary);
  for (const std::string counters : {"auto", "analytic"}) {
    INFO(counters);
    const Result result = gable_command(
        folder, "measure --counters " + counters + " --json '" + file + "' -- sh -c 'rm -r $TMPDIR/gable*; exit 3'",
        "TMPDIR='" + temporary + "'");
    CHECK(result.code == 3);
    const json document = json::parse(read_text(file));
    CHECK(check_study(document).empty());
    CHECK(document["program"]["seconds"] > 0);
    CHECK(document["program"]["parts"].size() == 1);
    fs::remove(file);
  }
}

TEST_CASE("measure: the CPU time of a program without regions is its processes', and its own words stay its own") {
  const Folder folder;
  const std::string file = folder.file("study.json");
  const Result result = gable_command(
      folder, "measure --counters analytic --json '" + file +
                  "' -- sh -c '(i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done); echo $0 $*' --json x --help --");
  CHECK(result.code == 0);
  CHECK(result.out == "--json x --help --\n");
  const json document = json::parse(read_text(file));
  CHECK(document["program"]["cpu_seconds"] > 0.001);
}

TEST_CASE("measure: a program's processes are those with regions, and those that started them") {
  const Folder folder;
  const std::string file = folder.file("study.json");
  gable_command(folder,
                "measure --counters analytic --json '" + file + "' -- sh -c '" GABLE_TRIAD "; " GABLE_TRIAD "; true'");
  CHECK(json::parse(read_text(file))["program"]["processes"] == 3);
}

TEST_CASE("measure: a program of a million empty regions is told what they cost, one of a few is not") {
  const Folder folder;
  const Result many = gable_command(folder, "measure --counters analytic -- '" GABLE_REGIONS_APP "' million");
  CHECK(contains(many.err, "note: 1000000 calls of regions at "));
  CHECK(contains(many.err, "! regions_app: T is too long"));
  CHECK(contains(many.err, "! tiny: T is too long"));
  const Result few = gable_command(folder, "measure --counters analytic -- '" GABLE_REGIONS_APP "' nested");
  CHECK_FALSE(contains(few.err, "note: "));
  CHECK_FALSE(contains(few.err, "! outer: "));
}

TEST_CASE("measure: experiments that --counters analytic rules out are said to be left out") {
  const Folder folder;
  const Result without = gable_command(folder, "measure --experiments --counters analytic -- true");
  CHECK(without.code == 0);
  CHECK(contains(without.err, "note: --experiments did nothing"));
  CHECK_FALSE(contains(gable_command(folder, "measure --counters analytic -- true").err, "--experiments"));
}

TEST_CASE("measure: beyond --top, regions are said; Ctrl-C in the simulated run keeps the first one's times") {
  const Folder folder;
  const std::string file = folder.file("study.json");
  const Result result =
      gable_command(folder, "measure --counters analytic --top 1 --json '" + file + "' -- '" GABLE_TRIAD "'");
  CHECK(contains(result.err, "1 more region with less time: --top 2 shows it too"));
  // The program's second run, which the environment tells from the first, interrupts the process that measures.
  const Result interrupted = gable_command(
      folder,
      "measure --counter-seconds 5 --json '" + file +
          "' -- sh -c 'echo said; [ $GABLE_SESSION_MODE = time ] || { kill -INT $PPID; while :; do :; done; }'");
  CHECK(interrupted.code == 0);
  CHECK(interrupted.out == "said\n");
  const json document = json::parse(read_text(file));
  CHECK(check_study(document).empty());
  CHECK(document["program"]["parts"].size() == 1);
}

TEST_CASE(
    "measure: kernels of which the run under the clock has the first ones alone are timed in a run of their own") {
  const Folder folder;
  const std::string file = folder.file("study.json"), program = folder.file("program");
  // Writes what the library in a CUDA program would.
  test::write_text(program, R"(#!/bin/sh
echo $GABLE_SESSION_MODE >> "$1"
case $GABLE_SESSION_MODE in time) calls=10; stopped="stopped
";; *) calls=4000; stopped=;; esac
printf 'gable kernels 1 %s\nkernel\t0\tGPU\tstep\t\t8,1,1\t64,1,1\tcalls=%s\tseconds=0.004\tmedian=1e-06\tq1=1e-06\tq3=1e-06\tfastest=1e-06\tslowest=1e-06\n%send\tdone\n' \
  $$ $calls "$stopped" > "$GABLE_SESSION_FOLDER/kernels.$$.0.txt"
[ "$2" != crash ] || kill -SEGV $$
)");
  const auto runs = [&](const std::string& last) {
    const std::string log = folder.file("runs");
    fs::remove(log);
    gable_command(folder,
                  "measure --counters analytic --json '" + file + "' -- sh '" + program + "' '" + log + "' " + last);
    return read_text(log);
  };
  CHECK(runs("") == "time\nkernels\n");
  json document = json::parse(read_text(file));
  CHECK(check_study(document).empty());
  REQUIRE(document["program"]["parts"].size() == 2);
  CHECK(document["program"]["parts"][1]["called"]["calls"] == 4000);
  CHECK(document["program"]["notes"].empty());
  // A program that crashed is not run again.
  CHECK(runs("crash") == "time\n");
  document = json::parse(read_text(file));
  REQUIRE(document["program"]["parts"].size() == 2);
  CHECK(document["program"]["parts"][1]["called"]["calls"] == 10);
  CHECK(contains(document["program"]["notes"].dump(), "those of the first launches"));
}

TEST_CASE("measure: a run that counts GPU kernels and does not end is ended, and what it had counted is kept") {
  const Folder folder;
  const std::string file = folder.file("study.json"), program = folder.file("program");
  test::write_text(program, R"(#!/bin/sh
times='seconds=0.004	median=1e-06	q1=1e-06	q3=1e-06	fastest=1e-06	slowest=1e-06'
case $GABLE_SESSION_MODE in counters) times='counted=4	m:dram__bytes_read.sum=4000	m:dram__bytes_write.sum=400';; esac
printf "gable kernels 1 %s
kernel	0	GPU	step		8,1,1	64,1,1	calls=4	$times
end	done
" $$   > "$GABLE_SESSION_FOLDER/kernels.$$.0.txt"
[ $GABLE_SESSION_MODE != counters ] || sleep 60
)");
  const Result result =
      gable_command(folder, "measure --counter-seconds 0.5 --json '" + file + "' -- sh '" + program + "'");
  CHECK(result.code == 0);
  CHECK(contains(result.err, "took longer than --counter-seconds 0.5"));
  const json document = json::parse(read_text(file));
  CHECK(check_study(document).empty());
  REQUIRE(document["program"]["parts"].size() == 2);
  CHECK(contains(document["program"]["parts"][1]["reason"].dump(), "W: "));  // not Q
}

TEST_CASE("measure: an exit code that the simulated run has as well is not said of it") {
  const Folder folder;
  const Result result = gable_command(folder, "measure -- sh -c 'exit 3'");
  CHECK(result.code == 3);
  CHECK(contains(result.err, "exit code 3"));
  CHECK_FALSE(contains(result.err, "under valgrind"));
}

TEST_CASE("measure: the exit code is the program's own also where nobody reads what gable says") {
  for (const char* nobody : {"2>&-", "2>/dev/full"}) {
    INFO(nobody);
    const int status = std::system(
        ("'" GABLE_COMMAND "' measure --counters analytic -- sh -c 'exit 7' " + std::string(nobody)).c_str());
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
  }
}

TEST_CASE(
    "measure: a file on standard input is read again by the run that counts; of a pipe it is said that it is not") {
  const Folder folder;
  std::ofstream(folder.file("input")) << "5\n";
  const std::string command = "measure -- sh -c 'read number; exit $number'";
  const Result file = gable_command(folder, command + " <'" + folder.file("input") + "'");
  CHECK(file.code == 5);
  CHECK_FALSE(contains(file.err, "under valgrind"));
  CHECK_FALSE(contains(file.err, "standard input"));
  const Result pipe = gable_command(folder, command, "echo 5 |");
  CHECK(pipe.code == 5);
  if (contains(pipe.err, "under valgrind")) CHECK(contains(pipe.err, "its standard input is a pipe"));
  const Result unheeded = gable_command(folder, "measure -- sh -c 'exit 3'", "echo 5 |");
  CHECK(unheeded.code == 3);
  if (contains(unheeded.err, "simulating")) CHECK(contains(unheeded.err, "note: if the program reads its input"));
}

TEST_CASE("measure: if a parent ignores the end of its children, exit codes are kept, and the program ignores it too") {
  const Folder folder;
  const std::string ignoring = "env --ignore-signal=CHLD", timed = "measure --counters analytic -- ";
  CHECK(gable_command(folder, timed + "sh -c 'exit 7'", ignoring).code == 7);
  CHECK(gable_command(folder, timed + "sh -c 'kill -SEGV $$'", ignoring).code == 139);
  const auto ignored = [&](const std::string& variables) {
    return gable_command(folder, timed + "grep SigIgn /proc/self/status", variables).out;
  };
  CHECK(ignored(ignoring) != ignored(""));
}

TEST_CASE("measure: a simulated run that ends otherwise than the first one gives no W and Q") {
  const Folder folder;
  const std::string file = folder.file("study.json"), runs = folder.file("runs");
  const Result result = gable_command(
      folder, "measure --json '" + file + "' -- sh -c 'echo run >> " + runs + "; exit $(wc -l < " + runs + ")'");
  CHECK(result.code == 1);
  const json document = json::parse(read_text(file));
  CHECK(check_study(document).empty());
  CHECK(document["measurements"].empty());
  if (read_text(runs) != "run\n") CHECK(contains(result.err, "instead of 1, so it did something else there"));
}

TEST_CASE("measure: regions are as many as ran, and a simulated W is the known one") {
  const Folder folder;
  const std::string file = folder.file("study.json");
  const Result result =
      gable_command(folder, "measure --counters simulated --json '" + file + "' -- '" GABLE_TRIAD "'");
  if (result.code == 3) {  // no valgrind, or a build with sanitizers
    CHECK(contains(result.err, "--counters simulated: no such source works here"));
    CHECK_FALSE(std::filesystem::exists(file));
    MESSAGE("skipped: a program's simulated W: ", result.err);
    return;
  }
  CHECK(result.code == 0);
  const json document = json::parse(read_text(file));
  CHECK(check_study(document).empty());
  const json& parts = document["program"]["parts"];
  REQUIRE(parts.size() == 3);
  CHECK(parts[0]["kind"] == "program");
  for (const json& part : parts) {
    if (part["name"] == "triad") CHECK(part["called"]["calls"] == 5);
    if (part["name"] == "outer") CHECK(part["called"]["calls"] == 1);
  }
  if (document["measurements"].empty()) {
    MESSAGE("skipped: no simulation here: ", std::string(parts[0]["reason"]));
    return;
  }
  for (const json& row : document["measurements"]) {
    CHECK_FALSE(row["Q"]["l1"]["bytes"].is_null());
    if (row["name"] == "outer/triad") {
      CHECK(row["W"]["flop"] == doctest::Approx(2.0 * 65536).epsilon(0.01));
      // Two loads and a store of 8 bytes; without optimisation there are those of `pass` and `i` as well.
      CHECK(row["Q"]["l1"]["bytes"].get<double>() > 0.99 * 24 * 65536);
    }
    if (row["name"] == "outer") CHECK(row["W"]["flop"] == doctest::Approx(5 * 2.0 * 65536).epsilon(0.01));
  }
}

}  // namespace
