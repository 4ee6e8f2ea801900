// GPU kernels of a program that is not gable's: the files that its processes write, and W and Q from their counts.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "perfcounters/program/kernel_counts.h"
#include "perfcounters/program/kernel_file.h"
#include "perfcounters/program/kernels.h"
#include "perfcounters/sources/gpu_metrics.h"
#include "tests/tools/folder.h"

using namespace gable::perf;

namespace {

KernelRecord kernel(const std::string& name, const std::string& region = "") {
  KernelRecord record;
  record.pid = 7;
  record.gpu_name = "NVIDIA H200";
  record.name = name;
  record.region = region;
  record.grid = {128, 2, 1};
  record.block = {256, 1, 1};
  return record;
}

KernelRecord timed(const std::string& name, const std::string& region = "") {
  KernelRecord record = kernel(name, region);
  record.times = {
      .calls = 10, .seconds = 2e-3, .median = 2e-4, .q1 = 1.9e-4, .q3 = 2.1e-4, .fastest = 1.8e-4, .slowest = 2.4e-4};
  return record;
}

KernelRecord counted(const std::string& name, std::int64_t calls, std::map<std::string, double> metrics,
                     const std::string& region = "") {
  KernelRecord record = kernel(name, region);
  record.counted_calls = calls;
  record.metrics = std::move(metrics);
  return record;
}

constexpr const char* kFfma = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum";
constexpr const char* kHfma = "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum";
constexpr const char* kTensor = "sm__ops_path_tensor_src_bf16_dst_fp32.sum";
constexpr const char* kRead = "dram__bytes_read.sum";
constexpr const char* kWrite = "dram__bytes_write.sum";

bool has(const std::vector<std::string>& notes, const std::string& part) {
  return std::any_of(notes.begin(), notes.end(), [&](const std::string& n) { return n.find(part) != n.npos; });
}

const KernelPoint& only(const KernelPoints& points) {
  REQUIRE(points.kernels.size() == 1);
  return points.kernels.front();
}

Quantity work_of(const KernelPoints& points) { return only(points).quantities.at(Metric::flop); }

KernelRecord with(KernelRecord record, std::uint64_t arguments, std::int64_t calls = 0, double median = 0) {
  record.arguments = arguments;
  if (calls > 0) {
    record.times = {.calls = calls,
                    .seconds = static_cast<double>(calls) * median,
                    .median = median,
                    .q1 = median,
                    .q3 = median,
                    .fastest = median,
                    .slowest = median};
  }
  return record;
}

/// `each`: FLOP, bytes in L2 and instructions of one call.
KernelRecord counted_with(std::uint64_t arguments, std::int64_t calls, double each) {
  const double sum = static_cast<double>(calls) * each;
  KernelRecord record = counted("k", calls,
                                {{kFfma, sum / 2},
                                 {"lts__t_sectors_srcunit_tex.sum", sum},
                                 {kHardwareInstructions, sum},
                                 {kInstrumentedInstructions, sum},
                                 {kRead, sum}});
  record.arguments = arguments;
  return record;
}

}  // namespace

