// Counts work of known FLOP and bytes with the GPU's counters. gpu_counters_check.py compares the counts with ncu's.
//
//   gable_gpu_counters list             the subjects, one a line
//   gable_gpu_counters metrics          every metric that is counted here, with commas
//   gable_gpu_counters count [NAME...]  counts them in this process: JSON to standard output
//   gable_gpu_counters once NAME        runs one of them, once between cuProfilerStart and cuProfilerStop
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/device.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/measure/op_runner.h"
#include "bench/measure/outcome.h"
#include "bench/record/study_json.h"
#include "bench/workloads/data.h"
#include "bench/workloads/problem.h"
#include "perfcounters/sources/gpu_metrics.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::bench {
namespace {

using nlohmann::json;
using perf::Metric;

constexpr const char* kLayer = "mb16ic64ih224oc64oh224kh3ph1";
constexpr const char* kSmallLayer = "mb4ic64ih224oc64oh224kh3ph1";  // for kernels that take long
constexpr const char* kOddLayer = "mb3ic72ih61oc200oh61kh3ph1";     // fits no tile

struct OpSubject {
  std::string name;
  std::string uri;
  Op op;
  double executed;  ///< FLOP of the kernel's tiles, without the epilogue
};

Op layer(const char* problem, DType dtype, Math math = Math::strict) {
  Conv2d conv = parse_problem(problem).conv;
  conv.dtype = dtype;
  conv.math = math;
  conv.layout = Layout::nhwc;
  return conv;
}

Op product(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype, Math math = Math::strict) {
  return Matmul{.m = m, .n = n, .k = k, .dtype = dtype, .math = math};
}

double padded(double size, double tile) { return std::ceil(size / tile) * tile; }

double product_flop(double m, double n, double k) { return 2 * m * n * k; }

/// FLOP that each kernel executes for kOddLayer: 3 images of 61x61 pixels, 72 channels, 200 filters, 9 taps.
double odd_register_tile() {  // tiles of 64 pixels x 128 filters; taps and channels in steps of 32
  return product_flop(padded(3 * 61 * 61, 64), padded(200, 128), padded(72 * 9, 32));
}
double odd_wgmma() {  // tiles of 8x16 pixels of an image x 128 filters; 64 channels at a time, tap by tap
  return product_flop(3 * padded(61, 8) * padded(61, 16), padded(200, 128), padded(72, 64) * 9);
}

/// `naive` skips padding taps: the first and the last of 224 rows and columns have 2 taps instead of 3.
double small_layer_naive() { return 2.0 * 4 * 64 * 64 * (3 * 224 - 2) * (3 * 224 - 2); }

double layer_flop() { return product_flop(16 * 224 * 224, 64, 64 * 9); }

std::vector<OpSubject> op_subjects() {
  const std::string naive = "cuda:0?kernel=naive", tiled = "cuda:0?kernel=register_tile", wgmma = "cuda:0?kernel=wgmma",
                    mma = "cuda:0?kernel=implicit_gemm";
  const double square = product_flop(4096, 4096, 4096);
  // wgmma's tile for 4000 is 224 x 64, 64 terms at a time: all three sides become 4032.
  const double odd_square = product_flop(padded(4000, 224), padded(4000, 64), padded(4000, 64));
  constexpr std::int64_t kSum = std::int64_t{1} << 27;
  return {
      {"matmul bf16", "cuda:0", product(4096, 4096, 4096, DType::bf16), square},
      {"matmul f16", "cuda:0", product(4096, 4096, 4096, DType::f16), square},
      {"matmul tf32", "cuda:0", product(4096, 4096, 4096, DType::f32, Math::tf32), square},
      {"matmul f32", "cuda:0", product(2048, 2048, 2048, DType::f32), product_flop(2048, 2048, 2048)},
      {"matmul bf16 4000x4000x4000", "cuda:0", product(4000, 4000, 4000, DType::bf16), odd_square},
      {"conv naive f32", naive, layer(kSmallLayer, DType::f32), small_layer_naive()},
      {"conv register_tile f32", tiled, layer(kLayer, DType::f32), layer_flop()},
      {"conv register_tile f32 odd", tiled, layer(kOddLayer, DType::f32), odd_register_tile()},
      {"conv wgmma bf16", wgmma, layer(kLayer, DType::bf16), layer_flop()},
      {"conv wgmma f16", wgmma, layer(kLayer, DType::f16), layer_flop()},
      {"conv wgmma tf32", wgmma, layer(kLayer, DType::f32, Math::tf32), layer_flop()},
      {"conv wgmma bf16 odd", wgmma, layer(kOddLayer, DType::bf16), odd_wgmma()},
      {"conv implicit_gemm bf16", mma, layer(kLayer, DType::bf16), layer_flop()},
      {"add f32", "cuda:0", Add{.shape = Shape{kSum}, .dtype = DType::f32}, static_cast<double>(kSum)},
  };
}

/// Work on the GPU with its known FLOP and bytes.
struct Subject {
  std::string name;
  std::string kernel;
  std::string explanation;
  std::function<void()> run;
  std::function<double(int calls)> time;  ///< seconds of `calls` calls; empty: not timed
  json expected = json::object();         ///< "W", "Q(dram)" ...: from the shapes, or by construction
  double executed = 0;                    ///< W with the products that tiles add beyond the op's shape; 0: no work
};

Subject known_subject(const perf::KnownWork& known) {
  Subject subject{known.name, "ptx", "", known.workload.run, {}};
  for (const auto& [metric, value] : known.expected) {
    subject.expected[perf::to_string(metric)] = value;
    if (metric == Metric::flop) subject.executed = value;
  }
  return subject;
}

Subject op_subject(const OpSubject& one) {
  // The runner keeps a pointer to the device.
  auto device = std::make_shared<OpenDevice>(open_devices({one.uri}, 0).front());
  auto runner = std::make_shared<OpRunner>(*device, one.op);
  runner->prepare(random_data(one.op));
  const Work work = runner->plan().work();
  return {one.name,
          runner->plan().kernel(),
          runner->plan().explain(),
          [device, runner] { runner->run(); },
          [device, runner](int calls) { return runner->subject().time(calls); },
          {{"W", work.flop}, {"Q(dram)", work.bytes()}},
          one.executed};
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const perf::KnownWork& known : perf::gpu_profiler().known_work(0)) all.push_back(known.name);
  for (const OpSubject& one : op_subjects()) all.push_back(one.name);
  return all;
}

