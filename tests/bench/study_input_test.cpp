// What a report takes: studies by their schema, from files that anyone may have written, one or several.
#include <doctest/doctest.h>
#include <gable/error.h>

#include <fstream>
#include <string>
#include <vector>

#include "bench/common/text.h"
#include "bench/record/schema.h"
#include "bench/record/study_file.h"
#include "bench/report/ascii.h"
#include "bench/report/figure.h"
#include "bench/report/html.h"
#include "bench/report/study.h"
#include "tests/bench/report_samples.h"
#include "tests/bench/report_tools.h"

using namespace gable::bench;
using namespace gable::bench::report;
using nlohmann::json;
using namespace samples;

namespace {

// The first violation after `change`, as "pointer: value; expected".
template <class Change>
std::string violation_after(Change change) {
  json study = samples::cpu_study();
  change(study);
  const auto violations = check_study(study);
  if (violations.empty()) return "none";
  return violations[0].pointer + ": " + violations[0].value + "; " + violations[0].expected;
}

}  // namespace

TEST_CASE("schema: the sample studies are well formed") {
  CHECK(check_study(samples::cpu_study()).empty());
  CHECK(check_study(samples::cpu_study({"f32", "bf16", "f16"}, {"warm", "cold"})).empty());
  CHECK(check_study(samples::gpu_study()).empty());
}

TEST_CASE("schema: fields that this version does not know are allowed") {
  CHECK(violation_after([](json& s) { s["measurements"][0]["later"] = 1; }) == "none");
  CHECK(violation_after([](json& s) { s["machine"]["microcode"] = "0xb002"; }) == "none");
}

TEST_CASE("schema: a violation names its place, its value and what is expected") {
  CHECK(violation_after([](json& s) { s = json::array(); }) == ": []; an object: a study");
  CHECK(violation_after([](json& s) { s["schema_version"] = 2; }) ==
        "/schema_version: 2; 1, the version that this gable reads");
  CHECK(violation_after([](json& s) { s["measurements"][3]["T"]["seconds"] = -1; }) ==
        "/measurements/3/T/seconds: -1; a number > 0");
  CHECK(violation_after([](json& s) { s["measurements"][0]["dtype"] = "fp32"; }) ==
        "/measurements/0/dtype: \"fp32\"; one of \"f64\" \"f32\" \"tf32\" \"f16\" \"bf16\" \"i8\"");
  CHECK(violation_after([](json& s) { s["measurements"][0].erase("kernel"); }) ==
        "/measurements/0/kernel: missing; a string");
  CHECK(violation_after([](json& s) { s["measurements"][0]["Q"].erase("dram"); }) ==
        "/measurements/0/Q/dram: missing; an object: the traffic to memory");
  CHECK(violation_after([](json& s) { s["machine"]["caches"]["l/2"] = "1M"; }) ==
        "/machine/caches/l~12: \"1M\"; a number of bytes > 0");
  CHECK(violation_after([](json& s) { s["ceilings"][0]["q1"] = 1e15; }).starts_with("/ceilings/0/q1: "));
  CHECK(violation_after([](json& s) { s["refused"][0]["reason"] = nullptr; }) == "/refused/0/reason: null; a string");
}

TEST_CASE("schema: a wrong type anywhere is a violation, never a crash") {
  json good = samples::gpu_study();
  json& rows = good["measurements"];
  rows.erase(rows.begin() + 4, rows.end());  // only the first one becomes wrong, and each page of more takes its time
  const json flat = good.flatten();
  const std::vector<json> wrong = {nullptr, true, -1, 1e300, "x", json::array(), json::object()};
  size_t tried = 0;
  for (const auto& [pointer, value] : flat.items()) {
    if (contains(pointer, "/measurements/") && !pointer.starts_with("/measurements/0/")) continue;
    if (contains(pointer, "/ceilings/") && !pointer.starts_with("/ceilings/0/")) continue;
    for (const json& other : wrong) {
      json study = good;
      study[json::json_pointer(pointer)] = other;
      if (check_study(study).empty()) CHECK_NOTHROW(html(merge({study})));
      ++tried;
    }
  }
  CHECK(tried > 300);
}

