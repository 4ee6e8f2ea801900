// Programs that are not gable's: from records of a session to parts, rows and the table; and `gable measure` itself, on
// programs that end well and badly.
#include "bench/program/parts.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/measure/judge.h"
#include "bench/program/findings.h"
#include "bench/program/gpu_counts.h"
#include "bench/program/kernel_findings.h"
#include "bench/program/listening.h"
#include "bench/record/program_json.h"
#include "bench/record/row_json.h"
#include "bench/record/schema.h"
#include "bench/report/figure.h"
#include "bench/report/html.h"
#include "bench/report/program.h"
#include "bench/report/svg.h"
#include "perfcounters/program/launch.h"
#include "perfcounters/program/perf_counts.h"
#include "tests/bench/report_samples.h"
#include "tests/tools/expect.h"
#include "tests/tools/folder.h"

using namespace gable;
using namespace gable::bench;
namespace fs = std::filesystem;
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

/// A second of one busy thread at 3 GHz that computes in L1; ceilings of 50 GFLOP/s (scalar: 10) and 10 GB/s.
ProgramEvidence busy() {
  ProgramEvidence evidence{.run = {.seconds = 1, .cpu_seconds = 1, .system_seconds = 0.01, .page_faults = 1000},
                           .clock_hz = 3e9};
  evidence.work =
      WorkEvidence{.flop = 1e9, .instructions = 2e9, .bytes_accessed = 4e9, .l1_fills = 1e5, .dram_bytes = 1e7};
  evidence.ceilings = {.flops = 50e9, .scalar_flops = 10e9, .dram = 10e9};
  evidence.cpu_seconds_flushed = evidence.cpu_seconds_on_one_cpu = 1;
  return evidence;
}

std::string finding(const std::function<void(ProgramEvidence&)>& change) {
  ProgramEvidence evidence = busy();
  change(evidence);
  const std::vector<Regime> found = findings_of(evidence);
  return found.empty() ? "" : found.front().name;
}

TEST_CASE("bytes by a program's own time, which is sampled, are not said to exceed the measured bandwidth") {
  const auto evidence_of = [](double dram_bytes) {
    ProgramEvidence evidence = busy();
    evidence.work->dram_bytes = dram_bytes, evidence.work->l1_fills = 1e8;
    const std::vector<Regime> found = findings_of(evidence);
    REQUIRE(found.size() == 1);
    return found.front().evidence;
  };
  CHECK(contains(evidence_of(8e9), "% of the measured bandwidth"));
  const std::string beyond = evidence_of(8e12);
  CHECK(contains(beyond, "at the measured bandwidth of"));
  CHECK_FALSE(contains(beyond, "%"));
}

