// `gable tune` and `gable regret`, and the cache of what was measured.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/command_run.h"

using namespace gable;
using namespace gable::commands;

TEST_CASE("tune --ceilings remembers the rate of a core, and passes over a damaged file with a word") {
  const Folder folder;
  const fs::path cache = folder.file("cache");
  const std::string variable = "GABLE_CACHE='" + cache.string() + "'";
  const Result tuned = run_command("tune --ceilings --json", variable);
  REQUIRE(tuned.code == 0);
  CHECK(json::parse(tuned.out)["core_multiply_adds"].get<double>() > 1e8);
  fs::path file;
  for (const auto& entry : fs::directory_iterator(cache)) {
    if (entry.path().extension() == ".txt") file = entry.path();
  }
  REQUIRE(!file.empty());
  fs::resize_file(file, fs::file_size(file) - 3);
  const Result again = run_command("tune --ceilings --json", variable);
  CHECK(again.code == 0);
  CHECK(contains(again.err, "damaged"));
  CHECK(!contains(run_command("tune --ceilings --json", variable).err, "damaged"));
  CHECK(contains(run_command("tune --ceilings --json", "GABLE_CACHE=off").err, "in memory alone"));
}

TEST_CASE("tune remembers what it measured, and regret compares what auto chooses with the best") {
  const Folder folder;
  const std::string cache = "GABLE_CACHE='" + fs::path(folder.file("cache")).string() + "'";
  // Two kernels of cpu take it: pointwise and direct.
  const std::string layer =
      " --problem 'mb1ic64ih8oc32kh1n\"layer\"' --layout nhwc --device 'auto?only=cpu' --threads 1 --json";
  const Result tuned = run_command("tune" + layer, cache);
  REQUIRE(tuned.code == 0);
  const json first = json::parse(tuned.out);
  CHECK(first["known"] == 0);
  REQUIRE(first["tuned"].size() == 1);
  CHECK(first["tuned"][0]["device"] == "cpu?threads=1");
  CHECK(first["tuned"][0]["seconds"].get<double>() > 0);
  CHECK(json::parse(run_command("tune" + layer, cache).out)["known"] == 1);
  CHECK(json::parse(run_command("tune --again" + layer, cache).out)["tuned"].size() == 1);
  CHECK(first["refused"].empty());
  const json refused = json::parse(run_command("tune --math tf32" + layer, cache).out)["refused"];
  REQUIRE(refused.size() == 1);
  CHECK(refused[0]["name"] == "layer");

  const std::string limits = "regret --kernels --seconds 0.01 --geo 100 --worst 100";
  for (const bool known : {true, false}) {
    const Result measured = run_command(limits + layer, known ? cache : "GABLE_CACHE=off");
    REQUIRE(measured.code == 0);
    const json record = json::parse(measured.out);
    REQUIRE(record["layers"].size() == 1);
    CHECK(record["layers"][0]["source"] == (known ? "measured" : "model"));
    CHECK(record["layers"][0]["regret"].get<double>() >= 1);
    CHECK(record["layers"][0]["times"].size() == 2);  // each kernel once: what was tuned is one of them
    CHECK(record["summary"][0]["layers"] == 1);
  }
  const Result beyond = run_command("regret --kernels --seconds 0.01 --geo 0.5" + layer, cache);
  CHECK(beyond.code == 1);
  const Result nothing = run_command("regret --seconds 0.01" + layer, cache);
  CHECK(nothing.code == 3);
  CHECK(contains(nothing.err, "has nothing to choose"));
  const Result named = run_command(std::string("tune --device cpu ") + kSmall, cache);
  CHECK(named.code == 2);
  CHECK(contains(named.err, "auto?only=cpu"));
}

TEST_CASE("a cache that can't be used is told on standard error and nothing else") {
  const Result tuned = run_command(std::string("tune --device 'auto?only=cpu' ") + kSmall, "GABLE_CACHE=/dev/null/x");
  CHECK(tuned.code == 0);
  CHECK(contains(tuned.err, "kept in memory alone"));
  // Where there is no folder, tuning is lost with the process: that is said, with the reason.
  const std::string tune = std::string("tune --device 'auto?only=cpu' ") + kSmall;
  const Result off = run_command(tune, "GABLE_CACHE=off");
  CHECK(contains(off.out, "nothing is kept, since GABLE_CACHE is off"));
  const Result homeless = run_command(tune, "env -u GABLE_CACHE -u XDG_CACHE_HOME -u HOME");
  CHECK(contains(homeless.err, "kept in memory alone"));
  CHECK(contains(homeless.err, "HOME"));
  const Folder folder;
  const std::string none = folder.file("none");
  CHECK(contains(run_command(tune, "env -u GABLE_CACHE -u XDG_CACHE_HOME HOME='" + none + "'").err, "HOME"));
  CHECK_FALSE(fs::exists(none));
}
