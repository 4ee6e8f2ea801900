// The command when it is interrupted: it ends at once with 128 and the signal, leaves whole files and no processes, and
// loses nothing that it measured. --resume goes on.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/record/schema.h"
#include "perfcounters/sources/child_process.h"
#include "tests/bench/hostile.h"

using namespace gable;
using namespace gable::bench;
using namespace gable::hostile;

namespace {

/// Words of a shell that write its process id into the folder's file "pid", all at once.
std::string tell_pid(const Folder& folder) {
  return "echo $$ >'" + folder.file("pid.new") + "'; mv '" + folder.file("pid.new") + "' '" + folder.file("pid") +
         "'; ";
}

/// What tell_pid() told, once it has; 0: it never did.
pid_t told_pid(const Folder& folder) {
  if (!comes([&] { return fs::exists(folder.file("pid")); })) return 0;
  return std::stoi(read_text(folder.file("pid")));
}

bool has_ended(pid_t process) {
  return process > 0 && comes([&] { return ::kill(process, 0) != 0 && errno == ESRCH; });
}

/// A drawing program that never ends, on the PATH that this returns.
std::string path_with_endless_renderer(const Folder& folder) {
  fs::create_directories(folder.file("bin"));
  const std::string program = folder.file("bin") + "/rsvg-convert";
  write_text(program, "#!/bin/sh\n" + tell_pid(folder) + "exec sleep 1000\n");
  fs::permissions(program, fs::perms::owner_all);
  return folder.file("bin") + ":" + ::getenv("PATH");
}

}  // namespace

TEST_CASE(
    "plot: a signal while it draws ends the drawing program too, and nothing is half written or another study's") {
  const Folder folder;
  const std::string study = folder.file("study.json"), report = folder.file("report");
  REQUIRE(run_command(folder, std::string("bench --seconds 0.01 ") + kSmall + " --json " + study).code == 0);
  const Variable path("PATH", path_with_endless_renderer(folder));
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const bool to_all : {false, true}) {
      CAPTURE(signal);
      CAPTURE(to_all);
      fs::remove(folder.file("pid"));
      fs::remove_all(report);
      fs::create_directories(report);
      write_text(report + "/roofline.png", "an earlier report's");
      Running plot(folder, "plot " + study + " --out " + report);
      const pid_t renderer = told_pid(folder);
      REQUIRE(renderer > 0);
      to_all ? plot.send_to_group(signal) : plot.send(signal);
      CHECK(plot.wait() == 128 + signal);
      CHECK(has_ended(renderer));
      CHECK(contains(read_text(folder.file("stderr")), "interrupted"));
      for (const char* file : {"study.csv", "roofline.svg", "index.html"}) CHECK(fs::exists(report + "/" + file));
      CHECK(contains(read_text(report + "/index.html"), "</html>"));
      CHECK_FALSE(fs::exists(report + "/roofline.png"));
      CHECK(temporary_files(folder) == 0);
    }
  }
}

TEST_CASE("one signal ends plot, diff, bench and verify that wait for a file without an end") {
  const Folder folder;
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& arguments : {"plot --ascii " + pipe, "diff " + pipe + " " + pipe,
                                       "bench --device reference --file " + pipe, "verify --file " + pipe}) {
    CAPTURE(arguments);
    Running waiting(folder, arguments);
    int writer = -1;
    REQUIRE(comes([&] { return (writer = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0; }));
    waiting.send(SIGTERM);
    const int end = waiting.wait();
    CAPTURE(end);
    CHECK((end == -SIGTERM || end == 128 + SIGTERM));
    ::close(writer);
  }
}

TEST_CASE("measure: a signal is the program's, whose time is kept; nobody and nothing stays") {
  const Folder folder;
  fs::create_directories(folder.file("tmp"));
  const Variable temporary("TMPDIR", folder.file("tmp"));
  const std::string record = folder.file("study.json");
  const std::string measure = "measure --counters analytic --json " + record + " -- sh -c '";
  const auto shell = [&](std::string script) {  // inside single quotes
    for (std::size_t at = 0; (at = script.find('\'', at)) != std::string::npos; at += 4) script.replace(at, 1, "'\\''");
    return measure + script + "'";
  };
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const bool handles : {false, true}) {
      CAPTURE(signal);
      CAPTURE(handles);
      fs::remove(folder.file("pid"));
      fs::remove(record);
      Running running(folder, handles ? shell("trap \"exit 7\" INT TERM; " + tell_pid(folder) + "while :; do :; done")
                                      : shell(tell_pid(folder) + "exec sleep 1000"));
      const pid_t program = told_pid(folder);
      REQUIRE(program > 0);
      running.send(signal);
      CHECK(running.wait() == (handles ? 7 : 128 + signal));
      CHECK(has_ended(program));
      const nlohmann::json study = nlohmann::json::parse(read_text(record));
      for (const Violation& v : check_study(study)) FAIL_CHECK(v.pointer << ": " << v.value);
      CHECK(study["program"]["interrupted"] == true);
      CHECK(study["program"]["seconds"] > 0);
      if (!handles) CHECK(study["program"]["signal"] == signal);
      CHECK(fs::is_empty(folder.file("tmp")));
      CHECK(temporary_files(folder) == 0);
    }
  }
}