TEST_CASE("what takes a program's time is named from its evidence") {
  CHECK(finding([](auto&) {}) == "latency");
  CHECK(finding([](auto& e) { e.run.cpu_seconds = 0.2, e.run.waits = 80; }) == "waiting");
  CHECK(finding([](auto& e) {
          e.run.cpu_seconds = 0.5, e.run.waits = 8, e.run.preemptions = 90, e.work->instructions = 1e9;
        }) == "latency");
  // A shell that starts, then a loop that computes while a compiler has its CPU for most of the time.
  CHECK(finding([](auto& e) {
          e.run.cpu_seconds = 0.4, e.run.queued_seconds = 0.5, e.run.waits = 100, e.work->instructions = 1e9;
        }) == "latency");
  CHECK(finding([](auto& e) { e.run.cpu_seconds = 0.2, e.run.queued_seconds = 0.1, e.run.waits = 80; }) == "waiting");
  CHECK(finding([](auto& e) { e.work->instructions = 6e9; }) == "instructions");
  // Too short to tell: the system samples at its ticks, of 4 ms and more, what a process does.
  CHECK(finding([](auto& e) { e.run.cpu_seconds = e.run.seconds = 0.003; }).empty());
  CHECK(finding([](auto& e) { e.run.cpu_seconds = e.run.seconds = e.run.system_seconds = 0.04; }).empty());
  CHECK(finding([](auto& e) { e.run.cpu_seconds = 0.2, e.run.waits = 8000; }) == "overhead");
  CHECK(finding([](auto& e) { e.run.system_seconds = 0.6, e.run.page_faults = 1e6; }) == "page faults");
  CHECK(finding([](auto& e) { e.run.system_seconds = 0.6; }) == "overhead");
  CHECK(finding([](auto& e) {  // CUDA's start
          e.run.system_seconds = 0.6, e.run.page_faults = 1e6, e.run.gpu_seconds = 0.01;
        })
            .empty());
  CHECK(finding([](auto& e) {  // the GPU works meanwhile
          e.run.cpu_seconds = 0.2, e.run.waits = 80, e.run.gpu_seconds = 0.8, e.work.reset();
        })
            .empty());
  CHECK(finding([](auto& e) { e.cpu_seconds_flushed = 0.1; }) == "denormals");
  CHECK(finding([](auto& e) { e.cpu_seconds_on_one_cpu = 0.3; }) == "sharing");
  CHECK(finding([](auto& e) { e.work->mispredictions = 1e8; }) == "branches");
  CHECK(finding([](auto& e) { e.work->l1_fills = 5e8; }) == "scattered");
  CHECK(finding([](auto& e) { e.work->dram_bytes = 1e9, e.work->instructions = 1e8; }) == "scattered");
  CHECK(finding([](auto& e) { e.work->dram_bytes = 8e9, e.work->l1_fills = 1e8; }) == "memory:dram");
  CHECK(finding([](auto& e) { e.work->flop = 40e9; }) == "compute");
  CHECK(finding([](auto& e) { e.work->flop = e.work->scalar_flop = 6e9; }) == "scalar");
  CHECK(finding([](auto& e) { e.work->arithmetic = 4e9, e.work->flop = 16e9; }) == "compute");  // without FMA
  CHECK(finding([](auto& e) { e.work.reset(); }).empty());
  CHECK(finding([](auto& e) { e.accesses = perf::SampledAccesses{20, 1000, 300, 100}; }) == "latency");  // too few
  CHECK(finding([](auto& e) {
          e.work->instructions = 4e9, e.accesses = perf::SampledAccesses{20, 1000, 500, 450};
        }) == "unaligned");
  CHECK(finding([](auto& e) {
          e.work->instructions = 6e9, e.accesses = perf::SampledAccesses{20, 1000, 500, 5};
        }) == "instructions");
  // The start of a program like `true`, or one wait of a longer one.
  CHECK(findings_of({.run = {.seconds = 0.004, .cpu_seconds = 0.001, .waits = 1}}).empty());
  const std::vector<Regime> asleep = findings_of({.run = {.seconds = 0.4, .cpu_seconds = 0.001, .waits = 1}});
  REQUIRE(asleep.size() == 1);
  CHECK(contains(asleep[0].evidence, "the program waited once"));
  CHECK(wants_experiments({.run = {.seconds = 1, .cpu_seconds = 0.3, .queued_seconds = 0.6, .waits = 9}}));
  CHECK(wants_accesses(findings_of(busy())));
  CHECK_FALSE(wants_accesses({}));
  CHECK_FALSE(wants_accesses({{"compute", "", {}}, {"latency", "", {}}}));
  ProgramEvidence unmeasured = busy();  // without --ceilings
  unmeasured.work->arithmetic = 4e9, unmeasured.work->flop = 16e9;
  unmeasured.ceilings = {};
  CHECK(findings_of(unmeasured)[0].name == "compute");
  CHECK_FALSE(contains(findings_of(unmeasured)[0].evidence, "peak"));
  CHECK(!wants_experiments({.run = {.seconds = 1, .cpu_seconds = 0.1}}));
}