TEST_CASE(
    "kernels come back from their file as they were written, with tabs and line ends in their names made harmless") {
  KernelFile file{.pid = 7, .done = true};
  file.kernels = {timed("void k<float, (int)4>(float*)", "step/solve"),
                  counted("a\tb\nc\\d=e", 3, {{kRead, 1.5e9}, {kFfma, 12}})};
  file.kernels.back().reason = "a reason = with a\ttab";
  file.failures = {{35, "cuptiRangeProfilerEnable: INSUFFICIENT"}};
  file.notes = {"one", "two\nlines"};
  const KernelFile back = parse_kernel_file(to_text(file), "kernels.7.0.txt");
  CHECK(back.done);
  CHECK(back.complete);
  CHECK_FALSE(back.stopped);
  REQUIRE(back.kernels.size() == 2);
  CHECK(back.kernels[0].name == file.kernels[0].name);
  CHECK(back.kernels[0].region == "step/solve");
  CHECK(back.kernels[0].grid == file.kernels[0].grid);
  CHECK(back.kernels[0].block == file.kernels[0].block);
  CHECK(back.kernels[0].times.calls == 10);
  CHECK(back.kernels[0].times.median == 2e-4);
  CHECK(back.kernels[0].times.slowest == 2.4e-4);
  CHECK(back.kernels[1].name == "a?b?c\\d=e");
  CHECK(back.kernels[1].counted_calls == 3);
  CHECK(back.kernels[1].metrics == file.kernels[1].metrics);
  CHECK(back.kernels[1].reason == "a reason = with a?tab");
  REQUIRE(back.failures.size() == 1);
  CHECK(back.failures[0].code == 35);
  CHECK(back.notes == std::vector<std::string>{"one", "two?lines"});
}

TEST_CASE("a file that is cut off anywhere gives the kernels before the cut, and says so") {
  KernelFile file{.pid = 7, .done = true};
  for (int i = 0; i < 4; ++i) file.kernels.push_back(timed("kernel " + std::to_string(i)));
  const std::string text = to_text(file);
  for (std::size_t length = 0; length < text.size(); ++length) {
    const KernelFile back = parse_kernel_file(text.substr(0, length), "f");
    CHECK_FALSE(back.complete);
    CHECK_FALSE(back.notes.empty());
    CHECK(back.kernels.size() <= 4);
    for (const KernelRecord& record : back.kernels) CHECK(record.times.slowest == 2.4e-4);
  }
}

TEST_CASE("text that is no list of kernels, or a spoilt one, never throws and never gives an impossible number") {
  CHECK(has(parse_kernel_file("", "f").notes, "f: is no list of kernels"));
  CHECK(has(parse_kernel_file("gable kernels 2 7\n", "f").notes, "no list of kernels of version 1"));
  CHECK(has(parse_kernel_file("gable kernels 1 -7\n", "f").notes, "no list"));
  const std::string head = "gable kernels 1 7\n", place = "kernel\t0\tGPU\tname\t\t1,1,1\t1,1,1";
  for (const char* bad : {"\tseconds=nan", "\tseconds=-1", "\tseconds=1e999", "\tcalls=99999999999999999999",
                          "\tm:x=inf", "\tm:x=", "\tno value", "\tq1=0x10"}) {
    CAPTURE(bad);
    const KernelFile back = parse_kernel_file(head + place + bad + "\nend\tdone\n", "f");
    CHECK(back.kernels.empty());
    CHECK(has(back.notes, "1 lines can't be read"));
  }
  CHECK(parse_kernel_file(head + "kernel\t0\tGPU\tname\t\t1,1\t1,1,1\nend\tdone\n", "f").kernels.empty());
  CHECK(parse_kernel_file(head + place + "\tlater=thing\nend\tdone\n", "f").kernels.size() == 1);

  KernelFile file{.pid = 7};
  file.kernels = {timed("one"), counted("two", 1, {{kRead, 5}})};
  const std::string good = to_text(file);
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (int j = 0; j < 3; ++j) text[random() % text.size()] = static_cast<char>(random());
    for (const KernelRecord& record : parse_kernel_file(text, "f").kernels) {
      CHECK(std::isfinite(record.times.seconds));
      CHECK(record.times.calls >= 0);
      for (const char c : record.name) CHECK(static_cast<unsigned char>(c) >= 0x20);
    }
  }
}