TEST_CASE("measure: a signal at any time leaves a whole record or none, and none only before the program has ended") {
  const Folder folder;
  fs::create_directories(folder.file("tmp"));
  const Variable temporary("TMPDIR", folder.file("tmp"));
  const std::string record = folder.file("study.json"), ended = folder.file("ended");
  for (int milliseconds = 0; milliseconds < 60; milliseconds += 3) {
    CAPTURE(milliseconds);
    fs::remove(record);
    fs::remove(ended);
    Running running(folder, "measure --counters analytic --json " + record + " -- sh -c ': >" + ended + "'");
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    const bool had_ended = fs::exists(ended);
    running.send(SIGTERM);
    const int end = running.wait();
    CAPTURE(end);
    CHECK((end == 0 || end == 128 + SIGTERM || end == -SIGTERM));
    if (had_ended || end == 0) REQUIRE(fs::exists(record));
    if (fs::exists(record)) CHECK(check_study(nlohmann::json::parse(read_text(record))).empty());
    CHECK(fs::is_empty(folder.file("tmp")));
    CHECK(temporary_files(folder) == 0);
  }
}

TEST_CASE("measure and roofline of a program: a signal in the ceilings ends only these") {
  const Folder folder;
  fs::create_directories(folder.file("tmp"));
  const Variable temporary("TMPDIR", folder.file("tmp"));
  const std::string record = folder.file("study.json"), report = folder.file("report");
  for (const std::string& command : {std::string("measure --ceilings"), "roofline --quick --out " + report}) {
    CAPTURE(command);
    fs::remove(record);
    fs::remove(folder.file("stderr"));
    Running running(folder, command + " --counters analytic --json " + record + " -- sh -c 'exit 5'");
    REQUIRE(comes([&] { return contains(read_text(folder.file("stderr")), "ceiling "); }));
    running.send(SIGTERM);
    CHECK(running.wait() == 5);
    const nlohmann::json study = nlohmann::json::parse(read_text(record));
    for (const Violation& v : check_study(study)) FAIL_CHECK(v.pointer << ": " << v.value);
    CHECK(contains(study["program"]["notes"].dump(), "the machine's ceilings were not measured"));
    CHECK(study["program"]["seconds"] > 0);
    CHECK(fs::is_empty(folder.file("tmp")));
    CHECK(temporary_files(folder) == 0);
  }
  CHECK(nlohmann::json::parse(read_text(report + "/study.json")) == nlohmann::json::parse(read_text(record)));
}

TEST_CASE(
    "measure: the session folder of a killed gable is removed by the next one, and that of a running one is not") {
  const Folder folder;
  const std::string sessions = folder.file("tmp");
  fs::create_directories(sessions + "/gable-session_links");  // not this command's to remove: the name is longer
  fs::create_directory_symlink(folder.file("tmp"), sessions + "/gable-session_abcdef");
  const Variable temporary("TMPDIR", sessions);
  const auto count = [&] { return std::distance(fs::directory_iterator(sessions), fs::directory_iterator()) - 2; };
  const std::string next = "measure --counters analytic -- true";
  {
    Running killed(folder, "measure --counters analytic -- sh -c '" + std::string("echo $$ >") +
                               folder.file("pid.new") + "; mv " + folder.file("pid.new") + " " + folder.file("pid") +
                               "; exec sleep 1000'");
    const pid_t program = told_pid(folder);
    REQUIRE(program > 0);
    CHECK(count() == 1);
    CHECK(run_command(folder, next).code == 0);
    CHECK(count() == 1);
    killed.send(SIGKILL);
    CHECK(killed.wait() == -SIGKILL);
    ::kill(program, SIGKILL);
  }
  CHECK(count() == 1);
  CHECK(run_command(folder, next).code == 0);
  CHECK(count() == 0);
}