TEST_CASE("what the kernel does comes first where it takes most of the time, else what the program does") {
  ProgramEvidence evidence = busy();
  evidence.run.system_seconds = 0.4;  // the first touch of 16 MB, slow in a virtual machine
  evidence.run.page_faults = 20000;
  evidence.run.resident_bytes = 20000 * 4096.0;
  evidence.work->l1_fills = 5e8;
  std::vector<Regime> found = findings_of(evidence);
  REQUIRE(found.size() == 2);
  CHECK(found[0].name == "scattered");
  CHECK(found[1].name == "page faults");
  CHECK(contains(found[1].evidence, "the first touch of each page of 78.1 MiB"));
  evidence.run.system_seconds = 0.9;
  found = findings_of(evidence);
  CHECK(found[0].name == "page faults");
  evidence.run.resident_bytes = 1000 * 4096.0;  // the same pages again and again
  CHECK(contains(findings_of(evidence)[0].advice[0], "use the memory again"));
  evidence.run.system_seconds = 0.4;
  evidence.work = busy().work;
  CHECK(findings_of(evidence)[0].name == "latency");  // nothing explains the program's own part
}

/// A kernel of 100 us on a full GPU, half of whose cycles issue; its loads and stores are coalesced, nothing is shared.
KernelEvidence full() {
  return {.seconds = 100e-6,
          .launch_seconds = 3e-6,
          .counts = {{"warp instructions", 1e6},
                     {"thread instructions not predicated off", 31e6},
                     {"multiprocessor cycles with warps", 1.9e7},
                     {"multiprocessor cycles", 2e7},
                     {"scheduler cycles with warps", 8e7},
                     {"issued instructions", 2e7},
                     {"warp cycles", 4e8},
                     {"global load instructions", 1e5},
                     {"l1 global load sectors", 4e5},
                     {"global bytes asked for", 12.8e6},
                     {"l2 read sectors", 4e5}},
          .stalls = {{"selected", 1}, {"long scoreboard", 12}, {"wait", 2}}};
}