TEST_CASE(
    "a session's folder gives the kernels of all processes, what ended badly, and each failure once with its cure") {
  const gable::test::Folder folder("kernels");
  KernelFile first{.pid = 7, .done = true}, second{.pid = 8};
  first.kernels = {timed("one")};
  first.failures = second.failures = {{35, "cuptiRangeProfilerEnable"}};
  second.kernels = {timed("two")};
  gable::test::write_text(folder.file("kernels.7.0.txt"), to_text(first));
  gable::test::write_text(folder.file("kernels.8.0.txt"), to_text(second));
  gable::test::write_text(folder.file("kernels.8.0.part"), "half a file");
  gable::test::write_text(folder.file("regions.8"), "not mine");
  std::filesystem::create_directory(folder.file("kernels.9.0.txt"));
  const SessionRecords all = read_kernels(folder.path().string());
  CHECK(all.kernels.size() == 2);
  CHECK(all.kernels[1].pid == 8);
  CHECK_FALSE(all.lacks_kernels);
  CHECK(all.processes.size() == 2);
  CHECK(has(all.notes, "process 8 did not end by itself"));
  CHECK(std::count_if(all.notes.begin(), all.notes.end(), [](const std::string& n) {
          return n.find("only administrators") != n.npos && n.find("NVreg_RestrictProfilingToAdminUsers") != n.npos;
        }) == 1);
  CHECK(has(all.notes, "kernels.9.0.txt"));
  CHECK(read_kernels(folder.file("none")).kernels.empty());
  second.stopped = true;
  gable::test::write_text(folder.file("kernels.8.0.txt"), to_text(second));
  CHECK(read_kernels(folder.path().string()).lacks_kernels);
}

TEST_CASE("W and Q are per call, by the metrics' weights; the type is that of most of the work") {
  const KernelPoints points = combine_kernels({timed("k")}, {counted("k", 4,
                                                                     {{kFfma, 4e6},
                                                                      {kTensor, 4e9},
                                                                      {kRead, 4e8},
                                                                      {kWrite, 4e7},
                                                                      {kHardwareInstructions, 40},
                                                                      {kInstrumentedInstructions, 40},
                                                                      {"l1tex__t_bytes.sum", 8},
                                                                      {"lts__t_sectors_srcunit_tex.sum", 4}})});
  const KernelPoint& point = only(points);
  CHECK(point.quantities.at(Metric::flop).value.value() == doctest::Approx(1e9 + 2e6));
  CHECK(point.quantities.at(Metric::dram_bytes).value.value() == doctest::Approx(1.1e8));
  CHECK(point.quantities.at(Metric::l2_bytes).value.value() == 32);
  CHECK(point.quantities.at(Metric::l1_bytes).value.value() == 2);
  CHECK(point.work_type == "tensor bf16");
  CHECK(point.counted_calls == 4);
  CHECK(point.times.calls == 10);
  CHECK(point.parts.at("f32") == 2e6);
  CHECK(point.parts.at("dram read") == 1e8);
  CHECK(point.parts.at("warp instructions") == 10);
}

TEST_CASE("constants that are loaded by half-precision instructions are neither work nor its type") {
  const KernelPoints points = combine_kernels({timed("k")}, {counted("k", 1, {{kFfma, 100}, {kHfma, 20}})});
  CHECK(work_of(points).value.value() == 200);
  CHECK(only(points).work_type == "f32");
  CHECK(only(combine_kernels({timed("k")}, {counted("k", 1, {{kFfma, 10}, {kHfma, 20}})})).work_type == "f16");
}

TEST_CASE("sessions that counted different metrics, and processes, are put together") {
  KernelRecord other = timed("k");
  other.pid = 8;
  other.gpu = 1;
  KernelRecord elsewhere = counted("k", 1, {{kRead, 300}});
  elsewhere.gpu = 1;
  const KernelPoints points = combine_kernels(
      {timed("k"), other}, {counted("k", 2, {{kFfma, 20}}), counted("k", 3, {{kRead, 300}}), elsewhere});
  CHECK(only(points).times.calls == 20);
  CHECK(only(points).times.median == doctest::Approx(2e-4).epsilon(1e-6));
  CHECK(work_of(points).value.value() == 20);
  CHECK(only(points).quantities.at(Metric::dram_bytes).value.value() == 150);
  CHECK_FALSE(only(points).quantities.at(Metric::l2_bytes).value.has_value());
}

