// The gable command from outside: exit codes, messages, JSON that follows its schema, files that are whole or absent.
#include <doctest/doctest.h>
#include <gable/dtype.h>
#include <gable/version.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/command_run.h"

using namespace gable;
using namespace gable::bench;
using namespace gable::commands;

TEST_CASE("a network is a file in a folder of GABLE_NETWORKS: verified, and timed with its total") {
  const Folder folder;
  std::ofstream(folder.file("mine.txt")) << "mb2ic3ih8oc4kh3n\"mine:1*2\" mb2ic4ih6oc4kh1n\"mine:2*5\"\n";
  const std::string networks = "GABLE_NETWORKS='" + fs::path(folder.file("x")).parent_path().string() + "'";
  for (const char* layout : {"nchw", "nhwc"}) {
    const Result verified = run_command("verify --suite mine --device cpu --layout " + std::string(layout), networks);
    CHECK(verified.code == 0);
    CHECK(contains(verified.out, "6 passed, 0 mismatched"));
  }
  const Result timed = run_command("bench --suite mine --dtype f32 --device cpu --seconds 0.01 --json", networks);
  REQUIRE(timed.code == 0);
  const json study = json::parse(timed.out);
  check_study_of(study);
  REQUIRE(study["measurements"].size() == 2);
  CHECK(study["measurements"][1]["count"] == 5);
  REQUIRE(study["totals"].size() == 1);
  CHECK(study["totals"][0]["convolutions"] == 7);
  const double first = study["measurements"][0]["T"]["seconds"], second = study["measurements"][1]["T"]["seconds"];
  CHECK(study["totals"][0]["seconds"].get<double>() == doctest::Approx(2 * first + 5 * second));
  CHECK(contains(run_command("bench --suite mine --dtype f32 --device cpu --seconds 0.01", networks).out,
                 "All convolutions of each network"));
}

TEST_CASE("cliffs says how each property held, and exits with 1 where one is broken") {
  const Result result =
      run_command("cliffs --layers 3 --gflop 0.01 --max-batch 2 --seconds-each 0.001 --device cpu --threads 1 --json");
  REQUIRE(result.code <= 1);
  const json found = json::parse(result.out);
  CHECK(found["layers"] == 3);
  CHECK(found["device"] == "cpu?threads=1");
  CHECK(found["machine"].contains("cpu"));
  CHECK((result.code == 1) == !found["broken"].empty());
  CHECK(found["properties"].size() >= 3);
  CHECK(run_command("cliffs --device nonsense").code != 0);
}

TEST_CASE("a list's bad line is named, the others run, and the exit code is 2") {
  const Folder folder;
  std::ofstream(folder.file("bad.txt")) << "mb1ic3ih8oc4kh3n\"bad:1\"\nmb1ic3ih8ocfourkh3\n";
  const std::string networks = "GABLE_NETWORKS='" + fs::path(folder.file("x")).parent_path().string() + "'";
  const Result listed = run_command("list --suite bad --dtype f32", networks);
  CHECK(listed.code == 2);
  CHECK(contains(listed.out, "bad:1"));
  CHECK(contains(listed.out, "refused: bad, line 2: "));
  CHECK(contains(listed.out, "unknown entry 'ocfourkh'"));
}

TEST_CASE("a list of a suite that can't be read is named, the others run, and the exit code is 2") {
  const Folder folder;
  std::ofstream(folder.file("good.txt")) << "mb1ic3ih8oc4kh3n\"good:1\"\n";
  fs::create_directory(folder.file("folder.txt"));
  fs::create_symlink("nothing", folder.file("dangling.txt"));
  const std::string networks = "GABLE_NETWORKS='" + fs::path(folder.file("x")).parent_path().string() + "'";
  const Result listed = run_command("list --suite networks --dtype f32 --name good,vgg16", networks);
  CHECK(listed.code == 2);
  CHECK(contains(listed.out, "good:1"));
  CHECK(contains(listed.out, "vgg16:"));
  CHECK(contains(listed.out, "refused: folder, folder.txt: problem list '" + folder.file("folder.txt") + "'"));
  CHECK(contains(listed.out, "refused: dangling, dangling.txt: problem list '" + folder.file("dangling.txt") + "'"));
  CHECK(run_command("list --suite folder", networks).code == 2);
}