/// Subjects are made one at a time, because some take much of a small GPU's memory.
Subject make_subject(const std::string& name) {
  for (const perf::KnownWork& known : perf::gpu_profiler().known_work(0)) {
    if (known.name == name) return known_subject(known);
  }
  for (const OpSubject& one : op_subjects()) {
    if (one.name == name) return op_subject(one);
  }
  throw Error(ErrorCode::invalid_argument, fmt::format("'{}': there is {}", name, fmt::join(names(), ", ")));
}

std::vector<std::string> all_metrics() {
  std::vector<std::string> metrics{perf::kHardwareInstructions, perf::kInstrumentedInstructions};
  perf::append_metrics(perf::gpu_work_terms(), metrics);
  for (const Metric level : {Metric::dram_bytes, Metric::l2_bytes, Metric::l1_bytes}) {
    perf::append_metrics(perf::gpu_traffic_terms(level), metrics);
  }
  perf::append_metrics(perf::gpu_instruction_terms(), metrics);
  perf::append_metrics(perf::gpu_stall_terms(), metrics);
  return perf::gpu_profiler().available(perf::gpu_profiler().chip(0), metrics);
}

json quantity_record(const perf::Quantity& quantity) {
  if (!quantity.value) return {{"reason", quantity.reason}};
  return {{"value", *quantity.value}, {"q1", quantity.q1}, {"q3", quantity.q3}};
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// T in seconds for one call, from samples of a few milliseconds.
double time_subject(const Subject& subject) {
  const double first = subject.time(2) / 2;
  const int calls = std::max(2, static_cast<int>(4e-3 / first));
  std::vector<double> samples;
  for (int i = 0; i < 15; ++i) samples.push_back(subject.time(calls) / calls);
  return median_of(samples);
}

json count_subject(const Subject& subject) {
  constexpr int kRepetitions = 5;
  perf::GpuProfiler& profiler = perf::gpu_profiler();
  const std::vector<std::string> metrics = all_metrics();
  subject.run();
  const double before = subject.time ? time_subject(subject) : 0;
  const perf::Counted counted =
      profiler.count(0, {.metrics = metrics, .run = subject.run, .before = {}, .repetitions = kRepetitions});
  std::vector<perf::GpuCounts> repetitions(counted.ranges.size());
  perf::GpuCounts medians;
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    std::vector<double> values;
    for (std::size_t r = 0; r < repetitions.size(); ++r) {
      repetitions[r][metrics[m]] = counted.ranges[r][m];
      values.push_back(counted.ranges[r][m]);
    }
    medians[metrics[m]] = median_of(values);
  }
  const double after = subject.time ? time_subject(subject) : 0;
  json record{{"name", subject.name},
              {"kernel", subject.kernel},
              {"explanation", subject.explanation},
              {"passes", counted.passes},
              {"expected", subject.expected},
              {"executed", subject.executed},
              {"T", {{"before", before}, {"after", after}}},
              {"metrics", medians}};
  const auto quantity = [&](auto from) {
    std::vector<perf::Quantity> each;
    for (const perf::GpuCounts& counts : repetitions) each.push_back(from(counts));
    return quantity_record(perf::combine(each));
  };
  record["counted"]["W"] = quantity([](const perf::GpuCounts& counts) { return perf::gpu_work(counts); });
  record["parts"] = perf::gpu_parts(perf::gpu_work_terms(), medians);
  for (const Metric level : {Metric::dram_bytes, Metric::l2_bytes, Metric::l1_bytes}) {
    const auto terms = perf::gpu_traffic_terms(level);
    record["counted"][perf::to_string(level)] =
        quantity([&](const perf::GpuCounts& counts) { return perf::weighted_sum(terms, counts); });
    record["parts"].update(perf::gpu_parts(terms, medians));
  }
  return record;
}