TEST_CASE("schema: a number that nothing measures is a violation with its field, not an axis of 300 decades") {
  CHECK(violation_after([](json& s) {
          json& m = s["measurements"][0];
          m["W"]["flop"] = 5e-324;
          m["gflops"] = m["intensity"] = 0;
        }) == "/measurements/0/W/flop: 5e-324; a number from 1e-18 to 1e+30");
  CHECK(violation_after([](json& s) { s["measurements"][0]["Q"]["dram"]["bytes"] = 5e-324; }) ==
        "/measurements/0/Q/dram/bytes: 5e-324; a number from 1e-18 to 1e+30");
  CHECK(violation_after([](json& s) {
          s["ceilings"][0]["value"] = s["ceilings"][0]["q1"] = 1e-310;
        }).starts_with("/ceilings/0/q1: 1e-310; a number from 1e-18"));
  CHECK(violation_after([](json& s) {
          s["measurements"][0]["T"]["seconds"] = 1e300;
        }).ends_with("1e+300; a number from 1e-18 to 1e+30"));
  CHECK(violation_after([](json& s) { s["machine"]["threads"] = 4294967297; }) ==
        "/machine/threads: 4294967297; an integer from 1 to 2147483647");
  CHECK(violation_after([](json& s) { s["measurements"][0]["used_threads"] = 0; }) ==
        "/measurements/0/used_threads: 0; an integer from 1 to 2147483647, or null");
}

