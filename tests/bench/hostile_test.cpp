// The command where the world is against it: full devices, names that are empty, files that lie about, limits of the
// system. It says what is wrong, exits with the code for it, and loses nothing that it measured.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <gable/device.h>
#include <gable/error.h>
#include <gable/oracle.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/cli/command.h"
#include "bench/common/files.h"
#include "bench/console/console.h"
#include "bench/measure/outcome.h"
#include "bench/measure/random_verify.h"
#include "bench/record/schema.h"
#include "bench/workloads/problem.h"
#include "tests/bench/hostile.h"
#include "tests/tools/out_of_memory.h"

using namespace gable;
using namespace gable::bench;
using namespace gable::hostile;

TEST_CASE("a list from a pipe, which can be read once, is run as one from a file") {
  const Folder folder;
  const std::string record = folder.file("study.json");
  for (const std::string& command : {std::string("bench --seconds 0.01"), std::string("verify"), std::string("list")}) {
    CAPTURE(command);
    const std::string device = command == "list" ? "" : " --device reference";
    const Result result = run_command(folder, command + device + " --file /dev/stdin --json " + record,
                                      "echo mb1ic3ih8oc4kh3 mb1ic3ih8oc5kh3 |");
    CAPTURE(result.err);
    CHECK(result.code == 0);
    CHECK(contains(read_text(record), "oc5"));
  }
}

TEST_CASE("a list may begin with a byte order mark, and its lines may end as on Windows") {
  const Folder folder;
  write_text(folder.file("list.txt"), "\xEF\xBB\xBFmb1ic3ih8oc4kh3\r\nmb1ic3ih8oc5kh3\r\n");
  const Result result = run_command(
      folder, "verify --device reference --file " + folder.file("list.txt") + " --json " + folder.file("verify.json"));
  CHECK(result.code == 0);
  CHECK(nlohmann::json::parse(read_text(folder.file("verify.json")))["results"].size() == 2);
}

TEST_CASE("an option's empty value is bad usage that names the option") {
  const Folder folder;
  const std::string run = "run conv2d --problem mb1ic3ih8oc4kh3 --output " + folder.file("y.npy");
  for (const char* option : {"--x", "--weights", "--bias"}) {
    for (const std::string& arguments : {run + " " + option + " ''", run + " " + option + "="}) {
      CAPTURE(arguments);
      const Result result = run_command(folder, arguments);
      CHECK(result.code == 2);
      CHECK(contains(result.err, option));
      CHECK(contains(result.err, "the value is empty"));
    }
  }
  CHECK(run_command(folder, std::string("verify ") + kSmall + " --json ''").code == 2);
  CHECK(run_command(folder, "roofline --quick --out ''").code == 2);
  CHECK_FALSE(fs::exists(folder.file("y.npy")));
}

TEST_CASE("a number that is none is no time") {
  const Folder folder;
  for (const char* seconds : {"nan", "inf", "-1", "0", "1x"}) {
    CAPTURE(seconds);
    CHECK(run_command(folder, std::string("bench --seconds ") + seconds + " " + kSmall).code == 2);
  }
}

TEST_CASE("GABLE_DEVICE and --threads that contradict each other are an error") {
  const Folder folder;
  const std::string verify = "verify --problem mb1ic3ih8oc4kh3 --device auto --threads ";
  CHECK(run_command(folder, verify + "2", "GABLE_DEVICE='reference?threads=2'").code == 0);
  const Result result = run_command(folder, verify + "1", "GABLE_DEVICE='reference?threads=2'");
  CHECK(result.code == 2);
  CHECK(contains(result.err, "threads=2"));
  CHECK(contains(result.err, "auto?threads=1"));
}

