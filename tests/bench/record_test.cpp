// The record's writer and reader: nothing is lost between them, and records of older versions load.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/record/row_json.h"
#include "bench/record/schema.h"
#include "bench/record/study_json.h"
#include "perfcounters/machine.h"
#include "tests/tools/fast.h"

using namespace gable::bench;
using nlohmann::json;

namespace {

/// A row in which every field has a distinct value.
Row full_row() {
  Row row;
  row.identity = {
      .suite = "study",
      .name = "layer",
      .op = "conv2d",
      .problem = "mb1ic3ih8oc4kh3",
      .dtype = "f32",
      .math = "split3",
      .layout = "nhwc",
      .epilogue = EpilogueFields{.bias = true, .activation = "relu", .max_pool = {{3, 2}}, .max_pool_stride = {{2, 1}}},
      .tile = {{128, 200}},
      .working_set_bytes = 65536};
  row.place = {.device = "accelerator:1 graph",
               .kind = DeviceKind::gpu,
               .gpu = 1,
               .device_name = "an accelerator",
               .kernel = "wgmma",
               .threads = 4,
               .used_threads = 1,
               .fused = true,
               .cache = "cold",
               .arithmetic = {.dtype = "bf16", .products = 3}};
  row.time = {
      .source = "event", .seconds = 2e-3, .q1 = 1e-3, .q3 = 3e-3, .fastest = 0.5e-3, .runs = 7, .calls_per_run = 9};
  row.work = {.source = "counter",
              .value = 4e6,
              .analytic = 3e6,
              .by = "cupti",
              .spread = {.q1 = 3.9e6, .q3 = 4.1e6, .repetitions = 3, .multiplex = 1},
              .ratio = 4.0 / 3,
              .note = "a note"};
  row.traffic["dram"] = {.value = 2e6, .analytic = 2e6, .reason = "cached", .resident = {{"counter", 12}}};
  row.traffic["l2"] = {.source = "simulated", .value = 5e6, .by = "callgrind"};
  row.verdict = {.bound = "memory:l2",
                 .roof = "L2 read",
                 .percent_of_roof = 55,
                 .limits = {{"memory:l2", "L2 read", 5e12, 55}, {"compute", "wgmma f16", 6e14, 20}},
                 .flags = {"one", "two"}};
  row.accuracy = {.max_error = 1e-6, .error_bound = 2e-6, .relative_error = 3e-6};
  row.counters = {.extra = {{"warps", 32}}, .sources = {{"cupti", {2, "two passes"}}}};
  row.edges_per_second = 1e9;
  row.regime = Regime{"memory:l2", "55 % of L2 read", {"a larger tile", "fewer bytes"}};
  row.naive = {.bytes = 3e7, .seconds = 4e-3};
  row.fusion = {.bytes_saved = 5e5, .seconds_saved = 1e-4};
  row.instructions = {
      .warp = 1e6, .thread = 3.1e7, .thread_active = 3e7, .levels = {{"l1", {1e6, 4e6}}, {"global", {1e5, 4e5}}}};
  row.energy = {.joules = 0.4,
                .reason = {},
                .by = "nvml",
                .watts = 300,
                .seconds = 1,
                .calls = 750,
                .updates = 20,
                .uncertainty = 0.05};
  return row;
}

Study read(const json& document) { return study_from_json(document).study; }

json written(const Study& study) {
  return to_json(study, RunEntry{.machine = gable::perf::describe_machine(), .command = "record_test"});
}

/// Checks that every value of `before` except null is in `after`.
void check_kept(const json& before, const json& after, const std::string& at) {
  if (before.is_null()) return;
  if (!before.is_object()) {
    CHECK_MESSAGE(after == before, at << ": " << before.dump() << " became " << after.dump());
    return;
  }
  for (const auto& [key, value] : before.items()) {
    if (value.is_null()) continue;
    if (!after.is_object() || !after.contains(key)) {
      FAIL_CHECK(at << "/" << key << " is lost");
    } else {
      check_kept(value, after[key], at + "/" + key);
    }
  }
}

}  // namespace

