// `gable bench` from outside: which rows a record has, and what they say.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/command_run.h"

using namespace gable;
using namespace gable::bench;
using namespace gable::commands;

TEST_CASE("bench writes a record that follows its schema, to standard output alone") {
  const Result result = run_command(std::string("bench ") + kSmall +
                                    " --device reference,'reference?threads=1' --cache both --seconds 0.05 --json -");
  CHECK(result.code == 0);
  const json study = json::parse(result.out);
  check_study_of(study);
  REQUIRE(study["measurements"].size() == 4);
  CHECK(study["measurements"][0]["name"] == "small");
  CHECK(study["measurements"][0]["W"]["flop"] == 2.0 * 4 * 6 * 6 * 3 * 9);
  CHECK(study["measurements"][1]["threads"] == 1);
  CHECK(study["measurements"][1]["percent_of_roof"].is_null());  // no ceilings were measured
  CHECK(study["measurements"][3]["cache"] == "cold");
  CHECK(contains(result.err, "against"));
}

TEST_CASE("bench --csv writes a line for each row, also beside a record") {
  const Folder folder;
  const std::string small = std::string("bench ") + kSmall + " --device reference --cache both --seconds 0.01 ";
  CHECK(run_command(small + "--json - --csv '" + folder.file("rows.csv") + "'").code == 0);
  std::ifstream file(folder.file("rows.csv"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  REQUIRE(lines.size() == 3);
  CHECK(contains(lines[0], "seconds"));
  CHECK(contains(lines[1], ",warm,"));
  CHECK(contains(lines[2], ",cold,"));
  CHECK(run_command(small + "--csv /nonexistent/rows.csv").code == 2);
}

TEST_CASE("a row's memory decides whether it ran on a GPU, and a case that no device can run is refused once") {
  const Folder folder;
  std::ofstream(folder.file("list")) << "mb1ic3ih8oc4kh3\nmb1ic3id8ih8oc4kd3kh3\nnonsense\n";
  const Result result =
      run_command("bench --device reference,cuda_double:0,cuda_double:1 --seconds 0.01 --json - --file '" +
                      folder.file("list") + "'",
                  "GABLE_BACKEND_PATH='" GABLE_TEST_DOUBLE "'");
  CHECK(result.code == 2);
  const json study = json::parse(result.out);
  check_study_of(study);
  REQUIRE(study["measurements"].size() == 3);
  for (const json& m : study["measurements"]) {
    const bool gpu = m["device"] == "cuda_double:0";
    CHECK(m["device_kind"] == (gpu ? "gpu" : "cpu"));
    CHECK(m["threads"].is_null() == gpu);
    CHECK(m["T"]["source"] == (gpu ? "event" : "clock"));
  }
  CHECK(study["refused"].size() == 2);
}

TEST_CASE(
    "a GPU that is lost in the middle of a study: its rows and those of others are kept, the rest says why, exit 4") {
  const Folder folder;
  std::ofstream list(folder.file("list.txt"));
  for (int i = 1; i <= 6; ++i) list << "mb1ic32ih40oc" << 60 + i << "kh3\n";
  list.close();
  const std::string record = folder.file("study.json");
  const std::string arguments =
      "bench --seconds 0.002 --device cuda_double:0,reference --file " + folder.file("list.txt") + " --json " + record;
  const std::string plugins = "GABLE_BACKEND_PATH='" GABLE_TEST_DOUBLE "' ";
  const Result result = run_command(arguments, plugins + "CUDA_DOUBLE_LOST=3");
  CHECK(result.code == 4);
  const json study = json::parse(read_text(record));
  check_study_of(study);
  int of_reference = 0, of_gpu = 0;
  for (const json& row : study["measurements"]) (row["device"] == "reference" ? of_reference : of_gpu) += 1;
  CHECK(of_reference == 6);
  CHECK(of_gpu == 2);
  CHECK(study["refused"].size() == static_cast<std::size_t>(6 - of_gpu));
  for (const json& one : study["refused"]) CHECK(contains(one["reason"].get<std::string>(), "start the process again"));
  // A new process has the GPU again, and --resume measures what is missing.
  CHECK(run_command(arguments + " --resume", plugins).code == 0);
  const json whole = json::parse(read_text(record));
  CHECK(whole["measurements"].size() == 12);
  CHECK(whole["refused"].empty());
  CHECK(contains(whole["machine"]["mode"].get<std::string>(), "resumed: " + std::to_string(6 + of_gpu)));
}

TEST_CASE(
    "--resume with --ceilings and --energy: rows keep their energy, earlier rounds count and outlive an interruption") {
  const Folder folder;
  const std::string record = folder.file("study.json");
  const std::string plugins = "GABLE_BACKEND_PATH='" GABLE_TEST_DOUBLE "' ";
  const std::string bench =
      std::string("bench ") + kSmall +
      " --problem mb1ic3ih8oc5kh3 --seconds 0.002 --device cuda_double:0 --ceilings --energy --json " + record;
  REQUIRE(run_command(bench, plugins).code == 0);
  json study = json::parse(read_text(record));
  REQUIRE(study["measurements"].size() == 2);
  REQUIRE(study["ceilings"].size() == 2);
  const int rounds = study["ceilings"][0]["rounds"];
  study["measurements"].erase(1);
  study["measurements"][0]["energy"] = {{"joules", 0.5}, {"by", "nvml"},  {"watts", 100.0},     {"seconds", 1.0},
                                        {"calls", 200},  {"updates", 30}, {"uncertainty", 0.01}};
  study["ceilings"][0]["value"] = study["ceilings"][0]["q3"] = study["ceilings"][0]["high"] = 3e12;
  check_study_of(study);
  std::ofstream(record) << study.dump();
  // Interrupted in its first ceilings, a resumed run leaves what there was.
  const Result cut = run_command(bench + " --resume", plugins + "CUDA_DOUBLE_SLOW=1 timeout -s TERM 0.7");
  CHECK(cut.code == 124);
  json kept = json::parse(read_text(record));
  check_study_of(kept);
  CHECK(kept["measurements"].size() == 1);
  REQUIRE(kept["ceilings"].size() == 2);
  CHECK(kept["ceilings"][0]["value"] == 3e12);
  CHECK(kept["ceilings"][0]["formula"] == "made up");
  CHECK(kept["rates"] == study["rates"]);

  REQUIRE(run_command(bench + " --resume", plugins).code == 0);
  const json whole = json::parse(read_text(record));
  check_study_of(whole);
  CHECK(whole["measurements"].size() == 2);
  CHECK(whole["measurements"][0]["energy"]["joules"] == 0.5);
  CHECK(whole["measurements"][1].contains("energy"));
  CHECK(whole["ceilings"][0]["value"] == 3e12);
  CHECK(whole["ceilings"][0]["rounds"].get<int>() > rounds);
}

TEST_CASE(
    "a GPU without memory is a refused row with exit code 4, one that another process has is left out by default") {
  const std::string plugins = "GABLE_BACKEND_PATH='" GABLE_TEST_DOUBLE "' ";
  const std::string bench = std::string("bench ") + kSmall + " --seconds 0.002 --threads 1 --json -";
  const Result full = run_command(bench + " --device cuda_double:0", plugins + "CUDA_DOUBLE_FULL=1");
  CHECK(full.code == 4);
  CHECK(contains(json::parse(full.out)["refused"][0]["reason"].get<std::string>(), "cuda_double:0: no "));
  for (const char* device : {"--device cuda_double:0", "--device cpu,cuda_double:0"}) {
    const Result named = run_command(bench + " " + device, plugins + "CUDA_DOUBLE_TAKEN=1");
    CHECK(named.code == 3);
    CHECK(contains(named.err, "another process has it"));
  }
  const Result by_default = run_command(bench, plugins + "CUDA_DOUBLE_TAKEN=1");
  CHECK(by_default.code == 0);
  const json study = json::parse(by_default.out);
  CHECK(contains(study["machine"]["mode"].get<std::string>(), "left out: cuda_double:0: another process has it"));
  CHECK(std::any_of(study["measurements"].begin(), study["measurements"].end(),
                    [](const json& row) { return row["device"].get<std::string>().starts_with("cpu"); }));
  CHECK(run_command(std::string("verify ") + kSmall + " --threads 1", plugins + "CUDA_DOUBLE_TAKEN=1").code == 0);
}

TEST_CASE("a row of `auto` is on the kind of device that runs it, and gives its threads") {
  const Result result = run_command(std::string("bench ") + kSmall + " --device auto --seconds 0.01 --json -");
  REQUIRE(result.code == 0);
  const json study = json::parse(result.out);
  check_study_of(study);
  REQUIRE(study["measurements"].size() == 1);
  CHECK(study["measurements"][0]["threads"].is_null() == (study["measurements"][0]["device_kind"] == "gpu"));
}

TEST_CASE("a network has a total of `auto`, whatever it chose, beside those of the devices") {
  const Folder folder;
  std::ofstream(folder.file("net.txt")) << "mb1ic3ih8oc4kh3n\"first*2\"\nmb1ic8ih8oc8kh1n\"second\"\n";
  const Result result =
      run_command("bench --file '" + folder.file("net.txt") + "' --device 'auto?only=cpu,cpu' --seconds 0.01 --json '" +
                  folder.file("a.json") + "'");
  REQUIRE_MESSAGE(result.code == 0, result.err);
  const json study = json::parse(read_text(folder.file("a.json")));
  check_study_of(study);
  CHECK(study["measurements"][0]["device"] == "cpu");
  CHECK(study["measurements"][0]["asked"] == "auto?only=cpu");
  CHECK_FALSE(contains(result.out, "two devices"));
  const Result parted =
      run_command("bench --file '" + folder.file("net.txt") + "' --device 'auto?only=cpu,reference' --seconds 0.01");
  CHECK(contains(parted.out, "two devices; one that chooses between them is 'auto?only=cpu+reference'"));
  REQUIRE(study["totals"].size() == 2);
  for (const json& total : study["totals"]) {
    CHECK(total["layers"] == 2);
    CHECK(total["convolutions"] == 3);
  }
  CHECK(study["totals"][0]["device"] == "auto?only=cpu");
  CHECK(study["totals"][1]["device"] == "cpu");
  CHECK(contains(result.out, "auto?only=cpu "));
}

TEST_CASE("a row of `auto` that goes from the host's memory to a GPU ran on the GPU") {
  const Result result = run_command(
      std::string("bench ") + kSmall + " --device 'auto?only=cuda_double:0&memory=host' --seconds 0.01 --json -",
      "GABLE_BACKEND_PATH='" GABLE_TEST_DOUBLE "'");
  REQUIRE_MESSAGE(result.code == 0, result.err);
  const json row = json::parse(result.out)["measurements"][0];
  CHECK(row["device"] == "cuda_double:0 from the host");
  CHECK(row["device_kind"] == "gpu");
  CHECK(row["gpu_index"] == 0);
  CHECK(row["threads"].is_null());
  CHECK(row["T"]["source"] == "clock");
  const Result rounds =
      run_command(std::string("bench ") + kSmall +
                      " --device 'auto?only=cuda_double:0&memory=host' --seconds 1 --rounds 2 --json -",
                  "GABLE_BACKEND_PATH='" GABLE_TEST_DOUBLE "'");
  REQUIRE_MESSAGE(rounds.code == 0, rounds.err);
  CHECK_MESSAGE(json::parse(rounds.out)["measurements"][0]["T"]["rounds"].size() == 2,
                rounds.err);  // each by auto, with its copies
}

TEST_CASE("--energy: joules of a row, or why there are none here, in the record and in words") {
  const Result result =
      run_command(std::string("bench ") + kSmall + " --device reference --seconds 0.01 --energy --json -");
  REQUIRE(result.code == 0);
  const json study = json::parse(result.out);
  check_study_of(study);
  REQUIRE(study["energy"].size() == 1);
  CHECK(study["energy"][0]["device"] == "cpu");
  const json& energy = study["measurements"][0]["energy"];
  CHECK(energy["joules"].is_null() == energy.contains("reason"));
  if (!study["energy"][0]["available"]) {
    CHECK(energy["reason"] == study["energy"][0]["reason"]);
    CHECK(contains(result.err, "energy: none here: " + energy["reason"].get<std::string>()));
  }
  const json plain =
      json::parse(run_command(std::string("bench ") + kSmall + " --device reference --seconds 0.01 --json -").out);
  CHECK_FALSE(plain.contains("energy"));
  CHECK_FALSE(plain["measurements"][0].contains("energy"));
}

TEST_CASE("a case that a device refuses is in the record with the reason") {
  const Result result = run_command(std::string("bench ") + kSmall + " --math split3 --device reference --json -");
  CHECK(result.code == 3);
  const json study = json::parse(result.out);
  check_study_of(study);
  REQUIRE(study["refused"].size() == 1);
  CHECK(study["refused"][0]["device"] == "reference");
  CHECK(contains(study["refused"][0]["reason"].get<std::string>(), "split3"));
}

TEST_CASE("where a math is at fault, one line says so, and the record has every kernel's reason") {
  const Result result = run_command(std::string("bench ") + kSmall + " --math tf32 --device cpu --json -");
  CHECK(result.code == 3);
  const json study = json::parse(result.out);
  check_study_of(study);
  REQUIRE(study["refused"].size() == 1);
  CHECK(study["refused"][0]["reason"].get<std::string>().starts_with("cpu: math tf32: it takes strict"));
  CHECK(study["refused"][0]["kernels"].size() > 5);
  CHECK(study["refused"][0]["kernels"][0]["reason"].is_string());
}

TEST_CASE("several maths take turns in one run, and a device that refuses one of them stays in the others") {
  const Result result = run_command(std::string("bench ") + kSmall +
                                    " --math strict,tf32,split3 --device reference,wrong --seconds 20 --json -");
  CHECK(result.code == 0);
  const json study = json::parse(result.out);
  check_study_of(study);
  std::vector<std::string> measured;
  for (const json& m : study["measurements"]) {
    measured.push_back(m["device"].get<std::string>() + " " + m["math"].get<std::string>());
    CHECK(m["T"]["runs"] == study["measurements"][0]["T"]["runs"]);  // the maximum, since there is enough time
  }
  CHECK(measured == std::vector<std::string>{"reference strict", "wrong strict", "wrong tf32", "wrong split3"});
  REQUIRE(study["refused"].size() == 2);
  CHECK(study["refused"][0]["math"] == "tf32");
  CHECK(study["refused"][1]["math"] == "split3");
  CHECK(study["refused"][1]["device"] == "reference");
  CHECK(contains(result.err, "wrong split3"));
}

TEST_CASE("a math that a dtype can't have is refused for that dtype alone") {
  const Result result = run_command(std::string("bench ") + kSmall +
                                    " --math split3,strict --dtype f32,bf16 --device wrong --seconds 0.05 --json -");
  CHECK(result.code == 0);
  const json study = json::parse(result.out);
  CHECK(study["measurements"].size() == 3);
  REQUIRE(study["refused"].size() == 1);
  CHECK(contains(study["refused"][0]["reason"].get<std::string>(), "math split3 is for f32; with bf16"));
}

TEST_CASE("bandwidths are measured with exact bytes, on one thread and on all, and other devices give the reason") {
  const Result result =
      run_command("bench --suite primitives --name 64KiB --device cpu?threads=2,reference --seconds 0.01 --json -");
  CHECK(result.code == 0);
  const json study = json::parse(result.out);
  check_study_of(study);
  REQUIRE(study["measurements"].size() == 6);
  for (const json& m : study["measurements"]) {
    CAPTURE(m["name"]);
    const double bytes = m["Q"]["dram"]["bytes"];
    CHECK(m["working_set_bytes"] == 65536);
    CHECK(bytes <= 65536);
    CHECK(bytes > 65536 - 6 * 1024);  // six arrays in whole KiB
    CHECK(m["threads"] == (contains(m["name"].get<std::string>(), "_1t_") ? 1 : 2));
    CHECK(m["W"]["flop"] == (m["op"] == "triad" ? bytes / 6 : 0));
  }
  REQUIRE(study["refused"].size() == 1);
  CHECK(study["refused"][0]["device"] == "reference");
  CHECK(contains(study["refused"][0]["reason"].get<std::string>(), "no loops that only move bytes"));
  CHECK(contains(result.err, "Bandwidth of cpu"));
}

TEST_CASE("on one thread nothing is measured twice, and files are read and written") {
  const Result result =
      run_command("bench --suite primitives --name 1MiB --device cpu?threads=1 --seconds 0.01 --json -");
  const json study = json::parse(result.out);
  check_study_of(study);
  // Past the page cache only if the file system of the temporary folder allows it.
  CHECK(study["measurements"].size() + study["refused"].size() == 7);
  std::vector<std::string> ops;
  for (const json& m : study["measurements"]) ops.push_back(m["op"]);
  for (const char* op : {"read", "copy", "triad", "file_read", "file_write"}) {
    CHECK_MESSAGE(std::count(ops.begin(), ops.end(), op) == 1, op);
  }
  for (const json& refused : study["refused"]) CHECK(contains(refused["reason"].get<std::string>(), "O_DIRECT"));
  CHECK(run_command("bench --suite primitives --name bandwidth --dtype bf16 --device cpu").code == 2);
}

TEST_CASE("bench --rounds: each row has the times of every round, in a record of the same rows") {
  const Folder folder;
  const std::string json_file = " --json '" + folder.file("a.json") + "'";
  const std::string command = "bench " + std::string(kSmall) + " --device reference,cpu --threads 1 --seconds 0.1";
  REQUIRE(run_command(command + " --rounds 8" + json_file).code == 0);
  const json study = json::parse(read_text(folder.file("a.json")));
  REQUIRE(study["measurements"].size() == 2);
  for (const json& row : study["measurements"]) {
    const json& time = row["T"];
    REQUIRE(time["rounds"].size() == 8);
    std::vector<double> medians;
    for (const json& round : time["rounds"]) medians.push_back(round[1]);
    std::sort(medians.begin(), medians.end());
    CHECK(time["seconds"].get<double>() == doctest::Approx((medians[3] + medians[4]) / 2));
  }
  CHECK(contains(study["machine"]["command"].get<std::string>(), "--rounds 8"));
  const std::string again = " '" + folder.file("a.json") + "'";
  const Result same = run_command("diff" + again + again);
  CHECK(contains(same.out, "0 slower, 0 faster"));
  CHECK(!contains(same.out, "--rounds"));
}

TEST_CASE("a list from standard input, or from a pipe, is that of every round, and of every command") {
  const Folder folder;
  const auto piped = [&](const std::string& words, const std::string& output) {
    return std::system(("printf 'mb1ic3ih8oc4kh3n\"small\"\\n' | GABLE_BACKEND_PATH='" GABLE_TEST_PLUGINS
                        "' '" GABLE_COMMAND "' " +
                        words + " >'" + output + "' 2>&1")
                           .c_str());
  };
  const std::string record = folder.file("bench.json"), said = folder.file("said");
  for (const std::string name : {"-", "/dev/stdin"}) {
    INFO(name);
    const std::string list = " --file " + name + " ";
    CHECK(piped("bench" + list + "--device cpu --threads 1 --seconds 0.05 --rounds 3 --json '" + record + "'", said) ==
          0);
    CHECK_FALSE(contains(read_text(said), "failed"));
    const json study = json::parse(read_text(record));
    REQUIRE(study.at("measurements").size() == 1);
    CHECK(study["measurements"][0]["T"]["rounds"].size() == 3);
    CHECK(study["measurements"][0]["suite"] == "stdin");
    CHECK(piped("list" + list, said) == 0);
    CHECK(contains(read_text(said), "small"));
    CHECK(piped("profile" + list + "--device cpu --runs 2", said) == 0);
  }
  CHECK(std::system(("'" GABLE_COMMAND "' plot --ascii - <'" + record + "' >'" + said + "' 2>&1").c_str()) == 0);
  CHECK(contains(read_text(said), "FLOP/s"));
  CHECK(std::system(("'" GABLE_COMMAND "' list --file - </dev/null >'" + said + "' 2>&1").c_str()) != 0);
  CHECK(contains(read_text(said), "the list is empty"));
}

TEST_CASE("bench --rounds: rows of GPUs have rounds where they are asked for") {
  const Folder folder;
  const auto rounds = [&](const std::string& options) {
    const std::string file = folder.file("a.json");
    const Result result = run_command(
        "bench " + std::string(kSmall) + " --device cuda_double:0 --seconds 0.5 --json '" + file + "'" + options,
        "GABLE_BACKEND_PATH='" GABLE_TEST_DOUBLE "'");
    REQUIRE(result.code == 0);
    const json row = json::parse(read_text(file))["measurements"][0];
    return row["T"].contains("rounds") ? row["T"]["rounds"].size() : 0;
  };
  CHECK(rounds(" --rounds 8") == 8);
  CHECK(rounds("") == 0);
}

TEST_CASE("bench: a record has rounds where its rows have time for them; without one nothing is measured again") {
  const auto rounds = [](const std::string& options) {
    const Folder folder;
    const std::string file = folder.file("a.json");
    const Result result =
        run_command("bench " + std::string(kSmall) + " --device reference --json '" + file + "'" + options);
    REQUIRE(result.code == 0);
    const json row = json::parse(read_text(file))["measurements"][0];
    return row["T"].contains("rounds") ? row["T"]["rounds"].size() : 0;
  };
  CHECK(rounds(" --seconds 0.5") == 16);
  CHECK(rounds(" --seconds 0.3") == 10);
  CHECK(rounds(" --seconds 0.1") == 0);
  CHECK(rounds(" --seconds 0.5 --rounds 1") == 0);
  CHECK(rounds(" --seconds 61") == 0);
  const Result shown = run_command("bench " + std::string(kSmall) + " --device reference --seconds 0.5");
  CHECK(!contains(shown.err, "rounds"));
}

TEST_CASE("bench --rounds: rows that take too long for their part of the time are measured in one go") {
  const Folder folder;
  REQUIRE(run_command("bench " + std::string(kSmall) + " --device reference --seconds 1e-6 --rounds 8 --json '" +
                      folder.file("a.json") + "'")
              .code == 0);
  CHECK(!json::parse(read_text(folder.file("a.json")))["measurements"][0]["T"].contains("rounds"));
}