json count(const std::vector<std::string>& wanted) {
  perf::GpuProfiler& profiler = perf::gpu_profiler();
  json document{{"gpu", open_devices({"cuda:0"}, 0).front().device.info().name},
                {"chip", profiler.chip(0)},
                {"library", profiler.library()},
                {"subjects", json::array()}};
  for (const std::string& name : wanted) {
    try {
      document["subjects"].push_back(count_subject(make_subject(name)));
    } catch (const std::exception& error) {
      document["subjects"].push_back({{"name", name}, {"refused", error.what()}});
    }
  }
  return document;
}

/// The driver call that ncu waits for under --profile-from-start off.
void driver_switch(const char* function) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) throw Error(ErrorCode::unavailable, dlerror());
  if (const auto call = reinterpret_cast<int (*)()>(dlsym(driver, function))) call();
}

void run_once(const std::string& name) {
  // Makes the primary context current for this thread; without it the call has no effect.
  const OpenDevice device = open_devices({"cuda:0"}, 0).front();
  const Tensor first = device.device.tensor(DType::f32, Shape{1});
  const Subject subject = make_subject(name);
  subject.run();
  driver_switch("cuProfilerStart");
  subject.run();
  driver_switch("cuProfilerStop");
}

int act(const std::vector<std::string>& words) {
  const std::string action = words.empty() ? "" : words.front();
  const std::vector<std::string> rest(words.empty() ? words.end() : words.begin() + 1, words.end());
  if (action == "list") {
    fmt::print("{}\n", fmt::join(names(), "\n"));
  } else if (action == "metrics") {
    fmt::print("{}\n", fmt::join(all_metrics(), ","));
  } else if (action == "count") {
    fmt::print("{}", json_text(count(rest.empty() ? names() : rest)));
  } else if (action == "once" && rest.size() == 1) {
    run_once(rest.front());
  } else {
    fmt::print(stderr, "usage: gable_gpu_counters list | metrics | count [NAME...] | once NAME\n");
    return kBadInput;
  }
  return kDone;
}

}  // namespace
}  // namespace gable::bench

int main(int argc, char** argv) {
  try {
    return gable::bench::act({argv + 1, argv + argc});
  } catch (const gable::perf::GpuProfilerError& error) {
    const auto failure = gable::perf::explain_gpu_failure(error.code(), error.what());
    fmt::print(stderr, "gable_gpu_counters: {}\n  cure: {}\n", failure.reason, failure.cure);
    return gable::bench::kUnsupported;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gable_gpu_counters: {}\n", error.what());
    return gable::bench::kFailure;
  }
}
