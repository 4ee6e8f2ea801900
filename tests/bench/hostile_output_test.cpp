// Outputs where the world is against them: full devices, readers that have ended, links, limits of the system. What
// can't be written is said, and earlier files and the record are not lost.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "bench/cli/command.h"
#include "bench/common/files.h"
#include "bench/record/schema.h"
#include "tests/bench/hostile.h"
#include "tests/tools/allocation_counter.h"

using namespace gable;
using namespace gable::bench;
using namespace gable::hostile;

TEST_CASE("no name of an output file is called wrong where memory runs out") {
  if (!conformance::can_count_allocations()) return;
  const Folder folder;
  const std::string path = folder.file("study.json");
  long nth = 0;
  for (bool failed = true; failed; ++nth) {
    conformance::fail_allocation(nth);
    ErrorCode code = ErrorCode::out_of_memory;
    try {
      check_writable(path);
    } catch (const Error& error) {
      code = error.code();
    } catch (const std::bad_alloc&) {
    }
    failed = conformance::allocation_failed();
    CAPTURE(nth);
    CHECK(code != ErrorCode::invalid_argument);
  }
  CHECK(nth > 5);
}

TEST_CASE("what can't be written to standard output is said, with exit code 4, and the record is not lost with it") {
  const Folder folder;
  const std::string small = kSmall;
  for (const std::string& arguments : {"verify " + small, "verify " + small + " --json -", std::string("--version"),
                                       std::string("info"), std::string("verify --help")}) {
    CAPTURE(arguments);
    const Result result = run_command(folder, arguments + " >/dev/full");
    CHECK(result.code == 4);
    CHECK(contains(result.err, "standard output"));
  }
  const std::string record = folder.file("verify.json");
  CHECK(run_command(folder, "verify " + small + " --json " + record + " >/dev/full").code == 4);
  CHECK(nlohmann::json::parse(read_text(record)).contains("results"));
}

TEST_CASE("a reader of the text that has ended, such as head, ends no command: its record is written") {
  const Folder folder;
  const std::string record = folder.file("study.json"), code = folder.file("code"), small = kSmall;
  for (const std::string& arguments : {"verify " + small, "bench --seconds 0.01 " + small, std::string("info"),
                                       std::string("list --problem mb1ic3ih8oc4kh3"),
                                       std::string("profile --runs 2 --device cpu --problem mb1ic3ih8oc4kh3")}) {
    CAPTURE(arguments);
    fs::remove(record);
    const std::string line = "(sleep 0.1; '" GABLE_COMMAND "' " + arguments + " --json " + record + " 2>'" +
                             folder.file("stderr") + "'; echo $? >'" + code + "') | true";
    REQUIRE(std::system(line.c_str()) == 0);
    CHECK(read_text(code) == "141\n");
    CHECK_FALSE(contains(read_text(folder.file("stderr")), "gable: "));
    REQUIRE(fs::exists(record));
    CHECK(nlohmann::json::parse(read_text(record)).is_object());
  }
  const std::string progress = "(sleep 0.1; '" GABLE_COMMAND "' bench --seconds 0.01 " + small + " --json " + record +
                               " 2>&1 >/dev/null; echo $? >'" + code + "') | true";
  fs::remove(record);
  REQUIRE(std::system(progress.c_str()) == 0);
  CHECK(read_text(code) == "0\n");
  CHECK(fs::exists(record));
  const std::string measure = "measure --counters analytic -- sh -c 'kill -PIPE $$'";  // it has the default again
  CHECK(run_command(folder, measure).code == 128 + SIGPIPE);
}

TEST_CASE("where a table or a trace can't be written, the record is") {
  const Folder folder;
  std::string list;
  for (int rows = 1; rows <= 100; ++rows) list += "mb1ic1ih" + std::to_string(rows) + "oc1kh1\n";
  write_text(folder.file("list"), list);
  for (const std::string command : {"bench --seconds 0.001 --rounds 1 --csv ", "profile --runs 9 --trace "}) {
    CAPTURE(command);
    const std::string other = folder.file("other"), record = folder.file("record");
    const Result late = run_command(
        folder, command + other + " --device cpu --file " + folder.file("list") + " --json - | tail -c 2000 >" + record,
        "ulimit -f 34;");  // 17 or 34 KiB
    CHECK(contains(late.err, "other': File too large"));
    CHECK_FALSE(fs::exists(other));
    CHECK(read_text(record).size() == 2000);
  }
}