TEST_CASE("--threads has one range, whichever end is passed") {
  for (const char* threads : {"0", "1025", "-1"}) {
    const Result result = run_command(std::string("bench ") + kSmall + " --threads " + threads);
    CHECK(result.code == 2);
    CHECK(contains(result.err, "must be a whole number from 1 to 1024"));
  }
}

TEST_CASE("profile --deep without a GPU says that it does nothing") {
  const std::string small = "profile --runs 1 --device reference " + std::string(kSmall);
  CHECK(contains(run_command(small + " --deep").out, "--deep does nothing: none of these devices is a GPU"));
  CHECK_FALSE(contains(run_command(small).out, "--deep"));
}

TEST_CASE("help and version exit with 0, bad usage with 2 and a message") {
  CHECK(run_command("--help").code == 0);
  CHECK(run_command("--version").out == "gable " GABLE_VERSION_STRING "\n");
  for (const char* command :
       {"info", "list", "run", "run conv2d", "verify", "bench", "ceilings", "roofline", "plot", "diff"}) {
    CAPTURE(command);
    const Result help = run_command(std::string(command) + " --help");
    CHECK(help.code == 0);
    CHECK(contains(help.out, "Usage"));
  }
  for (const char* arguments : {"",
                                "nonsense",
                                "verify",
                                "verify --no-such-option",
                                "bench --suite study --problem ic3ih8oc4kh3",
                                "bench --suite nonsense",
                                "verify --suite study --bias",
                                "verify --problem ic3ih8oc4kh3 --dtype f64",
                                "verify --problem ic3ih8oc4kh3 --layout hwcn",
                                "bench --problem ic3ih8oc4kh3 --cache hot",
                                "bench --problem ic3ih8oc4kh3 --threads 0",
                                "verify --file no_such_list",
                                "verify --suite study --name nothing",
                                "bench --problem ic3ih8oc4kh3 --math fast",
                                "bench --problem ic3ih8oc4kh3 --math strict,strict",
                                "run conv2d --problem ic3ih8oc4kh3 --math strict,tf32 --output y.npy",
                                "verify --problem ic3ih8oc4kh3 --max-pool 0 --device reference",
                                "plot",
                                "plot --out x no_such.json",
                                "diff no_such.json no_such.json",
                                "verify --problem ic3ih8oc4kh3 --device reference,reference",
                                "verify --problem ic3ih8oc4kh3 --device 'reference?speed=9'"}) {
    CAPTURE(arguments);
    const Result result = run_command(arguments);
    CHECK(result.code == 2);
    CHECK(!result.err.empty());
    CHECK(result.out.empty());
  }
}

TEST_CASE("gable_overhead takes options for no file names") {
  const Folder folder;
  const auto code_of = [&](const std::string& option) {
    const std::string line = "cd '" + folder.file("") + "' && '" GABLE_OVERHEAD "' " + option + " >/dev/null 2>&1";
    return WEXITSTATUS(std::system(line.c_str()));
  };
  CHECK(code_of("--help") == 0);
  CHECK(code_of("--nonsense") == 2);
  CHECK(code_of("") == 2);
  CHECK(folder.names().empty());
}

TEST_CASE("a malformed problem is bad input; the message names its column") {
  const Result result = run_command("verify --problem ic3ih8oc4kx3 --device reference");
  CHECK(result.code == 2);
  CHECK(contains(result.err, "problem 'ic3ih8oc4kx3', column 10: unknown entry 'kx'"));
}

namespace {

/// Variables of commands that keep their calibration of the simulation for the next command here.
std::string kept_calibration() {
  static const Folder folder;
  return "GABLE_CACHE='" + folder.file("cache") + "'";
}

}  // namespace