TEST_CASE("rows are in the file of --json while the study runs") {
  const Folder folder;
  write_text(folder.file("list.txt"), two_hundred_problems());
  const std::string record = folder.file("study.json");
  const std::string line = "'" GABLE_COMMAND "' bench --device cpu --threads 1 --seconds 0.3 --file " +
                           folder.file("list.txt") + " --json " + record +
                           " >/dev/null 2>&1 & pid=$!; for i in $(seq 12000); do [ -s " + record +
                           " ] && break; sleep 0.05; done; kill -9 $pid";
  REQUIRE(std::system(line.c_str()) == 0);
  REQUIRE(fs::exists(record));
  const nlohmann::json study = nlohmann::json::parse(read_text(record));
  for (const Violation& v : check_study(study)) FAIL_CHECK(v.pointer << ": " << v.value);
  CHECK(study["measurements"].size() >= 1);
  CHECK(study["measurements"].size() < 200);
}

TEST_CASE("an interrupted study keeps its rows, exits with 128 and the signal, and leaves nothing behind") {
  const Folder folder;
  write_text(folder.file("list.txt"), two_hundred_problems());
  const std::string record = folder.file("study.json");
  const std::string bench =
      "bench --device cpu --threads 1 --seconds 0.3 --file " + folder.file("list.txt") + " --json " + record;
  for (const int signal : {SIGINT, SIGTERM}) {
    CAPTURE(signal);
    fs::remove(record);
    Running running(folder, bench);
    REQUIRE(comes([&] { return fs::exists(record); }));
    running.send(signal);
    ::usleep(5000);
    running.send(signal);  // as timeout(1) does, to the program and to its group
    CHECK(running.wait() == 128 + signal);
    const nlohmann::json study = nlohmann::json::parse(read_text(record));
    for (const Violation& v : check_study(study)) FAIL_CHECK(v.pointer << ": " << v.value);
    CHECK(study["measurements"].size() >= 1);
    CHECK(study["measurements"].size() < 200);
    CHECK(temporary_files(folder) == 0);
  }
}

TEST_CASE("--resume measures what an interrupted study lacks: same rows in the same order, each measured once") {
  const Folder folder;
  write_text(folder.file("list.txt"), two_hundred_problems());
  const std::string record = folder.file("study.json");
  const std::string bench =
      "bench --device cpu,reference --threads 1 --seconds 0.02 --file " + folder.file("list.txt") + " --json " + record;
  const auto read_rows = [&] { return nlohmann::json::parse(read_text(record))["measurements"]; };
  const auto places = [](const nlohmann::json& rows) {
    std::vector<std::string> names;
    for (const nlohmann::json& row : rows)
      names.push_back(row["name"].get<std::string>() + " " + row["problem"].get<std::string>() + " " +
                      row["device"].get<std::string>() + " " + row["cache"].get<std::string>());
    return names;
  };
  {
    Running running(folder, bench + " --resume");
    REQUIRE(comes([&] { return fs::exists(record); }));
    running.send(SIGTERM);
    CHECK(running.wait() == 128 + SIGTERM);
  }
  // Of the last case half is there, as after a kill: it is measured again as a whole.
  nlohmann::json half = nlohmann::json::parse(read_text(record));
  const nlohmann::json before = half["measurements"];
  REQUIRE(before.size() >= 2);
  REQUIRE(before.size() < 400);
  half["measurements"].erase(half["measurements"].size() - 1);
  write_text(record, half.dump());
  {
    Running running(folder, bench + " --resume");
    REQUIRE(comes([&] { return read_rows().size() > before.size(); }));
    running.send(SIGTERM);
    CHECK(running.wait() == 128 + SIGTERM);
    std::vector<std::string> names = places(read_rows());
    std::sort(names.begin(), names.end());
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  }
  write_text(record, half.dump());
  const Result resumed = run_command(folder, bench + " --resume");
  CAPTURE(resumed.err);
  REQUIRE(resumed.code == 0);
  const nlohmann::json whole = nlohmann::json::parse(read_text(record));
  const nlohmann::json& rows = whole["measurements"];
  CHECK(contains(whole["machine"]["mode"].get<std::string>(), "resumed: " + std::to_string(before.size() - 2)));
  for (std::size_t i = 0; i + 2 < before.size(); ++i) CHECK(rows[i]["T"] == before[i]["T"]);
  CHECK(rows[before.size() - 2]["T"] != before[before.size() - 2]["T"]);
  REQUIRE(run_command(folder, bench).code == 0);
  CHECK(places(rows) == places(read_rows()));
  CHECK(nlohmann::json::parse(read_text(record))["machine"]["command"] == whole["machine"]["command"]);
}

