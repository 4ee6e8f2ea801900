// The figure: its roofs and points are where the study has them, and its texts can be read.
#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/common/text.h"
#include "bench/report/figure.h"
#include "bench/report/html.h"
#include "bench/report/png.h"
#include "bench/report/roofs.h"
#include "bench/report/shapes.h"
#include "bench/report/svg.h"
#include "tests/bench/report_samples.h"
#include "tests/bench/report_tools.h"

using namespace gable::bench;
using namespace gable::bench::report;
using nlohmann::json;
using namespace samples;

namespace {

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

TEST_CASE("roofs: rows that ran on one of their device's threads stand under the roofs of one") {
  json study = samples::cpu_study();
  study["measurements"][0]["used_threads"] = 1;
  const Studies studies = merge({study});
  const std::vector<RoofGroup> groups = roof_groups(studies);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].measurements.size() == 59);
  CHECK(groups[1].measurements == std::vector<size_t>{0});
  for (const RoofGroup& group : groups) {
    for (const Ceiling& c : group.roofs) CHECK(c.threads == group.threads);
  }
  CHECK(title_of(groups[0], groups, studies).ends_with(" · 2 threads"));
  CHECK(title_of(groups[1], groups, studies).ends_with(" · 1 of 2 threads"));
  CHECK(contains(html(studies), "warm cache, 1 of 2 threads"));
  // Beside rows of a device of one thread they are rows of one thread.
  study["measurements"][1]["threads"] = 1;
  const Studies both = merge({study});
  const std::vector<RoofGroup> mixed = roof_groups(both);
  REQUIRE(mixed.size() == 2);
  CHECK(mixed[0].measurements == std::vector<size_t>{0, 1});
  CHECK(title_of(mixed[0], mixed, both).ends_with(" · 1 thread"));
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