TEST_CASE("what takes a kernel's time is named from its counters and roofs") {
  const auto first = [](const std::function<void(KernelEvidence&)>& change) {
    KernelEvidence evidence = full();
    change(evidence);
    const std::vector<Regime> found = kernel_findings(evidence);
    return found.empty() ? "" : found.front().name;
  };
  CHECK(first([](auto&) {}) == "latency");
  CHECK(contains(kernel_findings(full())[0].evidence, "5.0 warps on a scheduler"));
  CHECK(contains(kernel_findings(full())[0].evidence, "'long scoreboard' (80 %)"));
  CHECK(first([](auto& e) { e.seconds = 0.5e-6; }) == "overhead");
  CHECK(first([](auto& e) { e.counts["multiprocessor cycles with warps"] = 2e6; }) == "few blocks");
  CHECK(first([](auto& e) { e.counts["l1 local load sectors"] = 2e5; }) == "local memory");
  CHECK(first([](auto& e) { e.counts["l1 global load sectors"] = 32e5; }) == "uncoalesced");
  CHECK(first([](auto& e) {
          e.counts["multiprocessor cycles"] = 4e7, e.counts["multiprocessor cycles with warps"] = 3e7;
          e.counts["l1 global load sectors"] = 32e5;
        }) == "latency");  // few accesses for so long a time
  CHECK(first([](auto& e) {
          e.counts["l1 global load sectors"] = 16e5, e.counts["global bytes asked for"] = 51.2e6;
        }) == "latency");  // 16 bytes a thread
  CHECK(first([](auto& e) {
          e.counts["shared load instructions"] = 5e5, e.counts["shared load wavefronts"] = 1.6e7;
          e.counts["shared load bank conflicts"] = 1.55e7;
        }) == "bank conflicts");
  CHECK(first([](auto& e) { e.counts["thread instructions not predicated off"] = 1e6; }) == "divergence");
  CHECK(first([](auto& e) { e.counts["l2 reduction sectors"] = 1e6; }) == "atomics");
  CHECK(first([](auto& e) { e.verdict = {.bound = "memory:dram", .percent_of_roof = 90}; }) == "memory:dram");
  CHECK(first([](auto& e) { e.verdict = {.bound = "compute", .percent_of_roof = 90}; }) == "compute");
  CHECK(first([](auto& e) { e.verdict = {.bound = "compute", .percent_of_roof = 20}; }) == "latency");
  CHECK(first([](auto& e) { e.counts["issued instructions"] = 6e7; }) == "issue slots");
  CHECK(first([](auto& e) { e.counts.clear(); }).empty());
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
  program.parts[0].findings = kernel_findings(full());
  program.parts[0].counts = full().counts;
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
  CHECK(read.parts[0].counts == full().counts);
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
  part.counted.reason = "Q(dram) is 0: its data stay in the caches";
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

TEST_CASE("the table has T of parts that are no point, and the rate of those whose data stay in the caches") {
  Study study;
  study.program = ProgramEntry{.command = "./app", .exit_code = 0, .seconds = 0.5};
  MeasuredPart in_caches = kernel("in caches", "", 1);
  in_caches.counted = counted();
  in_caches.counted.flop = {{"f64", 3e9}};
  in_caches.counted.bytes = {{"dram", 0}};
  in_caches.counted.reason = "Q(dram) is 0: its data stay in the caches";
  study.program->parts = {entry_of(in_caches), entry_of(kernel("uncounted", "", 2))};
  const std::string table = report::program_table(study);
  CHECK(contains(table, "250 ms     12.0"));  // 3 GFLOP
  CHECK(contains(table, "500 ms"));
  CHECK(contains(table, "no FLOP/byte for 1 of these lines: Q(dram) is 0"));
  CHECK(contains(table, "no W or Q for 1 of these lines: W and Q were not counted"));
  study.program->findings = {{.name = "latency", .evidence = "0.8 < 1 instructions", .advice = {"several chains"}}};
  json document = samples::gpu_study();
  document["program"] = to_json(*study.program);
  const std::string page = report::html(report::merge({document}));
  CHECK(contains(page, ">12.0<"));
  CHECK(contains(page, "<b>latency</b>: 0.8 &lt; 1 instructions<br><span class=\"soft\">several chains</span>"));
}

struct Folder : test::Folder {
  Folder() : test::Folder("program_test") {}
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

using test::read_text;

struct Result {
  int code = -1;
  std::string out, err;
};

Result gable_command(const Folder& folder, const std::string& arguments, const std::string& variables = "") {
  const std::string line =
      variables + " '" GABLE_COMMAND "' " + arguments + " >'" + folder.file("out") + "' 2>'" + folder.file("err") + "'";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(folder.file("out")), read_text(folder.file("err"))};
}

TEST_CASE("measure: the program's output and exit code are its own; the record is valid however it ended") {
  const Folder folder;
  struct Ending {
    std::string script;
    int code;
  };
  for (const Ending& ending : {Ending{"echo said; exit 0", 0}, Ending{"echo said; exit 7", 7},
                               Ending{"echo said; kill -SEGV $$", 139}, Ending{"echo said; (exit 1) & exit 0", 0}}) {
    INFO(ending.script);
    const std::string file = folder.file("study.json");
    const Result result =
        gable_command(folder, "measure --counters analytic --json '" + file + "' -- sh -c '" + ending.script + "'");
    CHECK(result.code == ending.code);
    CHECK(result.out == "said\n");
    CHECK(contains(result.err, "program"));
    const json document = json::parse(read_text(file));
    CHECK(check_study(document).empty());
    CHECK(document["measurements"].empty());
    REQUIRE(document["program"]["parts"].size() == 1);
    CHECK(document["program"]["parts"][0]["reason"] == "--counters analytic");
    fs::remove(file);
  }
}

TEST_CASE("measure: what can't be started is said as a shell says it, and misuse is exit 2") {
  const Folder folder;
  CHECK(gable_command(folder, "measure -- /nowhere/app").code == 127);
  for (const char* nothing : {"measure --", "roofline --", "measure"}) {  // as of an empty variable of a script
    const Result none = gable_command(folder, nothing);
    CHECK(none.code == 2);
    CHECK(contains(none.err, "no program: write it after two dashes"));
  }
  const Result unheeded = gable_command(folder, "roofline --top 3 --out " + folder.file("report"));
  CHECK(unheeded.code == 2);
  CHECK(contains(unheeded.err, "--top: is of programs"));
  const Result denied = gable_command(folder, "measure -- '" + folder.file("") + "'");
  CHECK(denied.code == 126);
  CHECK_FALSE(denied.err.empty());
  const Result none = gable_command(folder, "measure");
  CHECK(none.code == 2);
  CHECK(contains(none.err, "after two dashes"));
  CHECK(contains(gable_command(folder, "measure --help").out, "Exit code: the program's own"));
  const Result both = gable_command(folder, "measure --json -- true");
  CHECK(both.code == 2);
  CHECK(contains(both.err, "standard output is the program's own"));
  CHECK(gable_command(folder, "roofline --suite study -- true").code == 2);
}

TEST_CASE("measure: a program that a signal ended is not run again, whatever the counters") {
  const Folder folder;
  const std::string file = folder.file("runs");
  const Result result = gable_command(folder, "measure -- sh -c 'echo run >>" + file + "; kill -TERM $$'");
  CHECK(result.code == 143);
  CHECK(contains(result.err, "signal 15 ended the program, and it is not run again"));
  CHECK(read_text(file) == "run\n");
}

TEST_CASE("measure: what can't be written or counted is refused before the program runs") {
  const Folder folder;
  const std::string ran = folder.file("ran");
  const auto refused = [&](const std::string& options, int code, const std::string& says) {
    INFO(options);
    const Result result = gable_command(folder, options + " -- touch '" + ran + "'");
    CHECK(result.code == code);
    CHECK(contains(result.err, says));
    CHECK_FALSE(fs::exists(ran));
  };
  refused("measure --json /proc/study.json", 2, "/proc/study.json");  // root may write there, says access()
  refused("measure --json '" + folder.file("none/study.json") + "'", 2, "does not exist");
  refused("roofline --out /proc/report", 2, "--out '/proc/report'");
  refused("measure --top 0", 2, "'0': must be a whole number from 1 to");
  refused("measure --top many", 2, "'many': must be a whole number from 1 to");
  for (const std::string option : {"--threads 2", "--seconds 2", "--suite study", "--cache warm", "--energy"})
    refused("roofline " + option, 2, option.substr(0, option.find(' ')) + ": is of gable's own operations");
  const perf::ProgramCounts counter;
  if (counter.runs() == 0 && !perf::has_nvidia_driver()) refused("measure --counters counter", 3, "--counters auto");
}

TEST_CASE("measure: a TMPDIR that does not exist is named, and none of gable's folders is left in another") {
  const Folder folder;
  const std::string before = environment("TMPDIR");
  const std::string none = folder.file("none");
  ::setenv("TMPDIR", none.c_str(), 1);
  const Result result = gable_command(folder, "measure --counters analytic -- true");
  CHECK(result.code != 0);
  CHECK(contains(result.err, none));
  CHECK(contains(result.err, "TMPDIR"));
  fs::create_directory(none);
  CHECK(gable_command(folder, "measure --counters analytic -- true").code == 0);
  CHECK(fs::is_empty(none));
  if (before.empty()) {
    ::unsetenv("TMPDIR");
  } else {
    ::setenv("TMPDIR", before.c_str(), 1);
  }
}

TEST_CASE("measure: where the program can't run again, what the first run gave is kept, with the reason") {
  const Folder folder;
  const std::string file = folder.file("study.json"), temporary = folder.file("tmp");
  fs::create_directory(temporary);
  for (const std::string counters : {"auto", "analytic"}) {
    INFO(counters);
    const Result result = gable_command(
        folder, "measure --counters " + counters + " --json '" + file + "' -- sh -c 'rm -r $TMPDIR/gable*; exit 3'",
        "TMPDIR='" + temporary + "'");
    CHECK(result.code == 3);
    const json document = json::parse(read_text(file));
    CHECK(check_study(document).empty());
    CHECK(document["program"]["seconds"] > 0);
    CHECK(document["program"]["parts"].size() == 1);
    fs::remove(file);
  }
}

TEST_CASE("measure: the CPU time of a program without regions is its processes', and its own words stay its own") {
  const Folder folder;
  const std::string file = folder.file("study.json");
  const Result result = gable_command(
      folder, "measure --counters analytic --json '" + file +
                  "' -- sh -c '(i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done); echo $0 $*' --json x --help --");
  CHECK(result.code == 0);
  CHECK(result.out == "--json x --help --\n");
  const json document = json::parse(read_text(file));
  CHECK(document["program"]["cpu_seconds"] > 0.001);
}

TEST_CASE("measure: a program's processes are those with regions, and those that started them") {
  const Folder folder;
  const std::string file = folder.file("study.json");
  gable_command(folder,
                "measure --counters analytic --json '" + file + "' -- sh -c '" GABLE_TRIAD "; " GABLE_TRIAD "; true'");
  CHECK(json::parse(read_text(file))["program"]["processes"] == 3);
}

TEST_CASE("measure: a program of a million empty regions is told what they cost, one of a few is not") {
  const Folder folder;
  const Result many = gable_command(folder, "measure --counters analytic -- '" GABLE_REGIONS_APP "' million");
  CHECK(contains(many.err, "note: 1000000 calls of regions at "));
  CHECK(contains(many.err, "! regions_app: T is too long"));
  CHECK(contains(many.err, "! tiny: T is too long"));
  const Result few = gable_command(folder, "measure --counters analytic -- '" GABLE_REGIONS_APP "' nested");
  CHECK_FALSE(contains(few.err, "note: "));
  CHECK_FALSE(contains(few.err, "! outer: "));
}

TEST_CASE("measure: experiments that --counters analytic rules out are said to be left out") {
  const Folder folder;
  const Result without = gable_command(folder, "measure --experiments --counters analytic -- true");
  CHECK(without.code == 0);
  CHECK(contains(without.err, "note: --experiments did nothing"));
  CHECK_FALSE(contains(gable_command(folder, "measure --counters analytic -- true").err, "--experiments"));
}

TEST_CASE("measure: beyond --top, regions are said; Ctrl-C in the simulated run keeps the first one's times") {
  const Folder folder;
  const std::string file = folder.file("study.json");
  const Result result =
      gable_command(folder, "measure --counters analytic --top 1 --json '" + file + "' -- '" GABLE_TRIAD "'");
  CHECK(contains(result.err, "1 more region with less time: --top 2 shows it too"));
  // The program's second run, which the environment tells from the first, interrupts the process that measures.
  const Result interrupted = gable_command(
      folder,
      "measure --counter-seconds 5 --json '" + file +
          "' -- sh -c 'echo said; [ $GABLE_SESSION_MODE = time ] || { kill -INT $PPID; while :; do :; done; }'");
  CHECK(interrupted.code == 0);
  CHECK(interrupted.out == "said\n");
  const json document = json::parse(read_text(file));
  CHECK(check_study(document).empty());
  CHECK(document["program"]["parts"].size() == 1);
}

TEST_CASE(
    "measure: kernels of which the run under the clock has the first ones alone are timed in a run of their own") {
  const Folder folder;
  const std::string file = folder.file("study.json"), program = folder.file("program");
  // Writes what the library in a CUDA program would.
  test::write_text(program, R"(#!/bin/sh
echo $GABLE_SESSION_MODE >> "$1"
case $GABLE_SESSION_MODE in time) calls=10; stopped="stopped
";; *) calls=4000; stopped=;; esac
printf 'gable kernels 1 %s\nkernel\t0\tGPU\tstep\t\t8,1,1\t64,1,1\tcalls=%s\tseconds=0.004\tmedian=1e-06\tq1=1e-06\tq3=1e-06\tfastest=1e-06\tslowest=1e-06\n%send\tdone\n' \
  $$ $calls "$stopped" > "$GABLE_SESSION_FOLDER/kernels.$$.0.txt"
[ "$2" != crash ] || kill -SEGV $$
)");
  const auto runs = [&](const std::string& last) {
    const std::string log = folder.file("runs");
    fs::remove(log);
    gable_command(folder,
                  "measure --counters analytic --json '" + file + "' -- sh '" + program + "' '" + log + "' " + last);
    return read_text(log);
  };
  CHECK(runs("") == "time\nkernels\n");
  json document = json::parse(read_text(file));
  CHECK(check_study(document).empty());
  REQUIRE(document["program"]["parts"].size() == 2);
  CHECK(document["program"]["parts"][1]["called"]["calls"] == 4000);
  CHECK(document["program"]["notes"].empty());
  // A program that crashed is not run again.
  CHECK(runs("crash") == "time\n");
  document = json::parse(read_text(file));
  REQUIRE(document["program"]["parts"].size() == 2);
  CHECK(document["program"]["parts"][1]["called"]["calls"] == 10);
  CHECK(contains(document["program"]["notes"].dump(), "those of the first launches"));
}

