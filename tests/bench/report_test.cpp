// The report of a study: tables, CSV, page and files.
#include <doctest/doctest.h>
#include <gable/error.h>
#include <sys/stat.h>

#include <filesystem>

#include "bench/common/text.h"
#include "bench/record/schema.h"
#include "bench/report/ascii.h"
#include "bench/report/bandwidth.h"
#include "bench/report/csv.h"
#include "bench/report/html.h"
#include "bench/report/insight.h"
#include "bench/report/png.h"
#include "bench/report/report.h"
#include "bench/report/roofs.h"
#include "bench/report/svg.h"
#include "bench/report/table.h"
#include "bench/report/totals.h"
#include "bench/report/trainium.h"
#include "tests/bench/report_samples.h"
#include "tests/bench/report_tools.h"
#include "tests/tools/comma_locale.h"

using namespace gable::bench;
using namespace gable::bench::report;
using nlohmann::json;
using namespace samples;

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

TEST_CASE("ascii: rows that ran on one of their device's threads are drawn apart from the others") {
  json study = explained_study();
  study["measurements"].push_back(study["measurements"][0]);
  study["measurements"].back()["used_threads"] = 1;
  const std::string text = ascii_plot(merge({study}));
  CHECK(contains(text, ", 2 threads\n"));
  CHECK(contains(text, ", 1 thread\n"));
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

TEST_CASE("csv: the threads that a short row used, and how often a layer occurs, end its line") {
  json study = samples::cpu_study();
  study["measurements"][0]["used_threads"] = 1;
  study["measurements"][0]["count"] = 6;
  const std::string text = csv(merge({study}));
  CHECK(contains(text.substr(0, text.find("\r\n")), ",used_threads,count"));
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  CHECK(line.ends_with(",1,6\r"));
  std::getline(lines, line);
  CHECK(line.ends_with(",,\r"));
}

TEST_CASE("a table of rows without ceilings has no columns of dashes") {
  json study = samples::cpu_study();
  CHECK(contains(table(merge({study})), "% roof"));
  for (json& row : study["measurements"]) row["percent_of_roof"] = row["bound"] = nullptr;
  const std::string text = table(merge({study}));
  const std::string head = text.substr(0, text.find('\n'));
  CHECK_FALSE(contains(head, "% roof"));
  CHECK_FALSE(contains(head, "bound"));
  CHECK(contains(head, "FLOP/byte"));
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

TEST_CASE("table: a device that auto chose is told from the same device by its name") {
  json study = samples::cpu_study({"f32"});
  json chosen = study["measurements"][0];
  chosen["asked"] = "auto?threads=2";
  const std::string device = chosen["device"];
  const json named = study["measurements"];
  study["measurements"] = json::array({chosen});
  CHECK_FALSE(contains(table(merge({study})), "(auto)"));
  study["measurements"] = named;
  study["measurements"].push_back(chosen);
  for (json& m : study["measurements"]) m["count"] = 1;
  const Studies studies = merge({study});
  CHECK(contains(table(studies), device + " (auto)"));
  const std::string totals = totals_table(studies);
  CHECK(contains(totals, "auto?threads=2 "));
  CHECK_FALSE(contains(totals, "(auto)"));
}

TEST_CASE("html: totals of networks keep their lines") {
  json study = samples::cpu_study();
  for (json& m : study["measurements"]) m["count"] = 2;
  const std::string page = html(merge({study}));
  CHECK(contains(page, "\nnetwork  "));
  CHECK_FALSE(contains(page, "\xEF\xBF\xBD"));
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
  CHECK(printable("a\u202Eb\u2066c") == "a\uFFFDb\uFFFDc");  // turned around
  CHECK(escape_markup("a\u202Eb") == "a\uFFFDb");
  CHECK(cell_text(std::string_view("a\0b\u202E", 6)) == "a\uFFFDb\uFFFD");
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

TEST_CASE("table: rows of fewer than five samples have their number, in a column that others do not need") {
  Studies studies = merge({samples::cpu_study({"f32"})});
  REQUIRE(studies.measurements.size() >= 2);
  CHECK_FALSE(contains(table(studies), "samples"));
  studies.measurements[0].time.runs = 5;
  CHECK_FALSE(contains(table(studies), "samples"));
  studies.measurements[0].time.runs = 4;
  const std::string text = table(studies);
  CHECK(contains(text, "samples\n"));  // the last one
  const std::size_t first = text.find('\n') + 1, second = text.find('\n', first) + 1;
  CHECK(text[second - 2] == '4');
  CHECK(text[text.find('\n', second) - 1] != '4');
}

TEST_CASE("table: cases that a device refused for one reason share a line, others keep theirs") {
  Studies studies = merge({samples::cpu_study()});
  studies.refused.push_back(studies.refused.front());
  studies.refused.back().name = "fused128";
  studies.refused.push_back(studies.refused.front());
  studies.refused.back().device = "cpu";
  CHECK(contains(table(studies), "3 refused:\n  fused256, fused128 f16 on onednn: "));
  studies.refused.push_back({});
  studies.refused.back().name = "line 7";
  studies.refused.back().reason = "no problem";
  CHECK(contains(table(studies), "\n  line 7: no problem\n"));
  studies.refused.back().suite = "toy";
  CHECK(contains(table(studies), "\n  toy, line 7: no problem\n"));
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