TEST_CASE("T is that of kernels one after the other where that is shorter; calls in graphs stay among the calls") {
  KernelRecord alone = timed("k");
  alone.times = {
      .calls = 6, .seconds = 6e-4, .median = 1e-4, .q1 = 0.9e-4, .q3 = 1.1e-4, .fastest = 0.8e-4, .slowest = 2e-4};
  KernelRecord slower = timed("other");
  slower.times.median *= 1.2;
  const KernelPoints points =
      combine_kernels({timed("k"), timed("other"), timed("only in a graph")}, {}, {alone, slower});
  REQUIRE(points.kernels.size() == 3);
  for (const KernelPoint& point : points.kernels) {
    CAPTURE(point.name);
    CHECK(point.times.calls == 10);
    CHECK(point.times.median == doctest::Approx(point.name == "k" ? 1e-4 : 2e-4));
    CHECK(point.times.q3 == doctest::Approx(point.name == "k" ? 1.1e-4 : 2.1e-4));
    CHECK(point.times.seconds == doctest::Approx(point.name == "k" ? 1e-3 : 2e-3));  // 10 calls at their new median
  }
}

TEST_CASE("launches with other arguments that do other work are points of their own, each with its T, W and Q") {
  const std::vector<KernelRecord> times{with(timed("k"), 11, 100, 1e-3), with(timed("k"), 22, 100, 3e-3),
                                        with(timed("k"), 33, 300, 1.1e-3)};
  // Each was counted another number of times; 33 does the work of 11.
  const KernelPoints points =
      combine_kernels(times, {counted_with(11, 20, 1e6), counted_with(22, 2, 4e6), counted_with(33, 4, 1e6)},
                      {with(timed("k"), 11, 10, 0.9e-3), with(timed("k"), 22, 10, 2.9e-3)});
  REQUIRE(points.kernels.size() == 2);
  const KernelPoint &small = points.kernels[0], &large = points.kernels[1];
  CHECK(small.work == 1);
  CHECK(large.work == 2);
  CHECK(small.quantities.at(Metric::flop).value.value() == doctest::Approx(1e6));
  CHECK(large.quantities.at(Metric::flop).value.value() == doctest::Approx(4e6));
  CHECK(large.quantities.at(Metric::dram_bytes).value.value() == doctest::Approx(4e6));
  CHECK(small.times.calls == 400);
  CHECK(large.times.calls == 100);
  CHECK(large.times.median == doctest::Approx(2.9e-3));  // that of the same arguments alone
  CHECK(small.times.seconds == doctest::Approx(100 * 0.9e-3 + 300 * 1.1e-3));
  CHECK_FALSE(small.mean);
  // The same arguments alone: one point, which needs no number.
  CHECK(only(combine_kernels({times[0], times[2]}, {counted_with(11, 20, 1e6), counted_with(33, 4, 1e6)})).work == 0);
}

TEST_CASE(
    "means over launches with different arguments weigh each by how often it ran, not by how often it was counted") {
  // Alike within the tolerance, so that they are one point.
  const KernelPoints points = combine_kernels({with(timed("k"), 11, 300, 1e-3), with(timed("k"), 22, 100, 1e-3)},
                                              {counted_with(11, 1, 1000), counted_with(22, 20, 1008)});
  CHECK(work_of(points).value.value() == doctest::Approx(1002));
}

