// gable_overhead: what gable itself costs. Plan::run() against the kernel behind it called directly, on a convolution
// of one product, where nothing else is left; and a process that loads libgable against the same process that doesn't.
// Writes medians and quartiles as JSON; exits with 1 when a cost is above its limit.
#include <fmt/format.h>
#include <gable/backend.h>
#include <gable/gable.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/console.h"
#include "bench/files.h"
#include "bench/outcome.h"
#include "bench/record.h"
#include "perfcounters/timing.h"

extern char** environ;

namespace {

using namespace gable;
using namespace gable::bench;
using nlohmann::json;

constexpr double kRunLimit = 1e-6;   ///< s beyond the kernel
constexpr double kLoadLimit = 5e-3;  ///< s
constexpr int kProcesses = 101;

/// The cheapest kernel there is: it does nothing. What Plan::run() takes with it is Plan::run()'s own.
class EmptyPlan final : public PlanImpl {
 public:
  EmptyPlan() : PlanImpl({.kernel = "empty", .packed_bytes = 4, .packing_key = packing_key("empty")}) {}
  void run(const RunArguments& arguments) override { last_ = arguments.output; }

 private:
  void* volatile last_ = nullptr;
};

class EmptyDevice final : public DeviceImpl {
 public:
  EmptyDevice() : DeviceImpl({.uri = "empty", .backend = "empty", .available = true}) {}
  std::vector<KernelSupport> query(const Op&) const override { return {{.kernel = "empty", .supported = true}}; }
  std::unique_ptr<PlanImpl> plan(const Op&) const override { return std::make_unique<EmptyPlan>(); }
};

json summary(const perf::Timing& timing) {
  return {{"seconds", timing.seconds},
          {"q1", timing.q1},
          {"q3", timing.q3},
          {"runs", timing.runs},
          {"calls_per_run", timing.calls_per_run}};
}

/// One call of Plan::run() and one of the kernel behind it.
json measure_run() {
  Conv2d conv;
  conv.input = {1, 1, 1, 1};
  conv.weights = {1, 1, 1, 1};
  conv.epilogue.bias = true;
  const auto device = std::make_shared<EmptyDevice>();
  const Plan plan(conv, device, device->plan(conv));
  const std::unique_ptr<PlanImpl> direct = device->plan(conv);
  float x = 1;
  float w = 1;
  float b = 1;
  float y = 0;
  const ConstTensorView x_view(&x, DType::f32, conv.input);
  const ConstTensorView bias_view(&b, DType::f32, {1});
  const TensorView y_view(&y, DType::f32, conv.input);
  const PackedWeights packed = plan.pack({&w, DType::f32, conv.weights});
  const RunArguments arguments{.inputs = {&x, nullptr}, .weights = packed.data(), .bias = &b, .output = &y};
  const std::vector<std::function<void()>> calls{[&] { plan.run(x_view, packed, bias_view, y_view); },
                                                 [&] { direct->run(arguments); }};
  perf::TimingOptions options;
  options.min_runs = 50;
  options.max_runs = 1000;
  const auto timings = perf::measure_alternating(calls, options);
  const double beyond = timings[0].seconds - timings[1].seconds;
  return {{"what", "Plan::run() of conv2d with bias beyond the kernel behind it"},
          {"plan_run", summary(timings[0])},
          {"kernel", summary(timings[1])},
          {"seconds", beyond},
          {"limit", kRunLimit},
          {"passed", beyond <= kRunLimit}};
}

/// Starts `program` with nothing to say and waits for its end.
void start(const std::string& program) {
  std::vector<char> path(program.c_str(), program.c_str() + program.size() + 1);
  char* const arguments[] = {path.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ);
  if (error != 0)
    throw Error(ErrorCode::device_failure, fmt::format("can't start '{}': {}", program, std::strerror(error)));
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw Error(ErrorCode::device_failure, fmt::format("'{}' failed", program));
  }
}

/// Whole processes in turn, one that is linked against libgable, one that is not.
json measure_load(const std::string& with, const std::string& without) {
  const std::vector<std::function<void()>> calls{[&] { start(with); }, [&] { start(without); }};
  perf::TimingOptions options;
  options.min_runs = kProcesses;
  options.max_runs = kProcesses;
  options.min_sample_seconds = 0;
  options.rewarm_below_seconds = 0;
  const auto timings = perf::measure_alternating(calls, options);
  const double beyond = timings[0].seconds - timings[1].seconds;
  return {{"what", "loading libgable, without plugins: a process linked against it beyond one that is not"},
          {"with_libgable", summary(timings[0])},
          {"without", summary(timings[1])},
          {"seconds", beyond},
          {"limit", kLoadLimit},
          {"passed", beyond <= kLoadLimit}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string file = argc == 2 ? argv[1] : "";
  const bool asked = file == "--help" || file == "-h";
  if (file.empty() || file.starts_with("-")) {
    std::fputs("usage: gable_overhead FILE.json\n", asked ? stdout : stderr);
    return asked ? kDone : kBadInput;
  }
  try {
    const json run = measure_run();
    const json load = measure_load(GABLE_LOADS_GABLE, GABLE_LOADS_NOTHING);
    const json record{
        {"machine", machine_record(perf::describe_machine(), "gable_overhead")}, {"plan_run", run}, {"load", load}};
    write_file(file, {json_text(record)});
    fmt::print(
        "Plan::run() beyond the kernel: {:.0f} ns (limit {:.0f} ns)\nloading libgable: {:.2f} ms (limit {:.0f} ms)\n",
        run["seconds"].get<double>() * 1e9, kRunLimit * 1e9, load["seconds"].get<double>() * 1e3, kLoadLimit * 1e3);
    return run["passed"].get<bool>() && load["passed"].get<bool>() ? kDone : kCheckFailed;
  } catch (const std::exception& error) {
    std::fputs((std::string("gable_overhead: ") + error.what() + "\n").c_str(), stderr);
    return kFailure;
  }
}