TEST_CASE("measure: a run that counts GPU kernels and does not end is ended, and what it had counted is kept") {
  const Folder folder;
  const std::string file = folder.file("study.json"), program = folder.file("program");
  test::write_text(program, R"(#!/bin/sh
times='seconds=0.004	median=1e-06	q1=1e-06	q3=1e-06	fastest=1e-06	slowest=1e-06'
case $GABLE_SESSION_MODE in counters) times='counted=4	m:dram__bytes_read.sum=4000	m:dram__bytes_write.sum=400';; esac
printf "gable kernels 1 %s
kernel	0	GPU	step		8,1,1	64,1,1	calls=4	$times
end	done
" $$   > "$GABLE_SESSION_FOLDER/kernels.$$.0.txt"
[ $GABLE_SESSION_MODE != counters ] || sleep 60
)");
  const Result result =
      gable_command(folder, "measure --counter-seconds 0.5 --json '" + file + "' -- sh '" + program + "'");
  CHECK(result.code == 0);
  CHECK(contains(result.err, "took longer than --counter-seconds 0.5"));
  const json document = json::parse(read_text(file));
  CHECK(check_study(document).empty());
  REQUIRE(document["program"]["parts"].size() == 2);
  CHECK(contains(document["program"]["parts"][1]["reason"].dump(), "W: "));  // not Q
}