TEST_CASE("a limit of file sizes is an error of what is written, and leaves an earlier file whole") {
  const Folder folder;
  const std::string record = folder.file("study.json"), small = kSmall, limit = "ulimit -f 1;";  // 512 or 1024 bytes
  const std::string bench = "bench --seconds 0.01 " + small + " --json " + record;
  REQUIRE(run_command(folder, bench).code == 0);
  const std::string before = read_text(record);
  const Result limited = run_command(folder, bench, limit);
  CHECK(limited.code == 4);
  CHECK(contains(limited.err, "File too large"));
  CHECK(read_text(record) == before);
  CHECK(temporary_files(folder) == 0);
  // Known before minutes of measuring.
  for (const std::string& long_one :
       {"bench --suite study --seconds 1e5 --json " + record, "roofline --out " + folder.file("report")}) {
    const Result early = run_command(folder, long_one, limit);
    CHECK(early.code == 4);
    CHECK(contains(early.err, "File too large"));
  }
  // Rows that no longer fit are said when they are measured: of a record that is larger than the limit, one row lacks.
  std::string list;
  for (int rows = 1; rows <= 40; ++rows) list += "mb1ic1ih" + std::to_string(rows) + "oc1kh1\n";
  write_text(folder.file("list"), list);
  const std::string rows =
      "bench --device cpu --seconds 0.01 --rounds 1 --file " + folder.file("list") + " --json " + record;
  REQUIRE(run_command(folder, rows).code == 0);
  nlohmann::json document = nlohmann::json::parse(read_text(record));
  document["measurements"].erase(document["measurements"].size() - 1);
  write_text(record, document.dump());
  const Result late = run_command(folder, rows + " --resume >" + folder.file("table"), "ulimit -f 34;");
  CHECK(late.code == 4);
  CHECK(contains(read_text(folder.file("table")), "the rows so far are not kept"));
  CHECK(nlohmann::json::parse(read_text(record)) == document);
  const Result printed = run_command(folder, "cliffs --help >" + folder.file("stdout"), limit);
  CHECK(printed.code == 4);
  CHECK(contains(printed.err, "standard output"));
  const std::string program = " -- sh -c 'head -c 4096 /dev/zero >" + folder.file("large") + "'";
  CHECK(run_command(folder, "measure --counters analytic" + program, limit).code == 128 + SIGXFSZ);
}

TEST_CASE("an output keeps its mode and its links, whatever its name's length") {
  const Folder folder;
  const std::string path = folder.file(std::string(255, 'x'));
  write_file(path, {"one"});
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  write_file(path, {"two"});
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0640);
  fs::create_hard_link(path, folder.file("hard"));
  fs::create_symlink(path, folder.file("soft"));
  write_file(folder.file("soft"), {"three"});
  CHECK(read_text(folder.file("hard")) == "three");
  CHECK(fs::is_symlink(folder.file("soft")));
  CHECK(fs::hard_link_count(path) == 2);
  fs::create_directories(folder.file("below"));
  fs::create_symlink("second", folder.file("first"));
  fs::create_symlink("below/new", folder.file("second"));
  write_file(folder.file("first"), {"four"});
  CHECK(fs::is_symlink(folder.file("first")));
  CHECK(fs::is_symlink(folder.file("second")));
  CHECK(read_text(folder.file("below/new")) == "four");
  fs::create_symlink("loop", folder.file("loop"));
  CHECK_THROWS_AS(write_file(folder.file("loop"), {""}), Error);
  CHECK_THROWS_AS(write_file(folder.file(std::string(256, 'x')), {""}), Error);
}

