// libgable_cupti.so with the installed CUPTI. Its host half knows every chip without a GPU. If there is a GPU, known
// kernels are counted on it.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "perfcounters/sources/calibration.h"
#include "perfcounters/sources/cupti_source.h"
#include "perfcounters/sources/gpu_metrics.h"
#include "perfcounters/sources/gpu_profiler.h"

using namespace gable::perf;

namespace {

/// Null, with a message, where libcupti can't be opened.
GpuProfiler* profiler_here() {
  try {
    gpu_profiler().library();
    return &gpu_profiler();
  } catch (const GpuProfilerError& error) {
    REQUIRE(error.code() == kNoCupti);
    MESSAGE("left out: ", std::string(error.what()));
    return nullptr;
  }
}

bool has_gpu(GpuProfiler& profiler) {
  try {
    profiler.try_counting(0);
    return true;
  } catch (const GpuProfilerError& error) {
    MESSAGE("no GPU to count on: ", std::string(error.what()));
    return false;
  }
}

std::vector<std::string> names_of(std::span<const GpuTerm> terms) {
  std::vector<std::string> names;
  append_metrics(terms, names);
  return names;
}

std::set<std::string> parts_of(std::span<const GpuTerm> terms, const std::vector<std::string>& metrics) {
  std::set<std::string> parts;
  for (const GpuTerm& term : terms) {
    if (std::find(metrics.begin(), metrics.end(), term.metric) != metrics.end()) parts.insert(term.part);
  }
  return parts;
}

}  // namespace

TEST_CASE("sm_80, sm_90 and sm_100 have a metric for every part of W that they support, in a few passes") {
  GpuProfiler* profiler = profiler_here();
  if (profiler == nullptr) return;
  const std::set<std::string> all{"f32", "f64", "f16", "tensor bf16", "tensor f16", "tensor tf32", "tensor f64"};
  for (const char* chip : {"GA100", "GH100", "GB100"}) {
    CAPTURE(chip);
    const auto metrics = profiler->available(chip, names_of(gpu_work_terms()));
    const auto parts = parts_of(gpu_work_terms(), metrics);
    CHECK(std::includes(parts.begin(), parts.end(), all.begin(), all.end()));
    CHECK(parts.contains("tensor f8") == (std::string(chip) != "GA100"));
    CHECK(profiler->passes(chip, metrics) >= 2);  // instrumented code has a pass of its own
    CHECK(profiler->passes(chip, metrics) <= 8);
  }
}

TEST_CASE("traffic of every level takes at most three passes; Hopper's L1 has TMA and wgmma beside loads and stores") {
  GpuProfiler* profiler = profiler_here();
  if (profiler == nullptr) return;
  for (const char* chip : {"GA100", "GH100", "GB100"}) {
    CAPTURE(chip);
    for (const Metric level : {Metric::dram_bytes, Metric::l2_bytes}) {
      const auto names = names_of(gpu_traffic_terms(level));
      CHECK(profiler->available(chip, names) == names);
      CHECK(profiler->passes(chip, names) == 1);
    }
    const auto l1 = profiler->available(chip, names_of(gpu_traffic_terms(Metric::l1_bytes)));
    const bool hopper = std::string(chip) == "GH100";
    CHECK(parts_of(gpu_traffic_terms(Metric::l1_bytes), l1).contains("l1 TMA loads") == (std::string(chip) != "GA100"));
    CHECK(parts_of(gpu_traffic_terms(Metric::l1_bytes), l1).contains("shared wgmma operands") == hopper);
    CHECK(profiler->passes(chip, l1) <= 3);
  }
}

TEST_CASE("every chip has the instruction roofline and the stall reasons") {
  GpuProfiler* profiler = profiler_here();
  if (profiler == nullptr) return;
  for (const char* chip : {"GA100", "GH100", "GB100"}) {
    CAPTURE(chip);
    const auto instructions = names_of(gpu_instruction_terms());
    CHECK(profiler->available(chip, instructions) == instructions);
    CHECK(profiler->passes(chip, instructions) <= 8);
    // With --counters they are counted beside W and Q, in few passes more.
    auto all = names_of(gpu_work_terms());
    all.emplace_back(kInstrumentedInstructions);
    for (const Metric level : {Metric::dram_bytes, Metric::l2_bytes, Metric::l1_bytes})
      append_metrics(gpu_traffic_terms(level), all);
    const int without = profiler->passes(chip, profiler->available(chip, all));
    append_metrics(gpu_instruction_terms(), all);
    const int with = profiler->passes(chip, profiler->available(chip, all));
    MESSAGE(std::string(chip), ": ", without, " passes, with the instruction roofline ", with);
    CHECK(with <= without + 4);
    const auto stalls = profiler->available(chip, names_of(gpu_stall_terms()));
    CHECK(stalls.size() >= 17);
    CHECK(profiler->passes(chip, stalls) <= 8);
  }
}