TEST_CASE("more threads than can be made are an error before OpenMP ends the process") {
  const Folder folder;
  const Result many = run_command(folder, std::string("verify ") + kSmall, "OMP_NUM_THREADS=100000");
  CHECK_FALSE(contains(many.err, "device '"));  // it is nobody's option
  CHECK(many.code == 2);
  CHECK(contains(many.err, "100000"));
  const std::string small = "verify --problem mb1ic3ih8oc4kh3 --device 'cpu";
  CHECK(run_command(folder, small + "'", "OMP_THREAD_LIMIT=1").code == 0);
  const Result ignored = run_command(folder, small + "?threads=2'", "OMP_THREAD_LIMIT=1");
  CHECK(ignored.code == 3);
  CHECK(contains(ignored.err, "OpenMP runs at most 1 of 2 threads (OMP_THREAD_LIMIT)"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const Result limited = run_command(folder, "verify --problem mb1ic3ih8oc4kh3 --device 'cpu?threads=1000'",
                                     "ulimit -s 8192; ulimit -v 2000000;");
  CHECK(limited.code == 3);
  CHECK(contains(limited.err, "of 1000 threads only"));
  const Result large = run_command(folder, small + "?threads=2'", "OMP_STACKSIZE=100000G");
  CHECK(large.code == 3);
  CHECK(contains(large.err, "of 2 threads only 1 can be made with stacks of 104857600000 KiB (OMP_STACKSIZE)"));
#endif
  const Result narrow = run_command(folder, small + "?threads=2'", "OMP_STACKSIZE=' 32 k'");
  CHECK(narrow.code == 2);
  CHECK(contains(narrow.err, "OMP_STACKSIZE gives threads stacks of 32 KiB; they need at least 64 KiB"));
  for (const char* usual : {"OMP_STACKSIZE=2m", "OMP_STACKSIZE=nonsense", "OMP_STACKSIZE=1b", "GOMP_STACKSIZE=512"})
    CHECK(run_command(folder, small + "?threads=2'", usual).code == 0);
}

TEST_CASE("what the oracle takes is known before it is taken: also what each thread gathers") {
  const Conv2d conv = parse_problem("mb1ic134217732oc1iw27kw3").conv;
  CHECK(oracle_bytes(conv) > 8.0 * 8 * 134217732 * 3);
  const Folder folder;
  const Result result = run_command(
      folder, "verify --problem mb64ic134217732oc1iw27kw3 --device cpu --json " + folder.file("verify.json"));
  CHECK(result.code == 4);
  const std::string reason =
      nlohmann::json::parse(read_text(folder.file("verify.json")))["refused"][0]["reason"].get<std::string>();
  CHECK(contains(reason, "GB of memory"));
  CHECK(contains(reason, "GB available"));
}

TEST_CASE("tune refuses an op for which its time is too short, with the times, and tunes the others") {
  const Folder folder;
  write_text(folder.file("list.txt"), "mb1ic8ih8oc8kh1n\"small\"\nmb2ic1024ih500oc1kh1n\"billion\"\n");
  const double start = seconds_of_children();
  const std::string record = folder.file("tuned.json");
  const Result result = run_command(folder,
                                    "tune --device 'auto?only=cpu' --seconds 1 --file " + folder.file("list.txt") +
                                        " --json " + record + " >" + folder.file("stdout"),
                                    "GABLE_CACHE=off");
  CHECK(seconds_of_children() - start < 10);
  CHECK(result.code == 0);
  CHECK(nlohmann::json::parse(read_text(record))["tuned"].size() == 1);
  CHECK(contains(read_text(folder.file("stdout")) + result.err, "s of making tensors"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("gable info ends well where memory is short") {
  const Folder folder;
  CHECK(run_command(folder, "info", "ulimit -v 100000;").code == 0);
}
#endif

TEST_CASE("the comparison of random problems sees a wrong number and a NaN, and excuses only what the docs do") {
  const Conv2d conv{.input = {1, 2, 1, 3}, .weights = {2, 2, 1, 1}};
  const Plan plan = open("reference?threads=1").plan(conv);
  const OracleResult expected{.exact = {1, 2, 3, INFINITY, NAN, 1e38}, .magnitude = {1, 2, 3, INFINITY, NAN, 1e39}};
  const Tensor y(DType::f32, output_shape(conv));
  const auto mismatches = [&](std::vector<float> numbers) {
    std::copy(numbers.begin(), numbers.end(), y.as<float>());
    return compare_special(y, expected, plan, Values::infinite).mismatches;
  };
  CHECK(mismatches({1, 2, 3, INFINITY, NAN, 1e38F}) == 0);
  CHECK(mismatches({1, 2, 3, INFINITY, NAN, INFINITY}) == 0);  // partial sums may overflow
  CHECK(mismatches({1, 2.01F, 3, INFINITY, NAN, 1e38F}) == 1);
  CHECK(mismatches({NAN, 2, 3, INFINITY, NAN, 1e38F}) == 1);
  CHECK(mismatches({1, 2, 3, -INFINITY, 5, 1e38F}) == 2);
}

TEST_CASE("inputs beyond the greatest number of tf32 or bf16 count as infinite where they are multiplied as such") {
  const auto rounds = [](const Arithmetic& arithmetic, float x) {
    return std::abs(x) >= least_rounded_to_infinity(arithmetic);
  };
  CHECK(std::isinf(float_from_bf16(bf16_from_float(0x1.FFp127F))));
  CHECK(rounds({"bf16", 3}, 0x1.FFp127F));
  CHECK_FALSE(rounds({"bf16", 6}, std::nextafter(0x1.FFp127F, 0.0F)));
  CHECK(rounds({"tf32", 1}, -0x1.FFEp127F));
  CHECK_FALSE(rounds({"tf32", 1}, std::nextafter(0x1.FFEp127F, 0.0F)));
  for (const char* dtype : {"f32", "f64", "bf16"}) CHECK_FALSE(rounds({dtype, 1}, 0x1.FFFFFEp127F));
}

TEST_CASE("kernels with a table of the filter's taps take no filter of millions, and say so without making the table") {
  Conv2d conv{.input = {1, 2, 4, 1 << 22}, .weights = {2, 2, 4, 1 << 21}};
  conv.layout = Layout::nchw;
  for (const KernelSupport& answer : open("cpu?threads=1").query(conv)) {
    CAPTURE(answer.reason);
    if (answer.kernel == "planes") CHECK(contains(answer.reason, "8388608 filter taps; its table holds 1048576"));
    if (answer.kernel == "direct") CHECK(answer.supported);
  }
}

TEST_CASE("gable info names what it was built with and what it has loaded") {
  const Folder folder;
  const std::string record = folder.file("info.json");
  CHECK(run_command(folder, "info --json " + record).code == 0);
  const nlohmann::json info = nlohmann::json::parse(read_text(record));
  std::vector<std::string> names;
  for (const nlohmann::json& one : info["dependencies"]) {
    names.push_back(one["name"]);
    CHECK(one["version"].get<std::string>().find_first_of("123456789") != std::string::npos);
    CHECK_FALSE(one["license"].get<std::string>().empty());
  }
  for (const char* name : {"highway", "fmt", "nlohmann-json", "CLI11", "glibc"})
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  CHECK(contains(info["loaded_libraries"].dump(), "libgable.so"));
}

TEST_CASE("random problems with odd values are within the bound, and a seed gives one again") {
  const Folder folder;
  const std::string record = folder.file("random.json");
  CHECK(run_command(folder, "verify --random 300 --seed 7 --json " + record).code == 0);
  const nlohmann::json all = nlohmann::json::parse(read_text(record));
  CHECK(all["problems"] == 300);
  CHECK(all["checked"].get<int>() + all["refused"].get<int>() == 300);
  CHECK(all["kernels"].size() > 10);
  CHECK(all["values"].size() == 7);
  CHECK(run_command(folder, "verify --random 3 --suite study").code == 2);
}

TEST_CASE("random problems run on a device that has no option kernel") {
  const Folder folder;
  const std::string record = folder.file("random.json");
  const Result result = run_command(folder, "verify --random 20 --device cudnn:0 --json " + record);
  if (result.code == 3) {
    MESSAGE("skipped: no cuDNN");
    return;
  }
  CHECK((result.code == 0 || result.code == 1));  // 1 where cuDNN's own result of odd values is beyond the bound
  CHECK(nlohmann::json::parse(read_text(record))["kernels"].contains("cudnn:0"));
}

TEST_CASE("without a folder for temporary files, rows that need one are refused and the others run") {
  const Folder folder;
  const Result result = run_command(folder,
                                    "bench --suite primitives --name file_read_1MiB,transpose_1024 --device cpu "
                                    "--seconds 0.01 --dtype f32 --json " +
                                        folder.file("study.json"),
                                    "TMPDIR=/not/there");
  CHECK(result.code == 0);
  const nlohmann::json study = nlohmann::json::parse(read_text(folder.file("study.json")));
  REQUIRE(study["refused"].size() == 1);
  CHECK(contains(study["refused"][0]["reason"].get<std::string>(), "TMPDIR"));
}

TEST_CASE("control characters of what was read do not reach the terminal") {
  CHECK(printable_lines("a\x1b[31m\nb\r") == "a\xEF\xBF\xBD[31m\nb\xEF\xBF\xBD");
  const Folder folder;
  write_text(folder.file("study.json"), "{\"\\u001b]0;title\": 1}");
  const Result result = run_command(folder, "plot --out " + folder.file("report") + " " + folder.file("study.json"));
  CHECK(result.code == 2);
  CHECK_FALSE(contains(result.err, "\x1b"));
}

TEST_CASE(
    "control characters of a name do not reach the terminal with the progress, and long names are cut in tables") {
  const Folder folder;
  const std::string name = "n\"\x1b]0;title\x07" + std::string(5000, 'x') + "\"";
  const Result result = run_command(folder, "bench --device reference --seconds 0.01 --problem 'mb1ic3ih8oc4kh3" +
                                                name + "' >" + folder.file("stdout"));
  CHECK(result.code == 0);
  CHECK(contains(result.err, "[0/1]"));
  for (const std::string& text : {result.err, read_text(folder.file("stdout"))}) {
    CHECK_FALSE(contains(text, "\x1b"));
    CHECK_FALSE(contains(text, std::string(100, 'x')));
  }
}

TEST_CASE("a file without an end is refused, not read until memory runs out") {
  const Folder folder;
  for (const std::string& arguments :
       {std::string("plot /dev/zero --ascii"), std::string("bench --device reference --file /dev/zero")}) {
    CAPTURE(arguments);
    const Result result = run_command(folder, arguments);
    CHECK(result.code == 2);
    CHECK(contains(result.err, "256 MiB"));
  }
}

TEST_CASE("a word that is no command is named, with the commands that there are") {
  const Folder folder;
  const Result result = run_command(folder, "frobnicate --json x");
  CHECK(result.code == 2);
  CHECK(contains(result.err, "unknown command 'frobnicate'; known are info, list, run, verify, bench"));
  CHECK_FALSE(contains(result.err, "counted"));
  CHECK(run_command(folder, "--frobnicate").code == 2);
}

TEST_CASE("a word that a command does not take is named, and where its help is") {
  const Folder folder;
  const Result result = run_command(folder, "ceilings --csv out.csv");
  CHECK(result.code == 2);
  CHECK(
      contains(result.err, "gable: gable ceilings does not take '--csv'; 'gable ceilings --help' lists what it takes"));
  CHECK(contains(result.err, "gable plot STUDY.json --out DIR"));
  CHECK(contains(run_command(folder, "diff a.json b.json c.json --same 0.1").err, "'c.json'"));
  CHECK(contains(run_command(folder, "list --suite study --frob=3").err, "'--frob=3'"));
  const std::string nested = "run conv2d --problem mb1ic3ih8oc4oh8kh3ph1";
  CHECK(contains(run_command(folder, nested + " --output y.npy --frob").err,
                 "gable run conv2d does not take '--frob'; 'gable run conv2d --help' lists what it takes"));
  CHECK(contains(run_command(folder, nested).err,
                 "gable: --output is required; 'gable run conv2d --help' lists what it takes"));
  CHECK(contains(run_command(folder, "run conv2d --probem mb1ic3ih8oc4kh3").err, "conv2d does not take '--probem'"));
  CHECK(contains(run_command(folder, "run conv3d").err, "gable run does not take 'conv3d'"));
}

TEST_CASE("two outputs of a command need two files") {
  const Folder folder;
  const std::string small = "--problem mb1ic3ih8oc4kh3 --device cpu ";
  for (const std::string& files : {"profile --runs 1 --csv a.txt --trace ./a.txt " + small,
                                   "bench --seconds 0.001 --csv a.txt --json a.txt " + small}) {
    const Result result = run_command(folder, files);
    CHECK(result.code == 2);
    CHECK(contains(result.err, "a.txt': is named twice"));
    CHECK_FALSE(std::filesystem::exists(folder.file("a.txt")));
  }
}

TEST_CASE("a refusal of many kernels is one line") {
  Outcome outcome;
  outcome.refuse(
      {}, "auto",
      Error(ErrorCode::unsupported, "device 'auto' can't run it:\n  a: why\n  b: why\npassed over c: none\n"));
  CHECK(outcome.refused.at(0).reason == "a: why; b: why; passed over c: none");
}

TEST_CASE("whole numbers out of range and values of commas alone are bad usage that names the option") {
  const Folder folder;
  for (const char* option :
       {"--seed 18446744073709551616", "--seed -1", "--max-batch 99999999999999999999", "--max-batch 1.5",
        "--threads 1.5", "--threads 0x2", "--random 1e9", "--device ,,,", "--dtype ,"}) {
    CAPTURE(option);
    const Result result = run_command(folder, std::string("verify ") + kSmall + " " + option);
    CHECK(result.code == 2);
    CHECK(contains(result.err, std::string(option).substr(0, std::string(option).find(' '))));
  }
}

TEST_CASE(
    "limits that no random layer keeps, shares that are no number, and options that would do nothing are bad usage") {
  const Folder folder;
  write_text(folder.file("study.json"), "{}");
  const std::string same = folder.file("study.json") + " " + folder.file("study.json");
  for (const char* arguments :
       {"cliffs --device cpu --layers 1 --megabytes 1e-300", "cliffs --device cpu --layers 1 --gflop 1e-9",
        "verify --random 2 --dtype f16", "verify --random 2 --layout nhwc", "verify --random 2 --bias",
        "verify --random 2 --device auto"}) {
    CAPTURE(arguments);
    const Result result = run_command(folder, arguments);
    CHECK(result.code == 2);
    CHECK_FALSE(result.err.empty());
  }
  CHECK(run_command(folder, std::string("regret --problem mb1ic3ih8oc4kh3 --most 99999999999999999999")).code == 2);
  for (const char* option : {"--noise", "--drift", "--same"}) {
    const Result result = run_command(folder, "diff " + same + " " + option + " nan");
    CHECK(result.code == 2);
    CHECK(contains(result.err, "from 0 to 1"));
  }
}

TEST_CASE("lists with a million continued or bad words are read in seconds") {
  const std::clock_t start = std::clock();  // of this process: others may be busy
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "xxxx\\\n";
  std::istringstream continued(text + "y");
  const std::vector<ListEntry> entries = parse_list(continued);
  REQUIRE(entries.size() == 1);
  CHECK(entries[0].text.size() == 4 * 200000 + 1);
  CHECK(std::clock() - start < 2 * CLOCKS_PER_SEC);
}

namespace {

/// How a command ends of whose allocations the n-th fails, and all that follow or that one alone.
struct Ending {
  int code = 0;         ///< of the process; minus the signal that ended it
  bool failed = false;  ///< it came to that allocation
};

/// In a child: memory may run out in a destructor, which ends the process.
Ending end_of_command(const std::vector<std::string>& words, long nth, conformance::Failing failing) {
  std::vector<const char*> argv{"gable"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  constexpr int kWithoutFailure = 64;
  const pid_t child = ::fork();
  if (child == 0) {
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, 1);
    ::dup2(null, 2);
    exit_where_memory_runs_out();
    conformance::fail_allocation(nth, failing);
    const int code = command(static_cast<int>(argv.size()), argv.data());
    ::_exit(conformance::allocation_failed() ? code : code + kWithoutFailure);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return {-WTERMSIG(status), true};
  const int code = WEXITSTATUS(status);
  return code < kWithoutFailure ? Ending{code, true} : Ending{code - kWithoutFailure, false};
}

}  // namespace

TEST_CASE("commands that run out of memory at any allocation say so with exit code 4, and leave their files whole") {
  if (!conformance::can_count_allocations()) return;
  devices();  // loads the plugins: the CUDA runtime's own initialisation does not check its allocations
  const Folder folder;
  const std::string study = folder.file("study.json");
  const std::vector<std::string> bench{"bench",     "--problem", "mb1ic3ih8oc4kh3", "--device", "cpu", "--threads", "1",
                                       "--seconds", "1e-4",      "--json",          study};
  const std::vector<std::string> plot{"plot", study, "--out", folder.file("report"), "--ascii"};
  const std::vector<std::string> verify{"verify", "--problem", "mb1ic3ih8oc4kh3", "--device", "reference"};
  for (const std::vector<std::string>& words : {bench, plot, verify}) {
    CAPTURE(words.front());
    int out_of_memory = 0;
    for (const conformance::Failing failing : {conformance::Failing::one, conformance::Failing::from_there_on}) {
      Ending ending{.failed = true};
      for (long nth = 0; ending.failed; nth += 1 + nth / 16) {
        ending = end_of_command(words, nth, failing);
        CAPTURE(nth);
        CAPTURE(ending.code);
        CHECK((ending.code == kDone || (ending.code == kFailure && ending.failed)));
        out_of_memory += ending.code == kFailure ? 1 : 0;
      }
      CHECK(temporary_files(folder) == 0);
      CHECK(check_study(nlohmann::json::parse(read_text(study))).empty());
    }
    CHECK(out_of_memory > 50);
  }
}