TEST_CASE("an output that is no file is called what it is, before anything is printed") {
  const Folder folder;
  const auto refusal = [](const std::string& path) -> std::string {
    try {
      check_writable(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(contains(refusal("-"), "output file '-': standard output takes the record alone"));
  CHECK(contains(refusal("/dev/full"), "output file '/dev/full': is a device, or a terminal; name a file"));
  CHECK(contains(refusal(folder.file("")), "is a folder; name a file"));
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const std::string path = "/dev/fd/" + std::to_string(ends[1]);
  CHECK(contains(refusal(path), "'" + path + "': is a pipe; name a file"));
  ::close(ends[0]);
  ::close(ends[1]);
  for (const char* command : {"info", "list --suite study"}) {
    CAPTURE(command);
    const Result result = run_command(folder, std::string(command) + " --json /dev/full >" + folder.file("out"));
    CHECK(result.code == 2);
    CHECK(contains(result.err, "name a file (--json - writes to standard output)"));
    CHECK(read_text(folder.file("out")).empty());
  }
}

TEST_CASE("an output with several hard links stays as it was where there is no space for the new one") {
  const Folder folder;
  const std::string path = folder.file("file"), before = "before", after(100000, 'x');
  write_file(path, {before});
  fs::create_hard_link(path, folder.file("hard"));
  TemporaryFile file(path);
  file.write({after});
  struct rlimit whole {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &whole) == 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 4096, whole.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::error_code error;
  try {
    file.rename_to(path);
  } catch (const fs::filesystem_error& failure) {
    error = failure.code();
  }
  std::string named;
  try {
    write_whole(folder.file("missing"), {after});
  } catch (const fs::filesystem_error& failure) {
    named = failure.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &whole);
  ::signal(SIGXFSZ, handler);
  CHECK(error == std::errc::file_too_large);
  CHECK(contains(named, folder.file("missing")));  // not the temporary file
  CHECK_FALSE(contains(named, ".tmp"));
  CHECK(read_text(path) == before);
  for (const std::string& text : {after, before}) {  // grows, shrinks
    write_file(path, {text});
    CHECK(read_text(folder.file("hard")) == text);
  }
}

TEST_CASE("without descriptors or memory for an output, the system failed, not the user") {
  const auto code = [](int error) { return code_of({error, std::generic_category()}); };
  for (const int error : {EMFILE, ENFILE, ENOMEM, ENOSPC, EDQUOT, EIO, EFBIG})
    CHECK(code(error) == ErrorCode::device_failure);
  for (const int error : {EACCES, ENOENT, EROFS, ENAMETOOLONG}) CHECK(code(error) == ErrorCode::invalid_argument);
}

TEST_CASE("temporary files of processes that were killed are removed, those in use are not") {
  const Folder folder;
  const std::string dead = folder.file(".gable.abcdef.tmp");
  write_text(dead, "half a fi");
  const TemporaryFile used(folder.file("other"));
  write_file(folder.file("file"), {"whole"});
  CHECK_FALSE(fs::exists(dead));
  CHECK(fs::exists(used.path()));
}

TEST_CASE("a signal that ends the process while it writes or checks an output leaves no temporary file") {
  const Folder folder;
  const std::string path = folder.file("file");
  for (int turn = 0; turn < 20; ++turn) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::signal(SIGTERM, SIG_DFL);  // not doctest's
      write_file(path, {"begun"});
      for (;;) turn % 2 == 0 ? check_writable(path) : write_whole(path, {"whole"});
    }
    REQUIRE(comes([&] { return fs::exists(path); }));
    std::this_thread::sleep_for(std::chrono::microseconds(700 * turn));
    kill(child, SIGTERM);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(temporary_files(folder) == 0);
    fs::remove(path);
  }
}

TEST_CASE("where nothing can be written is bad input for every command") {
  const Folder folder;
  const std::string small = kSmall;
  for (const std::string& arguments : std::vector<std::string>{
           "verify " + small + " --json /proc/file", "run conv2d --problem mb1ic3ih8oc4kh3 --output /proc/file",
           "roofline --quick --out /proc", "roofline --quick --out /proc/folder"}) {
    CAPTURE(arguments);
    CHECK(run_command(folder, arguments).code == 2);
  }
}

TEST_CASE("closed standard streams: the record is whole, and that the table is lost is said with exit code 4") {
  const Folder folder;
  const std::string record = folder.file("verify.json");
  CHECK(run_command(folder, std::string("verify ") + kSmall + " --json " + record + " <&- >&- 2>&-").code == 4);
  CHECK(nlohmann::json::parse(read_text(record)).contains("results"));
}