TEST_CASE("an unknown chip, an unknown metric and an empty request are refused by name") {
  GpuProfiler* profiler = profiler_here();
  if (profiler == nullptr) return;
  CHECK_THROWS_WITH_AS(profiler->passes("XY100", {"dram__bytes_read.sum"}), doctest::Contains("XY100"),
                       GpuProfilerError);
  CHECK_THROWS_WITH_AS(profiler->passes("GH100", {"dram__bytes_read.sum", "no__such_metric.sum"}),
                       doctest::Contains("no__such_metric"), GpuProfilerError);
  CHECK_THROWS_AS(profiler->passes("GH100", {}), GpuProfilerError);
  CHECK(profiler->available("GH100", {"no__such_metric.sum"}).empty());
}

TEST_CASE("on a GPU the source passes its own calibration, for W and for each level of Q") {
  GpuProfiler* profiler = profiler_here();
  if (profiler == nullptr || !has_gpu(*profiler)) return;
  CuptiSource source;
  const std::vector<Metric> metrics{Metric::flop, Metric::l1_bytes, Metric::l2_bytes, Metric::dram_bytes};
  const Calibration calibration = calibrate(source, metrics);
  CHECK(calibration.checks.size() >= 5);
  for (const Metric metric : metrics) CHECK(calibration.refusal(metric) == "");
}

TEST_CASE("on a GPU counting and tracing exclude each other, and a trace has each kernel once") {
  GpuProfiler* profiler = profiler_here();
  if (profiler == nullptr || !has_gpu(*profiler)) return;
  const std::vector<KnownWork> known = profiler->known_work(0);
  const auto& run = known.at(1).workload.run;
  run();
  const CountRequest request{.metrics = {kHardwareInstructions, kInstrumentedInstructions}, .run = run, .before = {}};
  const Counted before = profiler->count(0, request);
  profiler->start_trace();
  CHECK_THROWS_AS(profiler->count(0, request), GpuProfilerError);
  CHECK_THROWS_AS(profiler->start_trace(), GpuProfilerError);
  run();
  const std::vector<Activity> activities = profiler->stop_trace();
  CHECK_THROWS_AS(profiler->stop_trace(), GpuProfilerError);
  CHECK(std::count_if(activities.begin(), activities.end(),
                      [](const Activity& a) { return a.kind == Activity::Kind::kernel; }) == 1);
  const Counted after = profiler->count(0, request);
  CHECK(after.ranges == before.ranges);
  CHECK(after.ranges.at(0).at(0) == after.ranges.at(0).at(1));
}

TEST_CASE("on a GPU inputs are restored before every counted run, and each kernel can be counted apart") {
  GpuProfiler* profiler = profiler_here();
  if (profiler == nullptr || !has_gpu(*profiler)) return;
  const std::vector<KnownWork> known = profiler->known_work(0);
  int runs = 0, restored = 0;
  const auto twice = [&] {
    CHECK(restored == runs + 1);
    ++runs;
    known.at(1).workload.run();
    known.at(1).workload.run();
  };
  const std::vector<std::string> metrics{kHardwareInstructions, "dram__bytes_read.sum", kInstrumentedInstructions};
  CountRequest request{.metrics = metrics, .run = twice, .before = [&] { ++restored; }, .repetitions = 3};
  const Counted whole = profiler->count(0, request);
  CHECK(whole.ranges.size() == 3);
  CHECK(whole.passes == profiler->passes(profiler->chip(0), metrics));
  CHECK(runs == 3 * whole.passes);
  request.each_kernel = true;
  const Counted each = profiler->count(0, request);
  REQUIRE(each.ranges.size() == 2);
  CHECK(each.ranges[0][0] + each.ranges[1][0] == whole.ranges[0][0]);
}
