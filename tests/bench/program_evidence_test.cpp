// What takes a program's or a kernel's time, by the evidence of its measured runs.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/program/findings.h"
#include "bench/program/kernel_findings.h"
#include "tests/tools/expect.h"

using namespace gable;
using namespace gable::bench;

namespace {

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

TEST_CASE("without the memory's measured bandwidth, traffic is not said to explain nothing") {
  const auto evidence_of = [](double dram_bytes, double bandwidth) {
    ProgramEvidence evidence = busy();
    evidence.work->dram_bytes = dram_bytes, evidence.ceilings.dram = bandwidth;
    const std::vector<Regime> found = findings_of(evidence);
    REQUIRE(found.size() == 1);
    CHECK(found.front().name == "latency");
    return found.front().evidence;
  };
  CHECK(contains(evidence_of(3e9, 0), "instructions wait for memory, or for each other's results; 3"));
  CHECK(contains(evidence_of(1e7, 0), "neither memory, branches"));
  CHECK(contains(evidence_of(3e9, 10e9), "neither memory, branches"));
}

TEST_CASE("advice of wider vectors says what a simulation can run") {
  ProgramEvidence evidence = busy();
  evidence.work->instructions = 6e9;
  const std::vector<Regime> found = findings_of(evidence);
  REQUIRE(found.size() == 1);
  CHECK(contains(found[0].advice.at(0), "-march=haswell while W and Q are simulated"));
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

}  // namespace