TEST_CASE(
    "counters that do not work here exit with 3, a reason and a cure; auto continues and names the sources that it "
    "used") {
  const std::string bench = std::string("bench --device cpu --seconds 0.01 --json - ") + kSmall;
  const Result counter = run_command(bench + " --counters counter");
  if (counter.code != 0) {
    CHECK(counter.code == 3);
    CHECK(counter.out.empty());
    CHECK(contains(counter.err, "perf_event"));
    CHECK(contains(counter.err, "cure: "));
  }
  CHECK(run_command(bench + " --counters guess").code == 2);
  const Result automatic = run_command(bench + " --counters auto", kept_calibration());
  REQUIRE(automatic.code == 0);
  const json study = json::parse(automatic.out);
  check_study_of(study);
  CHECK(study["counters"]["mode"] == "auto");
  for (const json& source : study["counters"]["sources"])
    CHECK((source["available"] == true || !source["cure"].get<std::string>().empty()));
  CHECK_FALSE(json::parse(run_command(bench).out).contains("counters"));
}

TEST_CASE(
    "the simulated traffic of a layer is each tensor once, and the output once more, which is read before written") {
  const Result result = run_command(
      "bench --device cpu --problem mb16ic1ih48oc6oh44kh5 --layout nhwc --cache cold --seconds 0.01 --json - "
      "--counters simulated",
      kept_calibration());
  if (result.code == 3) {  // without valgrind, or under a sanitizer
    CHECK(contains(result.err, "cure: "));
    MESSAGE("skipped: a layer's simulated traffic: ", result.err);
    return;
  }
  REQUIRE(result.code == 0);
  const json row = json::parse(result.out)["measurements"][0];
  const json& dram = row["Q"]["dram"];
  CHECK(dram["source"] == "simulated");
  CHECK(dram["by"] == "callgrind");
  const double output = 16.0 * 6 * 44 * 44 * 4;
  CHECK(dram["bytes"].get<double>() == doctest::Approx(dram["analytic"].get<double>() + output).epsilon(0.03));
  // The kernel computes whole vectors of outputs; without a disassembler W is analytic.
  const double work = row["W"]["flop"].get<double>() / row["W"]["analytic"].get<double>();
  CHECK(work > 0.99);
  CHECK(work < 2);
  CHECK((row["W"]["source"] == "simulated" || contains(result.err, "Zydis") || row["W"].contains("reason")));
  CHECK(row["Q"]["l2"]["bytes"].get<double>() >= 0.97 * dram["bytes"].get<double>());
  const Result next = run_command(
      std::string("bench --device cpu --seconds 0.01 --counters simulated --json - ") + kSmall, kept_calibration());
  REQUIRE(next.code == 0);
  CHECK(contains(next.err, "calibration checks passed, as measured by an earlier command"));
  const json study = json::parse(next.out);
  check_study_of(study);
  for (const json& source : study["counters"]["sources"])
    for (const json& check : source["calibration"]) CHECK(check["kept"] == true);
}

TEST_CASE("a case that no device can run exits with 3, a lack of memory with 4") {
  CHECK(run_command("verify --problem ic3id8ih8oc4kd3kh3 --device reference").code == 3);
  CHECK(run_command("verify --problem ic3ih8oc4kh3 --device nonsense").code == 3);
  CHECK(run_command("verify --problem ic3ih8oc4kh3 --math split3 --device reference").code == 3);
  const Result huge = run_command("bench --problem mb1000000ic1000ih20oc1000kh1 --device reference");
  CHECK(huge.code == 4);
  CHECK(contains(huge.out, "GB of memory, but of the"));
}

TEST_CASE("verify passes the reference in every dtype, layout and epilogue") {
  const Result result = run_command(std::string("verify ") + kSmall +
                                    " --dtype f32,f16,bf16 --layout nhwc --bias --activation tanh --max-pool 2 "
                                    "--device reference,'reference?threads=1' --json -");
  CHECK(result.code == 0);
  const json document = json::parse(result.out);
  CHECK(document["passed"] == 6);
  CHECK(document["results"].size() == 6);
  CHECK(document["results"][0]["epilogue"]["max_pool"] == json::array({2, 2}));
  CHECK(document["results"][0]["worst_ratio"] <= 1);
}