TEST_CASE("launches whose different work can't be told apart are one point of means, which says so") {
  // The run that counted saw other arguments (addresses that look like numbers), of different work.
  const std::vector<KernelRecord> different{counted_with(55, 1, 1e6), counted_with(66, 1, 3e6)};
  KernelRecord both = with(timed("k"), 11, 3, 1e-3);
  both.times.seconds = 9e-3;
  const KernelPoint point = only(combine_kernels({both}, different));
  CHECK(point.mean);
  CHECK(point.work == 0);
  CHECK(point.quantities.at(Metric::flop).value.value() == doctest::Approx(2e6));
  CHECK(point.times.median == doctest::Approx(3e-3));  // the mean as well
  CHECK(point.quantities.at(Metric::flop).note.find("3 times the instructions") != std::string::npos);
  // Data decide how much work a launch with these arguments does.
  KernelRecord varies = counted_with(11, 4, 1e6);
  varies.least_instructions = 5e5;
  varies.most_instructions = 2e6;
  const KernelPoint data = only(combine_kernels({with(timed("k"), 11, 3, 1e-3)}, {varies}));
  CHECK(data.mean);
  CHECK(data.quantities.at(Metric::dram_bytes).note.find("4 times the instructions") != std::string::npos);
  // Launches that were not counted are like those that were, as long as these are alike.
  const KernelPoint all =
      only(combine_kernels({with(timed("k"), 11, 3, 1e-3), with(timed("k"), 0, 7, 1e-3)}, {counted_with(11, 2, 1e6)}));
  CHECK_FALSE(all.mean);
  CHECK(all.times.calls == 10);
  const KernelPoints three =
      combine_kernels({with(timed("k"), 11, 3, 1e-3), with(timed("k"), 22, 3, 1e-3), with(timed("k"), 0, 7, 1e-3)},
                      {counted_with(11, 2, 1e6), counted_with(22, 2, 3e6)});
  REQUIRE(three.kernels.size() == 3);
  CHECK(three.kernels[0].times.calls == 7);
  CHECK(three.kernels[0].mean);
}

TEST_CASE("how much longer CUDA graphs take with instructions of CUPTI's in their kernels") {
  const auto graph = [](std::uint64_t number, std::int64_t calls, double seconds) {
    KernelRecord record = with(kernel(""), 0, calls, seconds);
    record.graph = number;
    return record;
  };
  const auto slowdown = graph_slowdown({graph(1, 10, 1.1), graph(2, 90, 1.02)}, {graph(1, 5, 1.0), graph(2, 90, 1.0)});
  REQUIRE(slowdown.has_value());
  CHECK(slowdown->mean == doctest::Approx(0.1 * 1.1 + 0.9 * 1.02));
  CHECK(slowdown->most == doctest::Approx(1.1));
  CHECK_FALSE(graph_slowdown({graph(1, 10, 1.1), graph(2, 9, 1)}, {graph(1, 10, 1.0)}).has_value());
  CHECK_FALSE(graph_slowdown({graph(1, 10, 0.9)}, {graph(1, 10, 1.0)}).has_value());  // more than kernels is in it
  CHECK_FALSE(graph_slowdown({}, {}).has_value());

  // A whole graph is no kernel.
  const gable::test::Folder folder("kernels");
  KernelFile file{.pid = 7, .done = true};
  file.kernels = {timed("k"), graph(18446744073709551615u, 10, 1.1)};
  file.kernels[0].arguments = 12345678901234567890u;
  file.kernels[0].least_instructions = 3;
  file.kernels[0].most_instructions = 4;
  gable::test::write_text(folder.file("kernels.7.0.txt"), to_text(file));
  const SessionRecords all = read_kernels(folder.path().string());
  REQUIRE(all.kernels.size() == 1);
  REQUIRE(all.graphs.size() == 1);
  CHECK(all.kernels[0].arguments == 12345678901234567890u);
  CHECK(all.kernels[0].most_instructions == 4);
  CHECK(all.graphs[0].graph == 18446744073709551615u);
  CHECK(all.graphs[0].times.median == 1.1);
  KernelRecord inside = timed("k");
  inside.graph_calls = inside.times.calls;
  CHECK(only(combine_kernels({inside}, {})).instrumented);
  CHECK_FALSE(only(combine_kernels({inside, with(timed("k"), 1, 1, 1e-3)}, {})).instrumented);
  CHECK(parse_kernel_file(to_text({.pid = 7, .kernels = {inside}}), "f").kernels[0].graph_calls == 10);
  const KernelPoints alone = combine_kernels({inside}, {}, {with(timed("k"), inside.arguments, 4, 1.5e-4)});
  CHECK_FALSE(only(alone).instrumented);
  CHECK(only(alone).times.median == 1.5e-4);
  CHECK(only(alone).times.calls == 10);
  // A node whose arguments are not known has the time of the only launches alone.
  const auto other = [](std::uint64_t arguments) { return with(timed("k"), arguments, 4, 1.5e-4); };
  inside.arguments = 0;
  CHECK(only(combine_kernels({inside}, {}, {other(5)})).times.median == 1.5e-4);
  CHECK(only(combine_kernels({inside}, {}, {other(5), other(6)})).instrumented);
  inside.arguments = 7;
  CHECK(only(combine_kernels({inside}, {}, {other(5)})).instrumented);

  // Without CUPTI's instructions the kernels of graphs are shorter, and no longer the longest.
  std::vector<KernelPoint> kernels =
      combine_kernels({inside, with(timed("other"), 1, 10, 0.97 * inside.times.median)}, {}).kernels;
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[0].name == "k");
  divide_graph_times(1.1, kernels);
  CHECK(kernels[0].name == "other");
  CHECK(kernels[0].times.median == doctest::Approx(0.97 * inside.times.median));
  CHECK(kernels[1].times.median == doctest::Approx(inside.times.median / 1.1));
  CHECK(kernels[1].times.seconds == doctest::Approx(inside.times.seconds / 1.1));
  CHECK(kernels[1].times.slowest == doctest::Approx(inside.times.slowest / 1.1));
}