TEST_CASE("measure: an exit code that the simulated run has as well is not said of it") {
  const Folder folder;
  const Result result = gable_command(folder, "measure -- sh -c 'exit 3'");
  CHECK(result.code == 3);
  CHECK(contains(result.err, "exit code 3"));
  CHECK_FALSE(contains(result.err, "under valgrind"));
}

TEST_CASE("measure: the exit code is the program's own also where nobody reads what gable says") {
  for (const char* nobody : {"2>&-", "2>/dev/full"}) {
    INFO(nobody);
    const int status = std::system(
        ("'" GABLE_COMMAND "' measure --counters analytic -- sh -c 'exit 7' " + std::string(nobody)).c_str());
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
  }
}

TEST_CASE(
    "measure: a file on standard input is read again by the run that counts; of a pipe it is said that it is not") {
  const Folder folder;
  std::ofstream(folder.file("input")) << "5\n";
  const std::string command = "measure -- sh -c 'read number; exit $number'";
  const Result file = gable_command(folder, command + " <'" + folder.file("input") + "'");
  CHECK(file.code == 5);
  CHECK_FALSE(contains(file.err, "under valgrind"));
  CHECK_FALSE(contains(file.err, "standard input"));
  const Result pipe = gable_command(folder, command, "echo 5 |");
  CHECK(pipe.code == 5);
  if (contains(pipe.err, "under valgrind")) CHECK(contains(pipe.err, "its standard input is a pipe"));
  const Result unheeded = gable_command(folder, "measure -- sh -c 'exit 3'", "echo 5 |");
  CHECK(unheeded.code == 3);
  if (contains(unheeded.err, "simulating")) CHECK(contains(unheeded.err, "note: if the program reads its input"));
}

