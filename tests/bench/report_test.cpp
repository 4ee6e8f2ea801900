// The report of a study: accepted input, written files, readable figures. GABLE_REPORT_DIR=DIR keeps the generated
// reports in that folder for inspection.
#include <doctest/doctest.h>
#include <gable/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "bench/common/text.h"
#include "bench/record/schema.h"
#include "bench/record/study_file.h"
#include "bench/report/ascii.h"
#include "bench/report/bandwidth.h"
#include "bench/report/csv.h"
#include "bench/report/figure.h"
#include "bench/report/html.h"
#include "bench/report/insight.h"
#include "bench/report/png.h"
#include "bench/report/report.h"
#include "bench/report/roofs.h"
#include "bench/report/shapes.h"
#include "bench/report/svg.h"
#include "bench/report/table.h"
#include "bench/report/trainium.h"
#include "tests/bench/report_samples.h"
#include "tests/tools/comma_locale.h"

using namespace gable::bench;
using namespace gable::bench::report;
using nlohmann::json;

namespace {

constexpr const char* kHostile = "</script><img src=x onerror=alert(1)>\"'&";

// A folder for one test, removed at its end unless GABLE_REPORT_DIR is set.
class Folder {
 public:
  explicit Folder(const std::string& name) {
    const char* kept = std::getenv("GABLE_REPORT_DIR");
    keep_ = kept != nullptr;
    path_ = (keep_ ? std::filesystem::path(kept)
                   : std::filesystem::temp_directory_path() / ("gable_report_test." + std::to_string(getpid()))) /
            name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!keep_) std::filesystem::remove_all(path_.parent_path(), ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  bool keep_ = false;
  std::filesystem::path path_;
};

std::string content(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

bool has_rsvg() { return std::system("command -v rsvg-convert >/dev/null 2>&1") == 0; }

// The first violation after `change`, as "pointer: value; expected".
template <class Change>
std::string violation_after(Change change) {
  json study = samples::cpu_study();
  change(study);
  const auto violations = check_study(study);
  if (violations.empty()) return "none";
  return violations[0].pointer + ": " + violations[0].value + "; " + violations[0].expected;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A partial check of well-formedness: every tag is closed in order, text has no bare "<" or "&".
bool is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t i = 0; i < xml.size(); ++i) {
    if (xml[i] == '&') {
      const size_t end = xml.find(';', i);
      if (end == std::string::npos || end - i > 6) return false;
    }
    if (xml[i] != '<') continue;
    const size_t end = xml.find('>', i);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(i + 1, end - i - 1);
    if (contains(tag, "<") || count_of(tag, "\"") % 2) return false;
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    i = end;
  }
  return open.empty();
}

void check_that_nothing_collides(const Figure& figure) {
  for (const Panel& panel : figure.panels) {
    CAPTURE(panel.title);
    for (size_t i = 0; i < panel.labels.size(); ++i) {
      const Label& label = panel.labels[i];
      CAPTURE(label.text);
      CHECK(panel.plot.contains(label.box));
      CHECK(label.box.width() >= text_width(label.text, kFonts.label));
      for (size_t j = 0; j < panel.labels.size(); ++j) {
        if (j == i) continue;
        CHECK_FALSE(label.box.overlaps(panel.labels[j].box));
        Segment leader = panel.labels[j].leader;
        const bool covered = panel.labels[j].has_leader && clip(leader, label.box);
        CHECK_FALSE(covered);
      }
      for (const Marker& marker : panel.markers) CHECK_FALSE(label.box.overlaps(marker.box));
      for (const RoofText& text : panel.roof_texts) {
        for (const Box& box : text.boxes) CHECK_FALSE(label.box.overlaps(box));
      }
    }
    for (size_t i = 0; i < panel.roof_texts.size(); ++i) {
      for (const Box& box : panel.roof_texts[i].boxes) {
        CHECK(panel.frame.contains(box));
        for (size_t j = 0; j < i; ++j) {
          for (const Box& other : panel.roof_texts[j].boxes) CHECK_FALSE(box.overlaps(other));
        }
      }
    }
    for (const Marker& marker : panel.markers) {
      CHECK(panel.plot.contains({marker.center.x, marker.center.y, marker.center.x, marker.center.y}));
    }
  }
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
  const json good = samples::gpu_study();
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
}

TEST_CASE("figure: the widest ranges that a study may have still have few ticks, and any numbers end") {
  json study = samples::cpu_study({"f32"});
  json& m = study["measurements"][0];
  m["W"]["flop"] = 1e-18;
  m["Q"]["dram"]["bytes"] = 1e30;
  m["T"]["seconds"] = m["T"]["q1"] = m["T"]["q3"] = 1e30;
  m["intensity"] = 1e-48;
  m["gflops"] = 1e-57;
  study["ceilings"][0]["value"] = study["ceilings"][0]["q1"] = 1e-18;
  Studies studies = merge({study});
  Figure figure = lay_out(studies);
  CHECK(figure.panels[0].x_ticks.size() < 1000);
  size_t named = 0;
  for (const Tick& tick : figure.panels[0].x_ticks) named += !tick.text.empty();
  CHECK(named > 5);
  CHECK(named < 30);
  for (double value : {5e-324, 1e308, std::numeric_limits<double>::infinity()}) {
    studies.measurements[0].work.value = studies.ceilings[0].limit.value = value;
    figure = lay_out(studies);
    CHECK(figure.panels[0].x_ticks.size() < 2000);
    CHECK(figure.panels[0].y_ticks.size() < 2000);
  }
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

TEST_CASE("roofs: the best bandwidth a level and every ISA, at the thread count of the measurements") {
  const std::vector<RoofGroup> groups = roof_groups(merge({samples::cpu_study()}));
  REQUIRE(groups.size() == 1);
  size_t levels = 0;
  for (const Ceiling& c : groups[0].roofs) {
    CHECK(c.threads == 2);
    CHECK(c.name != "DRAM triad");
    levels += c.is_bandwidth();
  }
  CHECK(levels == 4);
  CHECK(groups[0].measurements.size() == 60);
}

namespace {

json with_threads(json study, int threads) {
  for (json& m : study["measurements"]) m["threads"] = threads;
  return study;
}

json without_ceilings(json study) {
  study["ceilings"] = json::array();
  return study;
}

}  // namespace

TEST_CASE("roofs: rows of other machines or thread counts stand under roofs of their own") {
  json other = samples::cpu_study();
  other["machine"]["cpu"] = "Intel Xeon 6";
  const std::vector<json> all = {samples::cpu_study(), with_threads(samples::cpu_study(), 1), other,
                                 samples::gpu_study()};
  const Studies studies = merge(all);
  const std::vector<RoofGroup> groups = roof_groups(studies);
  const Figure figure = lay_out(studies);
  REQUIRE(figure.panels.size() == groups.size());
  size_t drawn = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    REQUIRE(groups[g].has_roofs());
    CHECK(figure.panels[g].markers.size() == groups[g].measurements.size());
    for (const Ceiling& c : groups[g].roofs) {
      for (const size_t i : groups[g].measurements) {
        const Measurement& m = studies.measurements[i];
        CHECK(c.machine == m.machine);
        CHECK(c.device_kind == m.place.kind);
        CHECK(c.threads == m.place.threads);
      }
    }
    drawn += groups[g].measurements.size();
  }
  CHECK(groups.size() == 4);
  CHECK(drawn == studies.measurements.size());
}

TEST_CASE("roofs: a study without ceilings has those of its machine, but not of fewer threads or another machine") {
  const json bare = without_ceilings(samples::cpu_study());
  json ceilings_only = samples::cpu_study();
  ceilings_only["measurements"] = json::array();
  CHECK(roof_groups(merge({bare, ceilings_only}))[0].has_roofs());
  // A study that ran on one of the machine's two CPUs is of the same machine.
  json one_cpu = bare;
  one_cpu["machine"]["threads"] = 1;
  one_cpu["machine"]["threads_online"] = ceilings_only["machine"]["threads"];
  CHECK(roof_groups(merge({one_cpu, ceilings_only}))[0].has_roofs());
  CHECK_FALSE(roof_groups(merge({with_threads(bare, 64), ceilings_only}))[0].has_roofs());
  ceilings_only["machine"]["cpu"] = "Intel Xeon 6";
  CHECK_FALSE(roof_groups(merge({bare, ceilings_only}))[0].has_roofs());
}

TEST_CASE("roofs: between one thread and all, one thread's roof is scaled, as the verdict does") {
  json study = with_threads(samples::cpu_study(), 2);
  json four = json::array();
  for (json c : study["ceilings"]) {
    if (c["threads"] != 2) continue;
    const double value = c["value"];
    for (const int threads : {1, 4}) {
      c["threads"] = threads;
      for (const char* field : {"value", "q1", "q3"}) c[field] = value * threads;
      four.push_back(c);
    }
  }
  study["ceilings"] = four;
  const std::vector<RoofGroup> groups = roof_groups(merge({study}));
  for (const Ceiling& c : groups[0].roofs) {
    CHECK(c.threads == 2);
    CHECK(c.name.ends_with(" × 2"));
  }
}

TEST_CASE("a study without ceilings is not called a roofline") {
  const Studies bare = merge({without_ceilings(samples::cpu_study())});
  for (const std::string& text : {svg(bare), html(bare)}) {
    CHECK_FALSE(contains(text, "oofline</"));
    CHECK(contains(text, "no ceilings were measured"));
  }
  CHECK(contains(html(bare), "None were measured"));
  CHECK(contains(html(merge({samples::cpu_study()})), "<h1>Measured roofline</h1>"));
}

TEST_CASE("points: no two series share a shape; math, source and cache are to be seen") {
  std::set<std::string> shapes;
  for (size_t rank = 0; rank < 60; ++rank) shapes.insert(shape_path(rank));
  CHECK(shapes.size() == 60);
  std::set<std::string> glyphs;
  const std::vector<std::string> precisions = {"f64", "f32", "tf32", "split3", "split6", "bf16", "f16", "i8"};
  for (const std::string& precision : precisions) glyphs.insert(glyph_path(precision));
  CHECK(glyphs.size() == precisions.size());

  json study = samples::cpu_study({"f32"});
  study["measurements"][0]["math"] = "split3";
  study["measurements"][1]["math"] = "tf32";
  study["measurements"][2]["Q"]["dram"]["source"] = "counter";
  study["measurements"][3]["Q"]["dram"]["source"] = "simulated";
  const Studies studies = merge({study});
  CHECK(precisions_of(studies) == std::vector<std::string>{"f32", "tf32", "split3"});
  const std::vector<Marker> markers = lay_out(studies).panels[0].markers;
  CHECK(markers[0].precision == "split3");
  CHECK(markers[2].source == "counter");
  CHECK(markers[3].source == "simulated");
  CHECK(contains(svg(studies), "stroke-dasharray=\"2 1.4\""));
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

TEST_CASE("figure: a row that L2 bounds stands at L2's intensity, too") {
  json study = samples::cpu_study({"f32"});
  json& m = study["measurements"][0];
  const double dram = m["Q"]["dram"]["bytes"];
  m["Q"]["l2"] = {{"source", "counter"}, {"bytes", 8 * dram}, {"analytic", nullptr}};
  m["bound"] = "memory:l2";
  const Panel panel = lay_out(merge({study})).panels[0];
  CHECK(panel.markers[0].bound_x < panel.markers[0].center.x);
  CHECK(panel.markers[1].bound_x == panel.markers[1].center.x);
}

TEST_CASE("csv: one row a measurement, RFC 4180") {
  json study = samples::cpu_study();
  study["measurements"][0]["name"] = "a \"b\", c\nd";
  const std::string text = csv(merge({study}));
  CHECK(text.starts_with("suite,name,op,problem,dtype,layout,"));
  CHECK(count_of(text, "\r\n") == 1 + study["measurements"].size());
  CHECK(contains(text, "study,\"a \"\"b\"\", c\nd\",conv2d,"));
  const std::string header = text.substr(0, text.find("\r\n"));
  const size_t last = text.rfind("\r\n", text.size() - 3);
  CHECK(count_of(text.substr(last), ",") == count_of(header, ","));
}

namespace {

// A study whose first row breaks a rule, under a named roof.
json flagged_study() {
  json study = samples::cpu_study();
  study["measurements"][0]["roof"] = "AVX-512 FMA f32, 2 threads";
  study["measurements"][0]["flags"] = {"W/T = 2e+12 FLOP/s is above the peak", "Q(l2) is less than Q(dram)"};
  return study;
}

}  // namespace

TEST_CASE("a row's limiting roof and its flags are in the table, the CSV, the page and the drawing") {
  const Studies plain = merge({samples::cpu_study()}), studies = merge({flagged_study()});
  const std::string text = table(studies);
  CHECK(contains(text.substr(0, text.find('\n')), "roof"));
  CHECK(contains(text, "AVX-512 FMA f32, 2 threads"));
  CHECK(contains(text, "! 2\n"));
  CHECK(contains(text, "! lenet1 f32 on cpu: W/T = 2e+12 FLOP/s is above the peak\n"));
  CHECK_FALSE(contains(table(plain), "flags"));

  const std::string lines = csv(studies);
  CHECK(contains(lines.substr(0, lines.find("\r\n")), "device_kind,roof,flags"));
  CHECK(contains(lines, "cpu,\"AVX-512 FMA f32, 2 threads\",W/T = 2e+12 FLOP/s is above the peak; Q(l2)"));

  const std::string page = html(studies);
  CHECK(count_of(page, "<tr data-i=\"0\" class=\"flagged\">") == 1);
  CHECK(count_of(page, "class=\"flagged\"") == 1);
  CHECK(contains(page, "<td>AVX-512 FMA f32, 2 threads</td>"));
  CHECK(contains(page, "<td>⚠ W/T = 2e+12"));
  CHECK(contains(page, R"x(["⚠ Flag","Q(l2) is less than Q(dram)"])x") !=
        contains(page, R"x(["\u26a0 Flag","Q(l2) is less than Q(dram)"])x"));
  CHECK_FALSE(contains(html(plain), "class=\"flagged\""));

  const std::string flag = "stroke=\"#c5162e\"";
  CHECK(count_of(svg(studies), flag) == 2);  // the point and the legend
  CHECK(contains(svg(studies), "ringed: flagged"));
  CHECK(count_of(svg(plain), flag) == 0);
  CHECK_FALSE(contains(svg(plain), "flagged"));
}

namespace {

// A study whose rows have limits, a regime, the naive model and a fused pool.
json explained_study() {
  json study = samples::cpu_study();
  for (json& m : study["measurements"]) {
    m["limits"] = {{{"bound", "compute"}, {"roof", "AVX-512 FMA f32"}, {"value", 5e11}, {"percent", 60}},
                   {{"bound", "memory:dram"}, {"roof", "DRAM read"}, {"value", 2e10}, {"percent", 20}}};
    m["roof"] = "AVX-512 FMA f32";
    m["percent_of_roof"] = 60;
    m["regime"] = {{"name", "compute"}, {"evidence", "60 % of it"}, {"advice", {"fewer products", "more cores"}}};
    m["naive"] = {{"model", "convolution"}, {"bytes", 1e9}, {"seconds", 2 * m["T"]["seconds"].get<double>()}};
  }
  study["measurements"][1]["fusion"] = {{"bytes_saved", 4e6}, {"seconds_saved", -2e-3}};
  return study;
}

}  // namespace

TEST_CASE("limits, regimes, the naive model and what fusion saves are in the tables and the CSV") {
  const Studies studies = merge({explained_study()}), plain = merge({samples::cpu_study()});
  CHECK(contains(table(studies), "next limit"));
  CHECK(contains(table(studies), "DRAM read 20 %"));
  CHECK_FALSE(contains(table(plain), "next limit"));
  const std::string regimes = regime_table(studies);
  CHECK(contains(regimes, "compute on cpu: lenet1 f32, "));
  CHECK(contains(regimes, " more\n  - fewer products\n  - more cores\n"));
  CHECK(count_of(naive_table(studies), "2.0x") == 60);
  CHECK(contains(fusion_table(studies), "4.00 MB    -2.00 ms"));
  for (const auto& text : {regime_table(plain), naive_table(plain), fusion_table(plain)}) CHECK(text.empty());
  const std::string lines = csv(studies);
  CHECK(contains(lines, ",memory:dram,DRAM read,20,compute,60 % of it,fewer products; more cores,"));
}

TEST_CASE("energy is in the table, the CSV and the page, with the reason where it is not known") {
  json study = samples::cpu_study();
  json& known = study["measurements"][0];
  known["energy"] = {{"joules", 0.25}, {"by", "rapl"}, {"watts", 80.5},
                     {"seconds", 1.1}, {"calls", 350}, {"updates", 30}};
  study["measurements"][1]["energy"] = {{"joules", nullptr}, {"by", "rapl"}, {"reason", "the counter did not move"}};
  for (json& ceiling : study["ceilings"]) ceiling["per_joule"] = 4e9;
  study["energy"] = {{{"device", "cpu"}, {"device_kind", "cpu"}, {"available", true}, {"idle_watts", 40}}};
  const Studies studies = merge({study}), plain = merge({samples::cpu_study()});
  const std::string gflop_per_joule = number_text(known["W"]["flop"].get<double>() / 0.25e9);
  CHECK(contains(table(studies), "GFLOP/J"));
  CHECK(contains(table(studies), "  " + gflop_per_joule + "  "));
  CHECK_FALSE(contains(table(plain), "GFLOP/J"));
  CHECK(contains(csv(studies), ",0.25,80.5,"));
  CHECK(contains(csv(studies), ",rapl,the counter did not move,"));
  const std::string page = html(studies);
  CHECK(contains(page, ">Flags</th><th scope=\"col\" class=\"n\">GFLOP/J</th>"));  // page.css counts on Flags' place
  CHECK(contains(page, ">" + gflop_per_joule + "</td>"));
  CHECK(contains(page, "– the counter did not move</td>"));
  CHECK(contains(page, "\"perJoule\":4000000000.0"));
  CHECK(contains(page, "\"joules\":0.25"));
  CHECK_FALSE(contains(html(plain), ">GFLOP/J</th>"));
  json wrong = study;
  wrong["measurements"][0]["energy"]["joules"] = -1;
  CHECK_THROWS_AS(merge({wrong}), SchemaError);
}

TEST_CASE("ascii: roofs, points and a legend in lines of one width; a study without ceilings is no roofline") {
  const std::string text = ascii_plot(merge({explained_study()}));
  CHECK(contains(text, "FLOP/byte"));
  CHECK(contains(text, "---"));
  CHECK(contains(text, "/"));
  CHECK(contains(text, "a lenet1 f32 warm cpu: "));
  CHECK(contains(text, "60 % of AVX-512 FMA f32; the next limit is DRAM read (20 %)"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 10 && line[10] == '|') CHECK(line.size() == 100);
  }
  json bare = samples::cpu_study();  // has ceilings, and rows of an older record
  CHECK(contains(ascii_plot(merge({bare})), "these rows do not name their roofs"));
  bare["ceilings"] = json::array();
  CHECK(contains(ascii_plot(merge({bare})), "no roofline"));
  CHECK_FALSE(contains(text, "(!)"));
  json crowded = samples::cpu_study();
  crowded["measurements"][0]["flags"] = {"too fast"};
  crowded["measurements"].push_back(crowded["measurements"][0]);
  crowded["measurements"].back()["device"] = "other";
  const std::string said = ascii_plot(merge({crowded}));
  CHECK(contains(said, "  * several rows in one place\n"));
  CHECK(contains(said, " (!)\n"));
  CHECK(contains(said, "(!) flagged"));
  json empty = samples::cpu_study();
  empty["measurements"] = json::array();
  CHECK(contains(ascii_plot(merge({empty})), "nothing to draw"));
}

TEST_CASE("a device is a GPU by its kind, not by its name") {
  json study = samples::cpu_study();
  for (json& m : study["measurements"]) {
    if (m["device"] == "onednn") m["device"] = "cuda_on_cpu", m["device_kind"] = "cpu";
  }
  const auto kinds = [&] {
    std::vector<DeviceKind> all;
    for (const RoofGroup& group : roof_groups(merge({study}))) all.push_back(group.kind);
    return all;
  };
  CHECK(kinds() == std::vector<DeviceKind>{DeviceKind::cpu});
  for (json& m : study["measurements"]) {
    if (m["device"] == "cpu") m["device"] = "accelerator:0", m["device_kind"] = "gpu", m["threads"] = nullptr;
  }
  CHECK(kinds() == std::vector<DeviceKind>{DeviceKind::cpu, DeviceKind::gpu});
}

TEST_CASE("csv: a spreadsheet runs no text of a study as a formula") {
  json study = samples::cpu_study();
  study["measurements"][0]["name"] = "=cmd|' /C calc'!A0";
  study["measurements"][1]["kernel"] = "@SUM(1,2)";
  const std::string text = csv(merge({study}));
  CHECK(contains(text, "study,'=cmd|' /C calc'!A0,conv2d,"));
  CHECK(contains(text, ",\"'@SUM(1,2)\","));
}

TEST_CASE("csv: numbers read back exactly") {
  const json study = samples::cpu_study();
  const std::string text = csv(merge({study}));
  std::istringstream lines(text);
  std::string line, cell;
  std::getline(lines, line);
  std::getline(lines, line);
  std::istringstream cells(line);
  for (int i = 0; i < 18; ++i) std::getline(cells, cell, ',');
  CHECK(std::stod(cell) == study["measurements"][0]["T"]["seconds"].get<double>());
}

TEST_CASE("figure: no label covers a point, another label or the roof's text") {
  const std::vector<std::vector<json>> all = {
      {samples::cpu_study()},
      {samples::cpu_study({"f32"})},
      {samples::cpu_study(), samples::gpu_study()},
      {samples::cpu_study({"f32", "bf16", "f16"}, {"warm", "cold"})},
  };
  for (const auto& studies : all) {
    for (FigureSize size : {FigureSize::wide, FigureSize::narrow}) {
      const Figure figure = lay_out(merge(studies), size);
      check_that_nothing_collides(figure);
      for (const Panel& panel : figure.panels) {
        CHECK(panel.unlabelled == 0);
        CHECK(panel.labels.size() >= 14);
      }
    }
  }
}

TEST_CASE("figure: few problems are named in words, beside their points") {
  const Figure figure = lay_out(merge({samples::cpu_study({"f32"})}));
  REQUIRE(figure.panels.size() == 1);
  CHECK(figure.panels[0].markers.size() == 30);
  CHECK_FALSE(figure.panels[0].numbered);
  CHECK(figure.key.empty());
  CHECK(figure.panels[0].labels.size() == 15);
}

TEST_CASE("figure: a crowd is numbered, and every number is in the key") {
  const Studies studies = merge({samples::cpu_study({"f32", "bf16", "f16"}, {"warm", "cold"})});
  const Figure figure = lay_out(studies, FigureSize::narrow);
  CHECK(figure.panels[0].markers.size() == 180);
  REQUIRE(figure.panels[0].numbered);
  REQUIRE(figure.key.size() == 15);
  for (const Label& label : figure.panels[0].labels) {
    const auto number = static_cast<size_t>(std::stoi(label.text));
    REQUIRE(number >= 1);
    REQUIRE(number <= figure.key.size());
    for (size_t i : label.measurements) CHECK(studies.measurements[i].label == figure.key[number - 1].text);
  }
}

TEST_CASE("figure: points in one spot do not stop the layout, and nothing collides") {
  json study = samples::cpu_study();
  json crowd = json::array();
  for (int i = 0; i < 400; ++i) {
    json m = study["measurements"][0];
    m["name"] = "copy" + std::to_string(i);
    crowd.push_back(m);
  }
  study["measurements"] = crowd;
  const Figure figure = lay_out(merge({study}));
  check_that_nothing_collides(figure);
  CHECK(figure.panels[0].unlabelled > 0);
  CHECK(contains(figure.note, "too crowded to name"));
}

TEST_CASE("figure: of thousands of points, those that take most time are named, and the key stays short") {
  json study = samples::cpu_study({"f32"});
  const json row = study["measurements"][0];
  study["measurements"] = json::array();
  const double flop = row["W"]["flop"], seconds = row["T"]["seconds"];
  for (int i = 0; i < 2000; ++i) {
    json m = row;
    const double bytes = flop / std::pow(10, i % 40 / 10.0), slower = i == 1500 ? 5 : 1 + i / 50 / 40.0;
    m["name"] = "layer" + std::to_string(i);
    m["Q"] = {{"dram", {{"source", "analytic"}, {"bytes", bytes}, {"analytic", bytes}}}};
    m["T"]["seconds"] = m["T"]["q1"] = m["T"]["q3"] = seconds * slower;
    m["intensity"] = flop / bytes;
    m["gflops"] = flop / seconds / slower / 1e9;
    study["measurements"].push_back(m);
  }
  const Figure figure = lay_out(merge({study}));
  REQUIRE(figure.panels.size() == 1);
  CHECK(figure.panels[0].markers.size() == 2000);
  REQUIRE(figure.key.size() == 240);
  CHECK(std::any_of(figure.key.begin(), figure.key.end(), [](const KeyEntry& e) { return e.text == "layer1500"; }));
  CHECK(figure.panels[0].labels.size() > 20);
  CHECK(figure.panels[0].labels.size() + figure.panels[0].unlabelled == 2000);
}

TEST_CASE("figure: CPU and GPU panels are side by side with the same axes") {
  const Figure figure = lay_out(merge({samples::cpu_study(), samples::gpu_study()}));
  REQUIRE(figure.panels.size() == 2);
  const Panel &cpu = figure.panels[0], &gpu = figure.panels[1];
  CHECK_FALSE(cpu.gpu);
  CHECK(gpu.gpu);
  CHECK(cpu.frame.x1 <= gpu.frame.x0);
  REQUIRE(cpu.x_ticks.size() == gpu.x_ticks.size());
  for (size_t i = 0; i < cpu.x_ticks.size(); ++i) {
    CHECK(cpu.x_ticks[i].text == gpu.x_ticks[i].text);
    CHECK(cpu.x_ticks[i].at - cpu.plot.x0 == doctest::Approx(gpu.x_ticks[i].at - gpu.plot.x0));
  }
  for (size_t i = 0; i < cpu.y_ticks.size(); ++i) CHECK(cpu.y_ticks[i].at == doctest::Approx(gpu.y_ticks[i].at));
}

TEST_CASE("figure: a point lies where its W, Q and T put it") {
  const Studies studies = merge({samples::cpu_study()});
  const Panel panel = lay_out(studies).panels[0];
  auto tick = [](const std::vector<Tick>& ticks, const std::string& text) {
    const auto found = std::find_if(ticks.begin(), ticks.end(), [&](const Tick& t) { return t.text == text; });
    REQUIRE(found != ticks.end());
    return found->at;
  };
  const double x10 = tick(panel.x_ticks, "10"), x100 = tick(panel.x_ticks, "100");
  const double y100 = tick(panel.y_ticks, "100G"), y1000 = tick(panel.y_ticks, "1T");
  for (const Marker& marker : panel.markers) {
    const Measurement& m = studies.measurements[marker.measurement];
    CHECK(marker.center.x == doctest::Approx(x10 + (x100 - x10) * (std::log10(m.intensity()) - 1)));
    CHECK(marker.center.y == doctest::Approx(y100 + (y1000 - y100) * (std::log10(m.flops() / 1e9) - 2)));
    CHECK(marker.y_hi < marker.center.y);
    CHECK(marker.y_lo > marker.center.y);
  }
}

TEST_CASE("figure: no measurement, no ceiling, no FLOP: still a figure") {
  json study = samples::cpu_study();
  json transpose = study["measurements"][0];
  transpose["op"] = "transpose";
  transpose["W"]["flop"] = transpose["W"]["analytic"] = transpose["gflops"] = transpose["intensity"] = 0;
  study["measurements"] = json::array({transpose});
  CHECK(contains(lay_out(merge({study})).note, "1 without FLOP"));
  study["ceilings"] = json::array();
  CHECK(is_well_formed(svg(merge({study}))));
  study["measurements"] = json::array();
  CHECK(is_well_formed(svg(merge({study}))));
}

TEST_CASE("svg: well formed, and its looks are plain attributes; the page's figure follows the scheme") {
  const Studies studies = merge({samples::cpu_study(), samples::gpu_study()});
  const std::string drawing = svg(studies);
  CHECK(is_well_formed(drawing));
  for (const char* needs_css : {"var(", "class=", "<style"}) {
    CHECK_FALSE(contains(drawing, needs_css));
  }
  CHECK(contains(drawing, "<rect fill=\"#ffffff\""));
  CHECK(contains(drawing, "font-weight=\"700\""));
  // The text of a halo follows it without a stroke, for programs that paint strokes over fills.
  CHECK(contains(drawing, " fill=\"#1d232b\" paint-order=\"stroke\" stroke=\"#ffffff\""));
  CHECK(count_of(drawing, "aria-hidden=\"true\"") > 10);
  CHECK(contains(html(studies), ".mark.c-f32{fill:var(--f32);stroke:var(--f32)}"));
  CHECK(contains(html(studies), "@media screen and (prefers-color-scheme:dark)"));
}

TEST_CASE("report: what is written is the same in a program whose locale writes 1,5") {
  const Studies studies = merge({samples::cpu_study()});
  const std::string drawing = svg(studies), page = html(studies), rows = csv(studies);
  const gable::test::CommaLocale locale;
  REQUIRE(gable::test::CommaLocale::works());
  CHECK(svg(studies) == drawing);
  CHECK(html(studies) == page);
  CHECK(csv(studies) == rows);
  CHECK(merge({samples::cpu_study()}).measurements[0].time.seconds == studies.measurements[0].time.seconds);
}

TEST_CASE("svg: librsvg draws it in colours") {
  if (!has_rsvg()) {
    MESSAGE("skipped: rsvg-convert is not installed");
    return;
  }
  Folder folder("colours");
  std::filesystem::create_directories(folder.path());
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  std::ofstream(path("a.svg")) << svg(merge({samples::cpu_study({"f32", "bf16", "f16"}, {"warm", "cold"})}));
  // As an SVG, librsvg writes what it painted, with each colour as rgb(…).
  REQUIRE(std::system(("rsvg-convert -f svg -o '" + path("b.svg") + "' '" + path("a.svg") + "'").c_str()) == 0);
  std::string painted = content(path("b.svg"));
  std::erase(painted, ' ');  // cairo from 1.18 on writes one after each comma
  std::map<std::string, size_t> colours;
  for (size_t at = painted.find("rgb("); at != std::string::npos; at = painted.find("rgb(", at + 1)) {
    ++colours[painted.substr(at, painted.find(')', at) - at)];
  }
  CHECK(colours.size() >= 10);
  // f32's blue, bf16's orange, f16's green.
  for (const char* dtype : {"rgb(0%,40.", "rgb(76.", "rgb(0%,50.1"}) {
    const auto found =
        std::find_if(colours.begin(), colours.end(), [&](const auto& c) { return c.first.starts_with(dtype); });
    CHECK_MESSAGE(found != colours.end(), dtype);
    if (found != colours.end()) CHECK(found->second > 30);
  }
}

TEST_CASE("svg and html: a hostile name is inert") {
  json study = samples::cpu_study();
  for (json& m : study["measurements"]) {
    for (const char* key : {"name", "suite", "problem", "device", "device_name", "kernel"}) m[key] = kHostile;
  }
  study["ceilings"][0]["name"] = study["ceilings"][0]["formula"] = kHostile;
  study["refused"][0]["reason"] = kHostile;
  study["machine"]["cpu"] = study["machine"][kHostile] = kHostile;
  const Studies studies = merge({study});
  CHECK(is_well_formed(svg(studies)));
  const std::string page = html(studies);
  CHECK_FALSE(contains(page, "<img"));
  CHECK(count_of(page, "</script") == 2);  // the data's end and the script's own
  CHECK(count_of(page, "<script") == 2);
  CHECK(contains(page, "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;"));
}

TEST_CASE("html: a program's parts are listed, points or not, and a point's card has its calls") {
  json study = samples::cpu_study();
  const json called{{"calls", 20}, {"seconds", 0.5}, {"share", 0.25}, {"region", "outer<"}};
  study["measurements"][0]["called"] = called;
  study["program"] = {{"command", "./app <b>"}, {"exit_code", 3},        {"signal", nullptr},
                      {"seconds", 2.0},         {"processes", 1},        {"interrupted", false},
                      {"notes", {"a note"}},    {"parts", json::array()}};
  study["program"]["parts"].push_back(
      {{"kind", "region"}, {"name", "hidden"}, {"device", "cpu"}, {"called", called}, {"reason", "no traffic"}});
  const std::string page = html(merge({study}));
  for (const char* text :
       {"[\"Calls\",\"20\"]", "[\"Total time\",\"500 ms\"]", "[\"Share\",\"25.0 %\"]", "[\"Region\",\"outer\\u003c\"]",
        "<h2>Program</h2>", "./app &lt;b&gt;", "exit code 3", "hidden", "no traffic", "a note"}) {
    INFO(text);
    CHECK(contains(page, text));
  }
}

TEST_CASE("html: makes no network requests") {
  const std::string page = html(merge({samples::cpu_study(), samples::gpu_study()}));
  CHECK(contains(page, "default-src 'none'"));
  for (const char* fetch : {"src=", "href=", "url(", "@import", "fetch("}) CHECK_FALSE(contains(page, fetch));
}

TEST_CASE("html: each row is in the page with its numbers; without a script, a figure") {
  const json study = samples::cpu_study();
  const std::string page = html(merge({study}));
  CHECK(count_of(page, "<noscript><svg") == 1);
  CHECK(count_of(page, "<g><title>") == 60);
  CHECK(count_of(page, "<tr data-i=") == 60);
  CHECK(count_of(page, "<th scope=\"row\">") == 60);
  const size_t begin = page.find("id=\"data\">") + 10;
  const json data = json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  REQUIRE(data["points"].size() == 60);
  const std::string card = data["points"][0]["rows"].dump();
  for (const char* row : {"Device", "\"T\"", "quartiles", "50 runs, clock", "\"W\"", "(analytic)", "Q DRAM",
                          "Intensity", "Performance", "Of the roof", "Bound by"}) {
    CHECK_MESSAGE(contains(card, row), row);
  }
}

TEST_CASE("text: escaping replaces what markup forbids") {
  CHECK(escape_markup("a<b>&\"'") == "a&lt;b&gt;&amp;&quot;&#39;");
  CHECK(escape_markup("é✓") == "é✓");
  CHECK(escape_markup("a\x01"
                      "b") ==
        "a\xEF\xBF\xBD"
        "b");
  CHECK(escape_markup("\xC0\xAF") == "\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(escape_markup("\xE2\x82") == "\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(printable("\x1B[31mred") == "\xEF\xBF\xBD[31mred");
}

TEST_CASE("text: numbers have three digits and a unit") {
  CHECK(seconds_text(1.234e-4) == "123 µs");
  CHECK(seconds_text(2.5) == "2.50 s");
  CHECK(seconds_text(9.996e-4) == "1.00 ms");
  CHECK(flops_text(262.4e9) == "262 GFLOP/s");
  CHECK(flops_text(5.2e8) == "0.520 GFLOP/s");
  CHECK(bandwidth_text(2.9e12) == "2.90 TB/s");
  CHECK(bytes_text(49152) == "48.0 KiB");
  CHECK(number_text(12345) == "12300");
  CHECK(number_text(0.01234) == "0.0123");
  CHECK(number_text(9.996) == "10.0");
  CHECK(number_text(9.994) == "9.99");
  CHECK(number_text(1.7976931348623157e308) == "1.80e+308");
  CHECK(number_text(-1.23e200) == "-1.23e+200");
  CHECK(number_text(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(fit_text("abcdefghij", 10, 30).ends_with("…"));
  CHECK(text_width(fit_text("abcdefghij", 10, 30), 10) <= 30);
}

TEST_CASE("table: aligned, and compares with the vendor's library") {
  const Studies studies = merge({samples::cpu_study()});
  std::istringstream lines(table(studies));
  std::string head, line;
  std::getline(lines, head);
  CHECK(head.starts_with("name"));
  const size_t device = head.find("device"), bound = head.find("bound"), against = head.find("against");
  size_t rows = 0, compared = 0;
  while (std::getline(lines, line) && !contains(line, "refused:")) {
    // Columns are in characters; the only wide one here is the µ of a time, right of the device.
    const size_t wide = line.size() - count_code_points(line);
    CHECK((line.substr(device).starts_with("cpu ") || line.substr(device).starts_with("onednn ")));
    CHECK((line.substr(bound + wide).starts_with("compute") || line.substr(bound + wide).starts_with("memory:dram")));
    compared += line.size() > against && contains(line.substr(against), "x onednn");
    ++rows;
  }
  CHECK(rows == 60);
  CHECK(compared == 30);
  CHECK(contains(table(studies), "1 refused:\n  fused256 f16 on onednn: oneDNN 2.6 has no f16"));
}

TEST_CASE("trainium: primitives are compared with the study's figures, other suites are not") {
  json study = samples::cpu_study({"f32"});
  CHECK(trainium_table(merge({study})).empty());
  CHECK_FALSE(contains(html(merge({study})), "Beside the Trainium study"));
  json add = study["measurements"][0];
  add["suite"] = "primitives";
  add["name"] = "vector_add_25600_128x2";
  add["op"] = "add";
  add["tile"] = {128, 2};
  json fused = add;
  fused["name"] = "fused256+pool";
  fused["op"] = "conv2d";
  fused.erase("tile");
  study["measurements"] = {add, fused};
  const Studies studies = merge({study});
  const std::string text = trainium_table(studies);
  CHECK(contains(text, "186 µs"));
  CHECK(contains(text, "3.83 ms, 41 % of peak in f32"));
  CHECK(contains(html(studies), "Beside the Trainium study"));
  CHECK(contains(csv(studies), ",128x2,cpu,,,,,"));
  CHECK_FALSE(studies.measurements[0].can_be_drawn());
  CHECK(studies.measurements[1].can_be_drawn());
  study["measurements"][0]["tile"] = {128};
  CHECK_THROWS_AS(merge({study}), SchemaError);
}

TEST_CASE("bandwidths have their own table: a line for each working set, a column for each movement") {
  json study = samples::cpu_study({"f32"});
  CHECK(bandwidth_table(merge({study})).empty());
  json row = study["measurements"][0];
  row["suite"] = "primitives";
  row["op"] = "read";
  row["working_set_bytes"] = 4096;
  row["T"]["q1"] = row["T"]["seconds"] = row["T"]["q3"] = 1e-6;
  row["W"] = {{"source", "analytic"}, {"flop", 0}, {"analytic", 0}};
  row["Q"] = {{"dram", {{"source", "analytic"}, {"bytes", 4096}, {"analytic", 4096}}}};
  row["intensity"] = row["gflops"] = 0;
  json large = row;
  row["name"] = "bandwidth_read_1t_4KiB";
  large["name"] = "bandwidth_read_16KiB";
  large["working_set_bytes"] = 16384;
  study["measurements"] = {large, row};
  const Studies studies = merge({study});
  const std::string text = bandwidth_table(studies);
  CAPTURE(text);
  const std::size_t small_line = text.find("\n4.00 KiB");
  CHECK(contains(text, "read     read_1t"));
  CHECK(contains(text.substr(small_line), "-   4.10 GB/s"));
  CHECK(small_line < text.find("\n16.0 KiB"));
  CHECK_FALSE(contains(table(studies), "bandwidth_read"));
  CHECK(trainium_table(studies).empty());
  CHECK_FALSE(studies.measurements[0].can_be_drawn());
  study["measurements"][0]["working_set_bytes"] = 0;
  CHECK_THROWS_AS(merge({study}), SchemaError);
}

TEST_CASE("table: a device names its math where it measured several") {
  Studies studies = merge({samples::cpu_study({"f32"})});
  CHECK_FALSE(contains(table(studies), "strict"));
  json study = samples::cpu_study({"f32"});
  json split = study["measurements"];
  std::erase_if(split.get_ref<json::array_t&>(), [](const json& m) { return m["device"] != "cpu"; });
  for (json& m : split) m["math"] = "split3";
  study["measurements"].insert(study["measurements"].end(), split.begin(), split.end());
  const std::string text = table(merge({study}));
  CHECK(contains(text, "cpu strict"));
  CHECK(contains(text, "cpu split3"));
  CHECK_FALSE(contains(text, "onednn strict"));
}

TEST_CASE("table: cases that a device refused for one reason share a line, others keep theirs") {
  Studies studies = merge({samples::cpu_study()});
  studies.refused.push_back(studies.refused.front());
  studies.refused.back().name = "fused128";
  studies.refused.push_back(studies.refused.front());
  studies.refused.back().device = "cpu";
  CHECK(contains(table(studies), "3 refused:\n  fused256, fused128 f16 on onednn: "));
  CHECK(contains(table(studies), "\n  fused256 f16 on cpu: "));
}

TEST_CASE("png: a missing program is named with the package that has it") {
  Folder folder("missing");
  std::filesystem::create_directories(folder.path());
  const std::string drawing = svg(merge({samples::cpu_study()}));
  CHECK_THROWS_WITH_AS(write_png(drawing, folder.path() / "a.png", 2, "no-such-rsvg-convert"),
                       doctest::Contains("install the package librsvg2-bin"), NoRenderer);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("png: a failing program leaves the destination as it was") {
  Folder folder("failing");
  std::filesystem::create_directories(folder.path());
  std::ofstream(folder.path() / "a.png") << "before";
  CHECK_THROWS_WITH_AS(write_png("<svg/>", folder.path() / "a.png", 2, "false"), doctest::Contains("exit code 1"),
                       std::runtime_error);
  CHECK(content(folder.path() / "a.png") == "before");
}

TEST_CASE("report: five files, whole, with ordinary permissions") {
  if (!has_rsvg()) {
    MESSAGE("skipped: rsvg-convert is not installed");
    return;
  }
  struct Case {
    const char* name;
    std::vector<json> studies;
  };
  const std::vector<Case> cases = {{"one", {samples::cpu_study()}},
                                   {"two", {samples::cpu_study(), samples::gpu_study()}},
                                   {"few", {samples::cpu_study({"f32"})}},
                                   {"crowd", {samples::cpu_study({"f32", "bf16", "f16"}, {"warm", "cold"})}}};
  for (const Case& c : cases) {
    Folder folder(std::string("reports/") + c.name);
    write_report(merge(c.studies), folder.path());
    write_report(merge(c.studies), folder.path());  // over an older report
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    CHECK(names == std::vector<std::string>{"index.html", "roofline.pdf", "roofline.png", "roofline.svg", "study.csv"});
    CHECK(content(folder.path() / "roofline.png").starts_with("\x89PNG\r\n"));
    CHECK(content(folder.path() / "roofline.pdf").starts_with("%PDF-"));
    const mode_t mask = umask(0);
    umask(mask);
    struct stat status {};
    REQUIRE(stat((folder.path() / "roofline.png").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == (0666 & ~mask));
  }
}

TEST_CASE("report: a malformed study writes nothing") {
  Folder folder("malformed");
  json study = samples::cpu_study();
  study["measurements"][0]["T"]["runs"] = 0;
  CHECK_THROWS_AS(write_report(merge({study}), folder.path()), SchemaError);
  CHECK_FALSE(std::filesystem::exists(folder.path()));
  CHECK_THROWS_AS(write_report(Studies{}, folder.path()), std::invalid_argument);
}