TEST_CASE("a kernel with too few launches for both lacks W or Q, and a further session fills the gap") {
  KernelRecord traffic = kernel("k");
  traffic.counted_calls = 2;
  traffic.metrics = {{"dram__bytes_read.sum", 200}, {"dram__bytes_write.sum", 100}};
  CHECK(combine_kernels({timed("k")}, {traffic}).kernels[0].lacks_work);
  CHECK_FALSE(combine_kernels({timed("k")}, {traffic}).kernels[0].lacks_traffic);
  KernelRecord work = kernel("k");
  work.counted_calls = 2;
  work.metrics = {{"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", 50}, {kInstrumentedInstructions, 9}};
  CHECK(combine_kernels({timed("k")}, {work}).kernels[0].lacks_traffic);
  const KernelPoint both = combine_kernels({timed("k")}, {traffic, work}).kernels[0];
  CHECK_FALSE(both.lacks_work);
  CHECK_FALSE(both.lacks_traffic);
  CHECK(*both.quantities.at(Metric::flop).value == doctest::Approx(50));
  CHECK(*both.quantities.at(Metric::dram_bytes).value == doctest::Approx(150));
  KernelRecord none = kernel("k");
  none.reason = "it waits";
  CHECK_FALSE(combine_kernels({timed("k")}, {none}).kernels[0].lacks_work);  // no further run would help
  const auto has = [](const std::vector<std::string>& metrics, const char* name) {
    return std::find(metrics.begin(), metrics.end(), name) != metrics.end();
  };
  CHECK(has(kernel_traffic_metrics(), "dram__bytes_read.sum"));
  CHECK_FALSE(has(kernel_traffic_metrics(), kInstrumentedInstructions));
  CHECK(has(kernel_work_metrics(), kInstrumentedInstructions));
  CHECK_FALSE(has(kernel_work_metrics(), kHardwareInstructions));  // with it, traffic would be counted first
}