TEST_CASE("measure: if a parent ignores the end of its children, exit codes are kept, and the program ignores it too") {
  const Folder folder;
  const std::string ignoring = "env --ignore-signal=CHLD", timed = "measure --counters analytic -- ";
  CHECK(gable_command(folder, timed + "sh -c 'exit 7'", ignoring).code == 7);
  CHECK(gable_command(folder, timed + "sh -c 'kill -SEGV $$'", ignoring).code == 139);
  const auto ignored = [&](const std::string& variables) {
    return gable_command(folder, timed + "grep SigIgn /proc/self/status", variables).out;
  };
  CHECK(ignored(ignoring) != ignored(""));
}

TEST_CASE("measure: a simulated run that ends otherwise than the first one gives no W and Q") {
  const Folder folder;
  const std::string file = folder.file("study.json"), runs = folder.file("runs");
  const Result result = gable_command(
      folder, "measure --json '" + file + "' -- sh -c 'echo run >> " + runs + "; exit $(wc -l < " + runs + ")'");
  CHECK(result.code == 1);
  const json document = json::parse(read_text(file));
  CHECK(check_study(document).empty());
  CHECK(document["measurements"].empty());
  if (read_text(runs) != "run\n") CHECK(contains(result.err, "instead of 1, so it did something else there"));
}