TEST_CASE("verify finds a device that is wrong in one element and exits with 1") {
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    CAPTURE(dtype);
    const Result result =
        run_command(std::string("verify ") + kSmall + " --device reference,wrong --json - --dtype " + dtype);
    CHECK(result.code == 1);
    const json document = json::parse(result.out);
    CHECK(document["mismatched"] == 1);
    CHECK(document["results"][0]["passed"] == true);
    CHECK(document["results"][1]["mismatches"] == 1);
    CHECK(document["results"][1]["first_mismatch"] == 0);
    CHECK(contains(result.err, "MISMATCH in 1 elements, the first at 0"));
  }
}

TEST_CASE("a list shows the work of small layers, too") {
  const Result result = run_command("list --problem mb1ic1ih3oc1kh1 --problem mb8ic64ih56oc64kh3ph1");
  CHECK(contains(result.out, " 1.8e-08  "));  // 9 multiply-adds
  CHECK(contains(result.out, " 1.850 "));
}

TEST_CASE("lists of odd shapes run unchanged: nothing is wrong, nothing is dropped") {
  int passed = 0;
  std::size_t refused = 0;
  for (const char* name : {"tails", "geometry", "groups"}) {
    CAPTURE(name);
    const Result result = run_command(
        std::string("verify --device reference --json - --file '" GABLE_TEST_DATA "/odd_shapes_") + name + ".txt'");
    CHECK(result.code == 0);
    const json document = json::parse(result.out);
    CHECK(document["mismatched"] == 0);
    passed += document["passed"].get<int>();
    refused += document["refused"].size();
  }
  CHECK(passed >= 300);
  CHECK(refused == 7);
}

TEST_CASE("an empty list is named") {
  const Folder folder;
  std::ofstream(folder.file("empty")) << "# nothing\n";
  const Result result = run_command("list --file '" + folder.file("empty") + "'");
  CHECK(result.code == 2);
  CHECK(contains(result.err, "problem list '" + folder.file("empty") + "': nothing is selected"));
}

TEST_CASE("a list with a malformed line runs to its end and exits with 2") {
  const Folder folder;
  std::ofstream(folder.file("list")) << "mb1ic1ih3oc1kh1\nnonsense\nmb1ic2ih3oc1kh1\n";
  const Result result = run_command("verify --device reference --json - --file '" + folder.file("list") + "'");
  CHECK(result.code == 2);
  CHECK(json::parse(result.out)["passed"] == 2);
  CHECK(contains(result.err, "line 2"));
}

TEST_CASE("an entry that is too large for memory doesn't stop a list") {
  const Folder folder;
  std::ofstream(folder.file("list")) << "mb1000000ic1000ih20oc1000kh1\nmb1ic2ih3oc1kh1\n";
  const Result result = run_command("verify --device reference --json - --file '" + folder.file("list") + "'");
  CHECK(result.code == 0);
  CHECK(json::parse(result.out)["passed"] == 1);
  CHECK(json::parse(result.out)["refused"].size() == 1);
}

TEST_CASE("primitives are verified and measured like convolutions, and compared with the Trainium study") {
  const std::string some = " --suite primitives --name vector_add_25600_ --device cpu,reference";
  CHECK(run_command("verify" + some).code == 0);
  CHECK(run_command("verify --suite primitives --name transpose_1024 --device cpu").code == 0);
  const Result result = run_command(
      "bench --suite primitives --name vector_add_25600_128x2 --device cpu "
      "--ceilings --seconds 0.05 --json -");
  CHECK(result.code == 0);
  const json study = json::parse(result.out);
  check_study_of(study);
  REQUIRE(study["measurements"].size() == 4);  // 2, 20, 200 and 2000 long
  CHECK(study["measurements"][0]["op"] == "add");
  CHECK(study["measurements"][0]["tile"] == json::array({128, 2}));
  CHECK(study["measurements"][0]["W"]["flop"] == 25600);
  CHECK(study["measurements"][0]["percent_of_roof"].is_number());
  CHECK(contains(result.err, "Beside the Trainium study"));
  CHECK(contains(result.err, "186 µs"));
}