TEST_CASE("--resume measures a problem that was given twice again where one of its two rows is lost") {
  const Folder folder;
  const std::string record = folder.file("study.json");
  const std::string bench =
      std::string("bench --seconds 0.01 ") + kSmall + " --problem mb1ic3ih8oc4kh3 --json " + record + " --resume";
  REQUIRE(run_command(folder, bench).code == 0);
  nlohmann::json study = nlohmann::json::parse(read_text(record));
  REQUIRE(study["measurements"].size() == 2);
  study["measurements"].erase(1);
  write_text(record, study.dump());
  const Result resumed = run_command(folder, bench);
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  study = nlohmann::json::parse(read_text(record));
  CHECK(study["measurements"].size() == 2);
  CHECK(contains(study["machine"]["mode"].get<std::string>(), "resumed: 0"));
  CHECK(run_command(folder, bench).code == 0);
  study = nlohmann::json::parse(read_text(record));
  CHECK(contains(study["machine"]["mode"].get<std::string>(), "resumed: 2"));
}

TEST_CASE("--resume refuses what is no record of the same command, machine and gable, and says what differs") {
  const Folder folder;
  const std::string record = folder.file("study.json");
  const std::string bench = std::string("bench --seconds 0.01 ") + kSmall + " --json " + record;
  CHECK(contains(run_command(folder, std::string("bench --resume ") + kSmall).err, "--json"));
  CHECK(contains(run_command(folder, "roofline --resume -- /bin/true").err, "--resume"));
  CHECK(contains(run_command(folder, "roofline --energy -- /bin/true").err, "--energy: is of gable's own operations"));
  write_text(record, "{");
  CHECK(run_command(folder, bench + " --resume").code == 2);
  CHECK(read_text(record) == "{");
  REQUIRE(run_command(folder, bench).code == 0);
  const Result other = run_command(folder, bench + " --max-batch 1 --resume");
  CHECK(other.code == 2);
  CHECK(contains(other.err, "its command is"));
  const nlohmann::json study = nlohmann::json::parse(read_text(record));
  for (const char* field : {"cpu", "versions", "threads"}) {
    CAPTURE(field);
    nlohmann::json changed = study;
    if (std::string(field) == "threads") changed["machine"]["threads"] = 4096;
    if (std::string(field) == "cpu") changed["machine"]["cpu"] = "another";
    if (std::string(field) == "versions") changed["machine"]["versions"]["gable"] = "0.0.1";
    write_text(record, changed.dump());
    const Result result = run_command(folder, bench + " --resume");
    CHECK(result.code == 2);
    CHECK(contains(result.err, std::string("its ") + field));
  }
}

TEST_CASE("an interrupted search for the fastest writes what it found") {
  const Folder folder;
  write_text(folder.file("list.txt"), two_hundred_problems());
  const std::string record = folder.file("tuned.json");
  ::setenv("GABLE_CACHE", folder.file("cache").c_str(), 1);
  Running running(folder, "tune --file " + folder.file("list.txt") + " --json " + record);
  REQUIRE(comes([&] { return fs::exists(folder.file("cache")); }));
  running.send(SIGTERM);
  CHECK(running.wait() == 128 + SIGTERM);
  ::unsetenv("GABLE_CACHE");
  CHECK(nlohmann::json::parse(read_text(record))["tuned"].size() < 200);
  CHECK(temporary_files(folder) == 0);
}

TEST_CASE("roofline and ceilings that are interrupted while they measure roofs write what they have") {
  const Folder folder;
  const std::string study = folder.file("study.json");
  for (const std::string& arguments :
       {std::string("ceilings --quick"), "roofline --quick --device cpu --out " + folder.file("report")}) {
    CAPTURE(arguments);
    fs::remove(study);
    fs::remove(folder.file("stderr"));
    Running running(folder, arguments + " --json " + study);
    REQUIRE(comes([&] { return contains(read_text(folder.file("stderr")), "ceiling "); }));
    running.send(SIGTERM);
    CHECK(running.wait() == 128 + SIGTERM);
    CAPTURE(read_text(folder.file("stderr")));
    for (const Violation& v : check_study(nlohmann::json::parse(read_text(study))))
      FAIL_CHECK(v.pointer << ": " << v.value);
    CHECK(temporary_files(folder) == 0);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("an interrupted simulation ends with its processes") {
  if (perf::find_program("valgrind").empty()) {
    MESSAGE("skipped, no valgrind");
    return;
  }
  const Folder folder;
  const std::string record = folder.file("study.json");
  Running running(folder,
                  "bench --device cpu --threads 1 --seconds 0.1 --counters simulated --problem "
                  "mb1ic3ih40oc8kh3 --json " +
                      record);
  std::string children;
  REQUIRE(comes([&] { return !(children = running.children()).empty(); }));
  running.send(SIGTERM);
  CHECK(running.wait() == 128 + SIGTERM);
  std::istringstream ids(children);
  for (pid_t id = 0; ids >> id;) CHECK(comes([&] { return ::kill(id, 0) != 0; }));
  CHECK(nlohmann::json::parse(read_text(record))["measurements"].size() == 1);
}
#endif