TEST_CASE("measure: regions are as many as ran, and a simulated W is the known one") {
  const Folder folder;
  const std::string file = folder.file("study.json");
  const Result result =
      gable_command(folder, "measure --counters simulated --json '" + file + "' -- '" GABLE_TRIAD "'");
  if (result.code == 3) {  // no valgrind, or a build with sanitizers
    CHECK(contains(result.err, "--counters simulated: no such source works here"));
    CHECK_FALSE(std::filesystem::exists(file));
    MESSAGE("skipped: a program's simulated W: ", result.err);
    return;
  }
  CHECK(result.code == 0);
  const json document = json::parse(read_text(file));
  CHECK(check_study(document).empty());
  const json& parts = document["program"]["parts"];
  REQUIRE(parts.size() == 3);
  CHECK(parts[0]["kind"] == "program");
  for (const json& part : parts) {
    if (part["name"] == "triad") CHECK(part["called"]["calls"] == 5);
    if (part["name"] == "outer") CHECK(part["called"]["calls"] == 1);
  }
  if (document["measurements"].empty()) {
    MESSAGE("skipped: no simulation here: ", std::string(parts[0]["reason"]));
    return;
  }
  for (const json& row : document["measurements"]) {
    CHECK_FALSE(row["Q"]["l1"]["bytes"].is_null());
    if (row["name"] == "outer/triad") {
      CHECK(row["W"]["flop"] == doctest::Approx(2.0 * 65536).epsilon(0.01));
      // Two loads and a store of 8 bytes; without optimisation there are those of `pass` and `i` as well.
      CHECK(row["Q"]["l1"]["bytes"].get<double>() > 0.99 * 24 * 65536);
    }
    if (row["name"] == "outer") CHECK(row["W"]["flop"] == doctest::Approx(5 * 2.0 * 65536).epsilon(0.01));
  }
}

}  // namespace