namespace {

std::string refusal_of(const std::string& text) {
  try {
    parse_document(text, "a.json");
  } catch (const gable::Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("study file: deep, cut or broken JSON is refused with the file's name") {
  const std::string deep(50000, '['), objects = "{\"schema_version\":1,\"later\":";
  CHECK(contains(refusal_of(deep), "study 'a.json': is nested more than 64 levels deep"));
  CHECK(contains(refusal_of(deep + std::string(50000, ']')), "64 levels"));
  std::string nested;
  for (int i = 0; i < 50000; ++i) nested += "{\"a\":";
  CHECK(contains(refusal_of(objects + nested), "64 levels"));
  CHECK(refusal_of(std::string(60, '[') + std::string(60, ']')) == "accepted");
  for (const char* text : {"", "{\"schema_version\": 1", "[1, 2", "nul", "{\"a\": 1e999}", "\"\xff\"", "\x1b[31m"}) {
    const std::string refusal = refusal_of(text);
    CHECK(contains(refusal, "study 'a.json': is no JSON"));
    CHECK_FALSE(contains(refusal, "\x1b"));
  }
  const std::string whole = samples::gpu_study().dump();
  for (size_t cut = 0; cut < whole.size(); cut += 997) CHECK(contains(refusal_of(whole.substr(0, cut)), "is no JSON"));
}

TEST_CASE("study file: a field that an object has twice is refused, at whatever place") {
  CHECK(refusal_of("{\"a\": 1, \"b\": {\"a\": 2}, \"c\": [{\"a\": 3}, {\"a\": 4}]}") == "accepted");
  for (const char* text :
       {"{\"a\": 1, \"a\": 2}", "{\"b\": {\"c\": {}, \"a\": 1, \"a\": 1}}", "[{\"a\": [], \"\\u0061\": {}}]"})
    CHECK(contains(refusal_of(text), "study 'a.json': an object has the field 'a' twice"));
  CHECK_FALSE(contains(refusal_of("{\"\\u001b[31m\": 1, \"\\u001b[31m\": 2}"), "\x1b"));
}

TEST_CASE("study file: what is no study, or a newer one, says so; no escape sequence reaches the terminal") {
  Folder folder("files");
  std::filesystem::create_directories(folder.path());
  const auto refusal = [&](const json& document) -> std::string {
    const std::filesystem::path path = folder.path() / "a.json";
    std::ofstream(path) << document.dump();
    try {
      read_study_file(path);
    } catch (const gable::Error& error) {
      return error.what();
    }
    return "accepted";
  };
  json study = samples::gpu_study();
  CHECK(refusal(study) == "accepted");
  CHECK(contains(refusal(json::array()), "is JSON, but no study"));
  CHECK(contains(refusal({{"version", 6}}), "is JSON, but no study"));
  study["schema_version"] = 2;
  CHECK(contains(refusal(study), "/schema_version: is 2; expected 1, the version that this gable reads"));
  CHECK(
      contains(refusal(json::parse(R"({"schema_version": 1, "machine": {"caches": {"\u001b[31m": 1}}})")), "machine"));
  CHECK_FALSE(
      contains(refusal(json::parse(R"({"schema_version": 1, "machine": {"caches": {"\u001b[31m": "x"}}})")), "\x1b"));
  CHECK_THROWS_WITH_AS(read_study_file(folder.path()), doctest::Contains("is a folder"), gable::Error);
  CHECK_THROWS_WITH_AS(read_study_file(folder.path() / "none"), doctest::Contains("can't be opened"), gable::Error);
}

TEST_CASE("schema: numbers that contradict each other are a violation") {
  CHECK(contains(violation_after([](json& s) { s["measurements"][0]["gflops"] = 1e6; }), "W.flop / T.seconds / 1e9"));
  CHECK(contains(violation_after([](json& s) { s["measurements"][0]["intensity"] = 1; }), "W.flop / Q.dram.bytes"));
  CHECK(contains(violation_after([](json& s) { s["measurements"][0]["T"]["q3"] = 1e-12; }), "at least seconds"));
}

TEST_CASE("schema: of several studies, the message names the wrong one") {
  json wrong = samples::gpu_study();
  wrong["machine"].erase("cpu");
  try {
    merge({samples::cpu_study(), wrong});
    FAIL("accepted");
  } catch (const SchemaError& error) {
    CHECK(contains(error.what(), "study 2 of 2: /machine/cpu: is missing; expected a string"));
  }
}

TEST_CASE("merge: every entry keeps its machine, and devices of two machines stay apart") {
  json other = samples::cpu_study();
  other["machine"]["cpu"] = "Intel Xeon 6";
  const Studies two = merge({samples::cpu_study(), other});
  CHECK(two.machines[0].tag == "A");
  CHECK(two.machines[1].tag == "B");
  CHECK(two.measurements.front().series == "cpu · A");
  CHECK(two.measurements.back().series == "onednn · B");
  CHECK(series_of(two).size() == 4);

  const Studies same = merge({samples::cpu_study(), samples::cpu_study()});
  CHECK(same.machines[1].tag.empty());
  CHECK(series_of(same).size() == 2);

  // Hypervisors call CPUs of several generations the same.
  json generation = samples::cpu_study();
  generation["machine"]["caches"]["l1d"] = 32768;
  const Studies generations = merge({samples::cpu_study(), generation});
  CHECK(generations.machines[1].tag == "B");
  REQUIRE(subtitle_of(generations).size() == 2);
  CHECK(contains(subtitle_of(generations)[0], "(L1d 48.0 KiB)"));
  CHECK(contains(subtitle_of(generations)[1], "(L1d 32.0 KiB)"));
  const std::string drawn = ascii_plot(generations);
  CHECK(contains(drawn, "(L1d 48.0 KiB)"));
  CHECK(contains(drawn, "(L1d 32.0 KiB)"));
  generation["machine"]["caches"].erase("l1d");  // an older record
  CHECK(merge({samples::cpu_study(), generation}).machines[1].tag.empty());

  const Studies gpu_box = merge({samples::cpu_study(), samples::gpu_study()});
  CHECK(gpu_box.measurements.back().machine == 1);
  CHECK(gpu_box.measurements.back().series == "cudnn:0");  // only this machine has a cudnn:0
}

TEST_CASE("merge: a name measured with and without pooling gets two labels") {
  const Studies studies = merge({samples::cpu_study()});
  auto has = [&](const std::string& label) {
    return std::any_of(studies.measurements.begin(), studies.measurements.end(),
                       [&](const Measurement& m) { return m.label == label; });
  };
  CHECK(has("vgg_b1"));
  CHECK(has("vgg_b1+pool"));
  CHECK_FALSE(has("lenet1+pool"));
}

TEST_CASE("merge: a name of --quick says which batch it has; a row without FLOP has its bandwidth") {
  json study = samples::cpu_study({"f32"});
  study["machine"]["mode"] = "quick: batches halved";
  json& m = study["measurements"][0];
  m["problem"] = "mb40ic1ih48oc6oh44kh5";
  m["op"] = "transpose";
  m["W"]["flop"] = m["W"]["analytic"] = m["gflops"] = m["intensity"] = 0;
  const Studies studies = merge({study});
  CHECK(studies.measurements[0].label == "lenet1 (mb40)");
  const std::string page = html(studies);
  CHECK(contains(page, "quick: batches halved"));
  const std::string bandwidth = bandwidth_text(studies.measurements[0].bandwidth());
  CHECK(contains(page, "[\"Bandwidth\",\"" + bandwidth + "\"]"));
  CHECK(contains(page, ">" + bandwidth + "</td>"));
}
