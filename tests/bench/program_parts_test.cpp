// Programs that are not gable's: from records of a session to parts, rows, the record, the table and the page.
#include "bench/program/parts.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measure/judge.h"
#include "bench/program/cpu_counts.h"
#include "bench/program/gpu_counts.h"
#include "bench/program/listening.h"
#include "bench/record/program_json.h"
#include "bench/record/row_json.h"
#include "bench/record/schema.h"
#include "bench/report/figure.h"
#include "bench/report/html.h"
#include "bench/report/program.h"
#include "bench/report/svg.h"
#include "tests/bench/report_samples.h"
#include "tests/tools/expect.h"

using namespace gable;
using namespace gable::bench;
using nlohmann::json;

namespace {

MeasuredPart kernel(const std::string& name, const std::string& shape, double seconds) {
  MeasuredPart part{.kind = "kernel", .name = name, .kernel = "void " + name + "(int)", .shape = shape, .gpu = 0};
  part.called = {.calls = 4, .seconds = seconds, .share = 0.5};
  part.times = {.calls = 4, .seconds = seconds, .median = seconds / 4, .q1 = seconds / 5, .q3 = seconds / 3};
  return part;
}

CountedWork counted() {
  return {.flop = {{"f32", 100}, {"f64", 900}}, .bytes = {{"dram", 500}, {"l2", 0}}, .source = "simulated", .by = "x"};
}

TEST_CASE("a counted part is a row with the calls' W and Q, whose type is that of most of its arithmetic") {
  MeasuredPart part = kernel("k", "grid 8 block 256", 0.4);
  part.counted = counted();
  const Row row = row_of(part, "app");
  CHECK(row.identity.suite == "app");
  CHECK(row.identity.op == "kernel");
  CHECK(row.identity.dtype == "f64");
  CHECK(row.place.device == "cuda:0");
  CHECK(row.place.kernel == "void k(int)");
  CHECK(row.work.value == 1000);
  CHECK(row.work.source == "simulated");
  CHECK(row.place.arithmetic.flop.at("f32") == 100);
  CHECK(row.traffic.at("dram").value == 500);
  CHECK(row.traffic.count("l2") == 0);  // a level without traffic has no roof to stand under
  CHECK(row.time.seconds == doctest::Approx(0.1));
  CHECK(row.time.source == "event");
  CHECK(row.intensity() == doctest::Approx(2));
  const Row read = row_from_json(to_json(row));
  REQUIRE(read.called.has_value());
  CHECK(read.called->calls == 4);
  CHECK(read.called->share == doctest::Approx(0.5));
}

TEST_CASE("x87's arithmetic is f64's, and a part without arithmetic is f32") {
  CHECK(main_dtype({{"x87", 10}, {"f32", 3}}) == "f64");
  CHECK(main_dtype({{"f64", 0}}) == "f64");  // of a region without FLOP in a program of f64
  CHECK(main_dtype({}) == "f32");
}

TEST_CASE("a part without W or Q is in the list with its reason, and no row") {
  MeasuredPart part = kernel("k", "", 1);
  CHECK_FALSE(part.counted.is_point());
  CHECK(entry_of(part).reason == "W and Q were not counted");
  part.counted.flop["f32"] = 5;
  part.counted.reason = "Q(dram): no counter";
  CHECK_FALSE(part.counted.is_point());
  CHECK(entry_of(part).reason == "Q(dram): no counter");
  part.counted = counted();
  CHECK(part.counted.is_point());
  CHECK(entry_of(part).reason.empty());
}

TEST_CASE("kernels of one name are told apart by shape, then region, then number") {
  std::vector<MeasuredPart> parts{kernel("k", "grid 1", 1), kernel("k", "grid 2", 1), kernel("k", "grid 2", 1),
                                  kernel("k", "grid 2", 1), kernel("other", "grid 1", 1)};
  parts[2].called.region = "solve";
  parts[3].called.region = "solve";
  make_names_unique(parts);
  CHECK(parts[0].name == "k grid 1");
  CHECK(parts[1].name == "k grid 2");
  CHECK(parts[2].name == "k grid 2 in solve #1");
  CHECK(parts[3].name == "k grid 2 in solve #2");
  CHECK(parts[4].name == "other");
}

TEST_CASE("rows of kernels say that T is of launches in CUDA graphs, or a mean") {
  perf::KernelPoint point;
  CHECK(flags_of_time(point, std::nullopt).empty());
  point.instrumented = true;
  CHECK(flags_of_time(point, perf::GraphSlowdown{.mean = 1.04, .most = 1.1}).at(0).find("divided by 1.040") !=
        std::string::npos);
  CHECK(flags_of_time(point, perf::GraphSlowdown{.mean = 1.004, .most = 1.1}).empty());
  CHECK(flags_of_time(point, std::nullopt).at(0).find("which make it longer") != std::string::npos);
  point.mean = true;
  CHECK(flags_of_time(point, std::nullopt).size() == 2);

  MeasuredPart some = kernel("some", "grid 1 block 32", 1), other = kernel("other", "grid 1 block 32", 1);
  some.counted = other.counted = {.flop = {{"f32", 1e9}}, .bytes = {{"dram", 1e6}}, .source = "counter"};
  other.flags = {"T is a mean"};
  std::vector<Row> rows{row_of(some, "app"), row_of(other, "app")};
  rows[1].verdict.flags = {"more than its roof"};
  flag_rows({some, other}, rows);
  CHECK(rows[0].verdict.flags.empty());
  CHECK(rows[1].verdict.flags == std::vector<std::string>{"more than its roof", "T is a mean"});
}

MeasuredPart part_of(const char* kind, const char* name, double seconds) {
  MeasuredPart part{.kind = kind, .name = name};
  part.called = {.seconds = seconds, .origin = part.kind == "region" ? "gable" : ""};
  return part;
}

perf::RegionRecord region(const char* path, std::int64_t calls, double seconds) {
  perf::RegionRecord record{.path = path, .origin = "gable"};
  record.times.calls = calls;
  record.times.seconds = seconds;
  return record;
}

TEST_CASE("where listening to regions takes more than 2 % of T, that is noted and flagged") {
  const perf::RegionCost cost{.pair = 80e-9, .inside = 20e-9};
  const std::vector<perf::RegionRecord> regions{region("outer", 10, 2.5), region("outer/short", 30000000, 0.7),
                                                region("outer/long", 1000, 0.1), region("outer2", 10, 0.1)};
  std::vector<MeasuredPart> parts{part_of("program", "app", 2.6), part_of("region", "outer", 2.5),
                                  part_of("region", "outer/short", 0.7), part_of("region", "outer/long", 0.1),
                                  part_of("region", "outer2", 0.1)};
  const std::string note = flag_listening(parts, regions, cost, 2.6);
  CHECK(contains(note, "30001020 calls of regions at 80.0 ns each"));
  CHECK(contains(note, "took about 2.40 s"));
  REQUIRE(parts[0].flags.size() == 1);
  CHECK(contains(parts[0].flags[0], "about 92 % of it"));
  CHECK(contains(parts[1].flags.at(0), "about 96 % of it"));  // all of the calls inside it
  CHECK(contains(parts[2].flags.at(0), "about 86 % of it"));  // 20 ns of each of its own
  CHECK(parts[3].flags.empty());
  CHECK(parts[4].flags.empty());
  for (MeasuredPart& part : parts) part.flags.clear();
  CHECK_FALSE(flag_listening(parts, regions, cost, 50).empty());
  CHECK(flag_listening(parts, regions, cost, 200).empty());  // 100 threads did that at once
  parts[0].flags.clear();
  CHECK(flag_listening(parts, {region("outer", 640000, 2.5)}, cost, 2.6).empty());
  CHECK_FALSE(flag_listening(parts, {region("outer", 660000, 2.5)}, cost, 2.6).empty());

  Study study;  // the flags of a part that is no point are in the record and below the table
  study.program = ProgramEntry{.command = "app", .exit_code = 0, .seconds = 2.6};
  study.program->parts = {entry_of(parts[0])};
  const ProgramEntry read = program_from_json(to_json(*study.program));
  REQUIRE(read.parts.size() == 1);
  CHECK(read.parts[0].flags == parts[0].flags);
  CHECK(contains(report::program_table(study), "! app: T is too long"));
}

TEST_CASE("the parts with the most time stay, the other kernels are summed up") {
  std::vector<MeasuredPart> parts{kernel("a", "", 1), kernel("b", "", 4), kernel("c", "", 2), kernel("d", "", 3)};
  const std::vector<MeasuredPart> kept = with_most_time(parts, 2);
  REQUIRE(kept.size() == 3);
  CHECK(kept[0].name == "b");
  CHECK(kept[1].name == "d");
  CHECK(kept[2].kind == "rest");
  CHECK(kept[2].name == "2 other kernels");
  CHECK(kept[2].called.calls == 8);
  CHECK(kept[2].called.seconds == doctest::Approx(3));
  CHECK(*kept[2].called.share == doctest::Approx(1.0));
}

TEST_CASE("a program's CPU region, with the work that it says, and its GPU kernel have a panel each") {
  MeasuredPart region{.kind = "region", .name = "stencil"};
  region.called = {.calls = 20, .seconds = 0.2, .share = 0.2};
  region.times = {.calls = 20, .seconds = 0.2, .median = 0.01, .q1 = 0.009, .q3 = 0.011};
  region.counted = {.flop = {{"f64", 1.3e8}}, .bytes = {{"dram", 4e8}}};
  MeasuredPart step = kernel("step", "", 2e-3);
  step.counted = region.counted;
  step.times = {.calls = 20, .seconds = 2e-3, .median = 1e-4, .q1 = 9e-5, .q3 = 1.1e-4};
  step.counted.source = "counter";
  json study = samples::gpu_study();
  study["measurements"] = {to_json(row_of(region, "mixed")), to_json(row_of(step, "mixed"))};
  const json cpu = samples::cpu_study();
  for (const auto& ceiling : cpu["ceilings"]) study["ceilings"].push_back(ceiling);
  const report::Figure figure = report::lay_out(report::merge({study}));
  REQUIRE(figure.panels.size() == 2);
  for (const report::Panel& panel : figure.panels) {
    REQUIRE(panel.labels.size() == 1);
    CHECK(panel.labels[0].text == (panel.gpu ? "step" : "stencil"));
  }
}

TEST_CASE("the record's program survives writing and reading") {
  ProgramEntry program{.command = "./app 3", .exit_code = 3, .seconds = 1.5, .cpu_seconds = 2.5, .processes = 2};
  program.parts.push_back(entry_of(kernel("k", "", 1)));
  program.parts[0].findings = {{.name = "latency", .evidence = "5.0 warps on a scheduler", .advice = {"more warps"}}};
  program.parts[0].counts = {{"warp instructions", 1e6}, {"warp cycles", 4e8}};
  program.notes = {"a note"};
  const ProgramEntry read = program_from_json(to_json(program));
  CHECK(read.exit_code == 3);
  CHECK_FALSE(read.signal.has_value());
  CHECK(read.cpu_seconds == doctest::Approx(2.5));
  REQUIRE(read.parts.size() == 1);
  CHECK(read.parts[0].called.calls == 4);
  CHECK(read.notes == program.notes);
  REQUIRE(read.parts[0].findings.size() == 1);
  CHECK(read.parts[0].findings[0].evidence == program.parts[0].findings[0].evidence);
  CHECK(read.parts[0].counts == program.parts[0].counts);
  REQUIRE(read.parts[0].time.has_value());
  CHECK(read.parts[0].time->seconds == doctest::Approx(0.25));
  CHECK_FALSE(read.parts[0].work.has_value());
}

TEST_CASE("a part's T and W are checked as those of a measurement") {
  MeasuredPart part = kernel("k", "", 1);
  part.counted = counted();
  Study study;
  study.program = ProgramEntry{.command = "./app", .exit_code = 0, .seconds = 1};
  study.program->parts = {entry_of(part)};
  json document = samples::gpu_study();
  document["program"] = to_json(*study.program);
  CHECK(check_study(document).empty());
  CHECK(document["program"]["parts"][0]["W"] == json{{"source", "simulated"}, {"flop", 1000.0}});
  document["program"]["parts"][0]["W"]["flop"] = -1;
  document["program"]["parts"][0]["T"]["q1"] = 5;
  CHECK(check_study(document).size() == 2);
}

TEST_CASE("the table has the end of the program, each part and each reason once") {
  Study study;
  study.program = ProgramEntry{.command = "./app \x1b[31m", .signal = 11, .seconds = 0.5};
  MeasuredPart with = kernel("with", "", 1);
  with.counted = counted();
  study.program->parts = {entry_of(with), entry_of(kernel("without", "", 1)), entry_of(kernel("nor", "", 1))};
  study.rows.push_back(row_of(with, "app"));
  const std::string table = report::program_table(study);
  CHECK(contains(table, "signal 11"));
  CHECK_FALSE(contains(table, "\x1b"));
  CHECK(contains(table, "no W or Q for 2 of these lines: W and Q were not counted"));
  CHECK(contains(table, "FLOP/byte"));
  CHECK(report::program_table(Study{}).empty());
}

TEST_CASE("a long command line does not fill the terminal") {
  Study study;
  study.program = ProgramEntry{.command = "./app " + std::string(100000, 'x'), .seconds = 1};
  const std::string text = report::program_table(study);
  CHECK(contains(text, "./app xxx"));
  CHECK(contains(text, "…: 1.00 s"));
  CHECK(text.size() < 1000);
}

TEST_CASE(
    "a region whose data stay in the caches stands at the level that it has Q of, in the table, record and page") {
  MeasuredPart part = kernel("in caches", "", 1);
  part.kind = "region";
  part.gpu.reset();
  part.counted = counted();
  part.counted.flop = {{"f64", 3e9}};
  part.counted.bytes = {{"dram", 0}, {"l1", 6e9}};
  part.counted.reason = "its data stay in the caches, without traffic to memory";
  REQUIRE(part.counted.is_point());
  std::vector<Row> rows{row_of(part, "app")};
  CHECK(rows[0].traffic.count("dram") == 0);
  CHECK(std::string(rows[0].level()) == "l1");
  CHECK(rows[0].intensity() == doctest::Approx(0.5));
  CHECK(rows[0].bandwidth() == doctest::Approx(24e9));

  MachineCeilings ceilings;
  const auto ceiling = [](const char* name, const char* level, const char* dtype, double value) {
    perf::Ceiling one{.name = name, .kind = *dtype ? "compute" : "bandwidth", .isa_or_level = level, .dtype = dtype};
    one.limit.value = value;
    return one;
  };
  ceilings.cpu = {ceiling("avx2 fma f64", "avx2 fma", "f64", 50e9), ceiling("L1 read", "l1", "", 60e9),
                  ceiling("DRAM read", "dram", "", 10e9)};
  judge_rows(rows, ceilings, perf::describe_machine());
  CHECK(rows[0].verdict.bound == "memory:l1");
  CHECK(rows[0].verdict.percent_of_roof.value_or(0) == doctest::Approx(40.0));

  Study study;
  study.program = ProgramEntry{.command = "./app", .exit_code = 0, .seconds = 0.5};
  study.program->parts = {entry_of(part)};
  study.rows = rows;
  const std::string table = report::program_table(study);
  CHECK(contains(table, "0.500 (L1)  40.0 memory:l1"));
  CHECK_FALSE(contains(table, "no FLOP/byte"));

  const Row read = row_from_json(to_json(rows[0]));
  CHECK(std::string(read.level()) == "l1");
  CHECK(read.intensity() == doctest::Approx(0.5));
  json document = samples::gpu_study();
  document["measurements"].push_back(to_json(rows[0]));
  const report::Studies merged = report::merge({document});
  CHECK(merged.measurements.back().label == "in caches (L1)");
  CHECK(contains(report::html(merged), "in caches (L1)"));
  CHECK(contains(report::svg(merged), "in caches (L1)"));
  document["measurements"].back().erase("called");  // any other row needs the traffic to memory
  CHECK_THROWS(report::merge({document}));
}

TEST_CASE("a few lines that a region meets in memory are no traffic of its data") {
  const auto dram = [](double bytes, double accessed) {
    CountedWork work;
    work.bytes["dram"] = bytes;
    add_accesses(work, accessed);
    CHECK(work.bytes.at("l1") == accessed);
    return work.bytes.at("dram");
  };
  CHECK(dram(64, 3e8) == 0);
  CHECK(dram(64, 6400) == 64);     // of a short call
  CHECK(dram(5000, 3e8) == 5000);  // a blocked product reads its data once
  CHECK(dram(4e6, 4e9) == 4e6);
}

TEST_CASE("the table has T of parts that are no point, and the rate of those whose data stay in the caches") {
  Study study;
  study.program = ProgramEntry{.command = "./app", .exit_code = 0, .seconds = 0.5};
  MeasuredPart in_caches = kernel("in caches", "", 1);
  in_caches.counted = counted();
  in_caches.counted.flop = {{"f64", 3e9}};
  in_caches.counted.bytes = {{"dram", 0}};
  in_caches.counted.reason = "its data stay in the caches, without traffic to memory";
  study.program->parts = {entry_of(in_caches), entry_of(kernel("uncounted", "", 2))};
  const std::string table = report::program_table(study);
  CHECK(contains(table, "250 ms     12.0"));  // 3 GFLOP
  CHECK(contains(table, "500 ms"));
  CHECK(contains(table, "no FLOP/byte for 1 of these lines: its data stay in the caches"));
  CHECK(contains(table, "no W or Q for 1 of these lines: W and Q were not counted"));
  study.program->findings = {{.name = "latency", .evidence = "0.8 < 1 instructions", .advice = {"several chains"}}};
  json document = samples::gpu_study();
  document["program"] = to_json(*study.program);
  const std::string page = report::html(report::merge({document}));
  CHECK(contains(page, ">12.0<"));
  CHECK(contains(page, "<b>latency</b>: 0.8 &lt; 1 instructions<br><span class=\"soft\">several chains</span>"));
}

}  // namespace