TEST_CASE("quartiles of a mixture lie where its calls lie") {
  const CallTimes fast{.calls = 300, .seconds = 300, .median = 1, .q1 = 1, .q3 = 1, .fastest = 1, .slowest = 1};
  const CallTimes slow{.calls = 100, .seconds = 1000, .median = 10, .q1 = 9, .q3 = 11, .fastest = 8, .slowest = 12};
  const CallTimes all = merge_times({fast, {}, slow});
  CHECK(all.calls == 400);
  CHECK(all.seconds == 1300);
  CHECK(all.fastest == 1);
  CHECK(all.slowest == 12);
  CHECK(all.q1 == doctest::Approx(1));
  CHECK(all.median == doctest::Approx(1));
  const CallTimes turned =
      merge_times({{.calls = 100, .seconds = 100, .median = 1, .q1 = 1, .q3 = 1, .fastest = 1, .slowest = 1},
                   {.calls = 300, .seconds = 3000, .median = 10, .q1 = 9, .q3 = 11, .fastest = 8, .slowest = 12}});
  CHECK(turned.median == doctest::Approx(9.33).epsilon(0.01));  // a third of the slow ones are below it
  CHECK(turned.q3 == doctest::Approx(10.67).epsilon(0.01));
}

TEST_CASE("what was not counted has its reason") {
  KernelRecord refused = kernel("k");
  refused.reason = "it waits for kernels of other GPUs";
  CHECK(work_of(combine_kernels({timed("k")}, {refused})).reason == refused.reason);
  CHECK(work_of(combine_kernels({timed("k")}, {counted("k", 1, {{kFfma, 1}}, "elsewhere")}))
            .reason.find("no such kernel") != std::string::npos);
  const KernelPoints points = combine_kernels({timed("k")}, {counted("k", 1, {{kFfma, -1.}})});
  CHECK_FALSE(work_of(points).value.has_value());
  CHECK(has(combine_kernels({}, {counted("k", 1, {{kFfma, 1}})}).notes, "1 kernels"));
}

TEST_CASE("W in a CUDA graph: that of launches outside it, of the matrix units alone, or refused") {
  KernelRecord graph = kernel("k");
  graph.reason = "it ran only inside a CUDA graph";
  CHECK(work_of(combine_kernels({timed("k")}, {graph})).reason == graph.reason);

  const GpuCounts outside{{kTensor, 0}, {kFfma, 50}, {kHardwareInstructions, 10}, {kInstrumentedInstructions, 10}};
  const Quantity some = work_of(combine_kernels({timed("k")}, {counted("k", 1, outside), graph}));
  CHECK(some.value.value() == 100);
  CHECK(some.note.find(graph.reason) != std::string::npos);

  const GpuCounts hardware{{kTensor, 0}, {kRead, 10}, {kHardwareInstructions, 10}};
  CHECK(work_of(combine_kernels({timed("k")}, {counted("k", 2, hardware)})).reason.find("not counted") !=
        std::string::npos);
  GpuCounts units = hardware;
  units[kTensor] = 2e9;
  CHECK(work_of(combine_kernels({timed("k")}, {counted("k", 2, units)})).value.value() == 1e9);
  CHECK(work_of(combine_kernels({timed("k")}, {counted("k", 2, units)})).note.find("matrix units only") !=
        std::string::npos);

  // Instrumented code that counted nothing where hardware did.
  GpuCounts zero = outside;
  zero[kFfma] = zero[kInstrumentedInstructions] = 0;
  CHECK_FALSE(work_of(combine_kernels({timed("k")}, {counted("k", 1, zero)})).value.has_value());
}

TEST_CASE("the longest total time comes first") {
  KernelRecord longer = timed("b");
  longer.times.seconds = 1;
  const KernelPoints points = combine_kernels({timed("a"), longer}, {});
  REQUIRE(points.kernels.size() == 2);
  CHECK(points.kernels[0].name == "b");
}