TEST_CASE("list has each case's shapes and work, with a GPU's batches where asked") {
  const Result result =
      run_command("list --suite resnet50 --name res3a_branch2b --dtype f16 --math strict --gpu --json");
  REQUIRE(result.code == 0);
  const json cases = json::parse(result.out)["cases"];
  REQUIRE(cases.size() == 1);
  const json& one = cases.front();
  CHECK(one["dtype"] == "f16");
  CHECK(one["conv2d"]["input"] == json({64, 128, 56, 56}));
  CHECK(one["conv2d"]["weights"] == json({128, 128, 3, 3}));
  CHECK(one["conv2d"]["output"] == json({64, 128, 28, 28}));
  CHECK(one["conv2d"]["stride"] == json({2, 2}));
  CHECK(one["conv2d"]["padding"] == json({1, 1, 0, 0}));
  CHECK(one["epilogue"]["activation"] == "relu");
  CHECK(one["flop"] == 2.0 * 64 * 128 * 28 * 28 * 128 * 9);
  CHECK(run_command("list --suite nonsense").code == 2);
}

TEST_CASE("info lists devices and counter sources, each with its reason") {
  CHECK(run_command("info").code == 0);
  const json document = json::parse(run_command("info --json").out);
  bool reference = false;
  for (const json& device : document["devices"]) {
    reference = reference || device["uri"] == "reference";
    CHECK(device["available"].get<bool>() == device["reason"].get<std::string>().empty());
  }
  CHECK(reference);
  CHECK(document["counters"].size() >= 3);
  for (const json& source : document["counters"]) {
    CAPTURE(source["name"]);
    if (!source["available"].get<bool>()) CHECK(!source["reason"].get<std::string>().empty());
  }
}

TEST_CASE("roofline writes its files, and plot draws them again, without a PNG where nothing draws one") {
  const Folder folder;
  const std::string out = folder.file("report");
  const Result result =
      run_command(std::string("roofline --quick ") + kSmall + " --device reference --out '" + out + "'");
  CHECK(result.code == 0);
  for (const char* name : {"study.json", "study.csv", "roofline.svg", "index.html"}) {
    CAPTURE(name);
    CHECK(fs::file_size(fs::path(out) / name) > 0);
  }
  CHECK(fs::exists(fs::path(out) / "roofline.png") != contains(result.out, "librsvg2-bin"));
  const json study = json::parse(read_text(out + "/study.json"));
  check_study_of(study);
  CHECK(study["ceilings"].size() > 5);
  CHECK(contains(study["machine"]["mode"].get<std::string>(), "quick"));
  // The reference computes in f64 and is judged by f64's roof.
  const json& row = study["measurements"][0];
  CHECK(row["bound"].is_string());
  CHECK(row["arithmetic"]["dtype"] == "f64");
  if (row["bound"] == "compute") CHECK(contains(row["roof"].get<std::string>(), "f64"));

  // A record from before rows had all limits is judged again by its own ceilings.
  json older = study;
  for (json& one : older["measurements"]) one.erase("limits");
  std::ofstream(folder.file("older.json")) << older;
  const Result ascii = run_command("plot --ascii '" + folder.file("older.json") + "'");
  CHECK(ascii.code == 0);
  CHECK(contains(ascii.out, row["roof"].get<std::string>() + ": "));

  const std::string again = folder.file("again");
  const std::string json_file = "'" + out + "/study.json'";
  const Result twice = run_command("plot " + json_file + " " + json_file + " --out '" + again + "'");
  CHECK(twice.code == 0);
  CHECK(contains(twice.out, "another file has the same record"));
  CHECK(fs::file_size(fs::path(again) / "index.html") > 0);

  const std::string bare = folder.file("bare");
  const Result without = run_command("plot " + json_file + " --out '" + bare + "'", "PATH=/nowhere");
  CHECK(without.code == 0);
  CHECK(contains(without.out, "install the package librsvg2-bin"));
  CHECK(fs::file_size(fs::path(bare) / "index.html") > 0);
  CHECK_FALSE(fs::exists(fs::path(bare) / "roofline.png"));

  std::ofstream(folder.file("bad.json")) << "{\"schema_version\": 1";
  const Result bad = run_command("plot '" + folder.file("bad.json") + "' --out '" + folder.file("none") + "'");
  CHECK(bad.code == 2);
  CHECK(contains(bad.err, "bad.json"));
  CHECK_FALSE(fs::exists(folder.file("none")));
  const Result mixed =
      run_command("plot '" + folder.file("bad.json") + "' " + json_file + " --out '" + folder.file("mixed") + "'");
  CHECK(mixed.code == 0);
  CHECK(contains(mixed.out, "left out: study '" + folder.file("bad.json") + "': is no JSON"));
  CHECK(fs::file_size(fs::path(folder.file("mixed")) / "index.html") > 0);
}