TEST_CASE("a row comes back from its record with every field") {
  const json document = written({.rows = {full_row()}});
  const Study study = read(document);
  REQUIRE(study.rows.size() == 1);
  CHECK(to_json(study.rows[0]) == document["measurements"][0]);
  const Row& row = study.rows[0];
  CHECK(row.place.gpu == 1);
  CHECK(row.place.arithmetic.products == 3);
  CHECK(row.identity.epilogue->max_pool_stride == std::array<std::int64_t, 2>{2, 1});
  CHECK(row.traffic.at("dram").resident.at("counter") == 12);
  CHECK(row.verdict.flags.size() == 2);
  CHECK(row.verdict.limits[1].roof == "wgmma f16");
  CHECK(row.regime->advice.size() == 2);
  CHECK(document["measurements"][0]["naive"]["ratio"] == 2);
  CHECK(row.counters.sources.at("cupti").plan == "two passes");
  CHECK(row.energy->updates == 20);
  CHECK(row.instructions->levels.at("global").transactions == 4e5);
  CHECK(document["measurements"][0]["energy"]["gflop_per_joule"] == doctest::Approx(row.work.value / 0.4e9));
  CHECK(document["measurements"][0].size() == 41);  // fields: one that the writer forgets would be missing
}

TEST_CASE("the facts of a machine are words for people: units, and lists without punctuation") {
  json document = written({});
  document["machine"]["memory_bytes"] = 3 << 29;
  document["machine"]["clock_hz"] = 4.2177e9;
  document["machine"]["simd"] = {"sse2", "avx"};
  const auto facts = study_from_json(document).machine.facts;
  const auto fact = [&](const std::string& name) {
    const auto found = std::find_if(facts.begin(), facts.end(), [&](const auto& one) { return one.first == name; });
    return found == facts.end() ? "" : found->second;
  };
  CHECK(fact("memory") == "1.50 GiB");
  CHECK(fact("clock") == "4.22 GHz");
  CHECK(fact("simd") == "sse2, avx");
}

TEST_CASE("ceilings, rates and refusals come back") {
  Study study;
  study.ceilings.push_back({.device = "cuda:0",
                            .device_kind = DeviceKind::gpu,
                            .name = "HBM read",
                            .kind = "bandwidth",
                            .level = "dram",
                            .dtype = "f32",
                            .working_set_bytes = 1e9,
                            .limit = {2, 1, 3, 5, 4, "a formula", "a note", 3, 1.5, 2, "below another"}});
  study.rates.push_back({.device = "cuda:0", .name = "launch", .unit = "s", .limit = {2, 1, 3, 5, {}, "", ""}});
  study.refused.push_back({"suite", "name", "problem", "f32", "split3", "cpu", "why"});
  study.refused.push_back({"suite", "name", "problem", "f32", "tf32", "cpu", "why", {{"direct", "a"}, {"amx", "b"}}});
  const json document = written(study);
  const Study back = read(document);
  CHECK(written(back)["ceilings"] == document["ceilings"]);
  CHECK(written(back)["rates"] == document["rates"]);
  CHECK(back.refused == study.refused);
}

TEST_CASE("every committed record loads, and no field of a row is lost") {
  std::size_t records = 0, rows = 0, gpu_rows = 0;
  const std::size_t step = gable::is_fast() ? 16 : 1;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(GABLE_RESULTS)) {
    if (entry.path().extension() != ".json" || records++ % step != 0) continue;
    CAPTURE(entry.path().string());
    const json document = json::parse(std::ifstream(entry.path()));
    if (!document.contains("measurements")) continue;  // gable_overhead's, gable_gpu_counters'
    const Study study = read(document);
    REQUIRE(study.rows.size() == document["measurements"].size());
    for (std::size_t i = 0; i < study.rows.size(); ++i) {
      check_kept(document["measurements"][i], to_json(study.rows[i]), "/measurements/" + std::to_string(i));
      gpu_rows += study.rows[i].on_gpu() ? 1 : 0;
    }
    for (std::size_t i = 0; i < study.ceilings.size(); ++i) {
      check_kept(document["ceilings"][i], to_json(study.ceilings[i]), "/ceilings/" + std::to_string(i));
    }
    rows += study.rows.size();
  }
  CHECK(rows > 2500 / step);
  if (!gable::is_fast()) CHECK(gpu_rows > 1000);
}

TEST_CASE("an old record's device kind comes from the documented names, a new one's only from device_kind") {
  CHECK(device_kind_of({{"device", "cuda:0 graph"}}) == DeviceKind::gpu);
  CHECK(device_kind_of({{"device", "cudnn:1"}}) == DeviceKind::gpu);
  CHECK(device_kind_of({{"device", "pytorch:eager"}}) == DeviceKind::gpu);
  CHECK(device_kind_of({{"device", "cpu?threads=2"}}) == DeviceKind::cpu);
  CHECK(device_kind_of({{"device", "cuda:0"}, {"device_kind", "cpu"}}) == DeviceKind::cpu);
  CHECK(device_kind_of({{"device", "accelerator"}, {"device_kind", "gpu"}}) == DeviceKind::gpu);
  json document = written({.rows = {full_row()}});
  document["measurements"][0]["device_kind"] = "tpu";
  CHECK(check_study(document).front().pointer == "/measurements/0/device_kind");
}