TEST_CASE("diff: exit 1 on a slower row, 2 where nothing pairs or the machines differ") {
  const Folder folder;
  const auto path = [&](const char* name) { return " '" + folder.file(name) + "'"; };
  REQUIRE(run_command("bench " + std::string(kSmall) + " --device reference --seconds 0.01 --json" + path("old.json"))
              .code == 0);
  json study = json::parse(read_text(folder.file("old.json")));
  const auto write = [&](const char* name) { std::ofstream(folder.file(name)) << study; };
  json& row = study["measurements"][0];
  row["T"].merge_patch({{"seconds", 1e-3}, {"q1", 0.999e-3}, {"q3", 1.001e-3}, {"runs", 30}});
  row["gflops"] = row["W"]["flop"].get<double>() / 1e-3 / 1e9;
  write("old.json");
  const Result same = run_command("diff" + path("old.json") + path("old.json"));
  CHECK(same.code == 0);
  CHECK(contains(same.out, "1 rows: 0 slower, 0 faster, 1 can't tell, 0 same"));
  CHECK(contains(same.out, "measure with gable bench --rounds 16 --seconds 1, or give several studies a side"));
  // A call must fit into a round's share of the seconds.
  json longer = study;
  longer["measurements"][0]["T"].merge_patch({{"seconds", 0.3}, {"q1", 0.299}, {"q3", 0.301}});
  longer["measurements"][0]["gflops"] = row["gflops"].get<double>() * 1e-3 / 0.3;
  std::ofstream(folder.file("longer.json")) << longer;
  CHECK(contains(run_command("diff" + path("longer.json") + path("longer.json")).out, "--rounds 16 --seconds 5, or"));
  row["op"] = "callable";
  write("own.json");
  const Result own = run_command("diff" + path("own.json") + path("own.json"));
  CHECK(contains(own.out, "; give several studies a side"));
  row["op"] = "conv2d";

  row["T"].merge_patch({{"seconds", 2e-3}, {"q1", 1.999e-3}, {"q3", 2.001e-3}});
  row["gflops"] = row["gflops"].get<double>() / 2;
  row["kernel"] = "another";
  write("new.json");
  const Result slower = run_command("diff" + path("old.json") + path("new.json") + " --json" + path("diff.json"));
  CHECK(slower.code == 1);
  CHECK(contains(slower.out, "-> another"));
  const json diff = json::parse(read_text(folder.file("diff.json")));
  CHECK(diff["summary"]["slower"] == 1);
  CHECK(diff["rows"][0]["verdict"] == "slower");
  CHECK(diff["rows"][0]["kernel_changed"] == true);

  row["name"] = "renamed";
  write("renamed.json");
  const Result unpaired = run_command("diff" + path("old.json") + path("renamed.json"));
  CHECK(unpaired.code == 2);
  CHECK(contains(unpaired.err, "no row of"));

  row["name"] = "small";
  study["machine"]["cpu"] = "another CPU";
  write("elsewhere.json");
  const Result elsewhere = run_command("diff" + path("old.json") + path("elsewhere.json"));
  CHECK(elsewhere.code == 2);
  CHECK(contains(elsewhere.err, "another CPU"));
  CHECK(run_command("diff --allow-other-machine" + path("old.json") + path("elsewhere.json")).code == 1);
}
