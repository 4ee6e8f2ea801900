// gable_overhead: gable's own overhead, as the difference of two times that are measured in turn:
//   Plan::run() of an empty kernel, and that kernel called directly;
//   a process that loads libgable, and the same process without it;
//   a convolution while counters run on every thread, and the same without counters;
//   on each GPU, Plan::run() of a tiny addition, and the launch of an empty kernel.
// And what a plan costs: Device::plan() over the layers of all networks, on gable's own devices; and what a choice
// costs: choose() of an `auto` for layers that it has not seen, and for layers that were tuned.
// Writes medians and quartiles as JSON. Exits with 1 when an overhead is above its limit.
#include <fmt/format.h>
#include <gable/backend.h>
#include <gable/choose.h>
#include <gable/gable.h>
#include <gable/study.h>
#include <linux/perf_event.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/common/files.h"
#include "bench/measure/devices.h"
#include "bench/measure/outcome.h"
#include "bench/record/study_json.h"
#include "bench/workloads/data.h"
#include "bench/workloads/networks.h"
#include "bench/workloads/selection.h"
#include "perfcounters/sources/perf_event.h"
#include "perfcounters/timing.h"

extern char** environ;

namespace {

using namespace gable;
using namespace gable::bench;
using nlohmann::json;

constexpr double kRunLimit = 1e-6;      ///< seconds more than the kernel
constexpr double kLoadLimit = 5e-3;     ///< seconds
constexpr double kArmedLimit = 0.01;    ///< fraction of T
constexpr double kLaunchLimit = 3e-6;   ///< seconds more than a launch
constexpr double kBatchLimit = 20e-6;   ///< seconds to choose again
constexpr double kPlanLimit = 1e-3;     ///< seconds of all plans but one in a hundred
constexpr double kModelLimit = 200e-6;  ///< seconds of half of the choices by the model
constexpr double kKnownLimit = 20e-6;   ///< and of tuned ones
constexpr int kProcesses = 101;

/// A kernel that does nothing, so that all of Plan::run()'s time is its own.
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
  std::vector<KernelOffer> offers(const Op&) const override {
    return {{"empty", "", [] { return std::make_unique<EmptyPlan>(); }}};
  }
};

/// A plan that took long to make.
struct SlowPlan {
  std::string layer{}, kernel{};
  double seconds = 0;
};

/// One overhead: two times and their difference, or the reason why it was not measured.
struct Overhead {
  std::string what;
  std::vector<std::pair<std::string, perf::Timing>> timings{};  ///< by their names in the record
  std::string unit = "seconds";                                 ///< or "fraction", of the second time
  std::optional<double> value{};
  double limit = 0;
  std::string counters{};  ///< which counters ran; empty: none
  std::string reason{};    ///< why there is no value
  std::vector<SlowPlan> slowest{};
  std::vector<std::pair<std::string, double>> quantiles{};  ///< seconds, by their names in the record

  bool passed() const { return !value || *value <= limit; }
};

json to_json(const perf::Timing& timing) {
  return {{"seconds", timing.seconds},
          {"q1", timing.q1},
          {"q3", timing.q3},
          {"runs", timing.runs},
          {"calls_per_run", timing.calls_per_run}};
}

json to_json(const Overhead& overhead) {
  json entry{{"what", overhead.what}, {"passed", overhead.passed()}};
  for (const auto& [name, timing] : overhead.timings) entry[name] = to_json(timing);
  if (!overhead.counters.empty()) entry["counters"] = overhead.counters;
  if (overhead.value) {
    entry[overhead.unit] = *overhead.value;
    entry["limit"] = overhead.limit;
  } else {
    entry["reason"] = overhead.reason;
  }
  for (const auto& [name, seconds] : overhead.quantiles) entry[name] = seconds;
  for (const SlowPlan& plan : overhead.slowest) {
    entry["slowest"].push_back({{"layer", plan.layer}, {"kernel", plan.kernel}, {"seconds", plan.seconds}});
  }
  return entry;
}

/// Plan::run() and a direct call of the kernel that it runs.
Overhead measure_run() {
  Conv2d conv;
  conv.input = {1, 1, 1, 1};
  conv.weights = {1, 1, 1, 1};
  conv.epilogue.bias = true;
  const auto device = std::make_shared<EmptyDevice>();
  const Plan plan(conv, device, std::make_unique<EmptyPlan>());
  const std::unique_ptr<PlanImpl> direct = std::make_unique<EmptyPlan>();
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
  return {.what = "Plan::run() of conv2d with bias beyond the kernel behind it",
          .timings = {{"plan_run", timings[0]}, {"kernel", timings[1]}},
          .value = timings[0].seconds - timings[1].seconds,
          .limit = kRunLimit};
}

/// Runs `program` without arguments until it ends.
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

/// Starts two programs in turn: one is linked with libgable, the other is not.
Overhead measure_load(const std::string& with, const std::string& without) {
  const std::vector<std::function<void()>> calls{[&] { start(with); }, [&] { start(without); }};
  perf::TimingOptions options;
  options.min_runs = kProcesses;
  options.max_runs = kProcesses;
  options.min_sample_seconds = 0;
  options.rewarm_below_seconds = 0;
  const auto timings = perf::measure_alternating(calls, options);
  return {.what = "loading libgable, without plugins: a process linked against it beyond one that is not",
          .timings = {{"with_libgable", timings[0]}, {"without", timings[1]}},
          .value = timings[0].seconds - timings[1].seconds,
          .limit = kLoadLimit};
}

/// While an object lives, counters run on every thread of this process: the floating-point events if there is a PMU,
/// else the kernel's task clock, which costs its scheduler the same work.
class Armed {
 public:
  Armed(perf::PerfSystem& system, bool with_pmu) : system_(system) {
    std::vector<perf::PerfEvent> events{{.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_TASK_CLOCK}};
    if (with_pmu) {
      events.clear();
      const auto groups = perf::flop_groups(perf::describe_isa_only());
      for (const perf::FlopEvent& event : groups.front()) {
        events.push_back({.type = PERF_TYPE_RAW, .config = event.config});
      }
    }
    for (const int thread : system_.threads()) open_on(thread, events);
    for (const int leader : leaders_) system_.start(leader);
  }
  ~Armed() {
    for (const int descriptor : descriptors_) system_.close(descriptor);
  }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;

 private:
  void open_on(int thread, const std::vector<perf::PerfEvent>& events) {
    int leader = -1;
    for (perf::PerfEvent event : events) {
      event.thread = thread;
      event.leader = leader;
      const int descriptor = system_.open(event);
      if (descriptor < 0) {
        throw Error(ErrorCode::unavailable, fmt::format("perf_event_open: {}", std::strerror(-descriptor)));
      }
      descriptors_.push_back(descriptor);
      if (leader >= 0) continue;
      leader = descriptor;
      leaders_.push_back(descriptor);
    }
  }

  perf::PerfSystem& system_;
  std::vector<int> descriptors_;
  std::vector<int> leaders_;
};

/// T of a layer of VGG on all threads, measured in turn with and without counters.
Overhead measure_armed() {
  const auto system = perf::linux_perf_system();
  const bool with_pmu =
      perf::ability(perf::PerfEventSource(perf::perf_host(), system).status(), perf::Metric::flop).available;
  Conv2d conv{.input = {1, 64, 112, 112}, .weights = {64, 64, 3, 3}, .padding = {1, 1}, .layout = Layout::nhwc};
  const Device device = open("cpu");
  const Plan plan = device.plan(conv);
  const OpData data = gable::bench::random_data(conv);
  const PackedWeights packed = plan.pack(data.weights);
  const Tensor y(DType::f32, plan.output_shape(), Layout::nhwc);
  const auto seconds_of = [&](int calls) {
    const auto start_time = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) plan.run(data.x, packed, y);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_time).count();
  };
  const std::vector<perf::Subject> subjects{{[&](int calls) {
                                               const Armed armed(*system, with_pmu);
                                               return seconds_of(calls);
                                             },
                                             {}},
                                            {seconds_of, {}}};
  perf::TimingOptions options;
  options.min_runs = 200;
  options.max_runs = 200;
  options.min_sample_seconds = 0.02;
  const auto timings = perf::measure_alternating(subjects, options);
  return {.what = "T of a convolution with counters running, read by nobody, beyond T without",
          .timings = {{"armed", timings[0]}, {"without", timings[1]}},
          .unit = "fraction",
          .value = timings[0].seconds / timings[1].seconds - 1,
          .limit = kArmedLimit,
          .counters = with_pmu ? "floating-point events" : "task clock (there is no PMU)"};
}

/// Host time of Plan::run() of a tiny addition, which only enqueues a kernel.
perf::Timing time_of_enqueuing(const Device& device) {
  constexpr std::int64_t kCount = 1024;
  constexpr int kCalls = 200;  // fewer than fill a queue
  constexpr int kRounds = 50;
  const Plan plan = device.plan(Add{.shape = {kCount}});
  const Tensor a = device.tensor(DType::f32, {kCount});
  const Tensor y = device.tensor(DType::f32, {kCount});
  std::vector<double> samples;
  for (int round = 0; round < kRounds; ++round) {
    const auto start_time = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) plan.run(a.view(), a.view(), y.view());
    samples.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_time).count() / kCalls);
    device.synchronize();
  }
  return perf::summarize(std::move(samples), kCalls);
}

Overhead measure_launch(const OpenDevice& gpu) {
  Overhead overhead{.what = "Plan::run() of a tiny addition on " + gpu.uri + " beyond the launch of an empty kernel",
                    .limit = kLaunchLimit,
                    .reason = "its backend measures no launches"};
  for (const Ceiling& rate : device_ceilings(gpu.device, {.quick = true})) {
    if (rate.name != "launch, back to back") continue;
    const perf::Timing run = time_of_enqueuing(gpu.device);
    const perf::Timing launch = perf::summarize(rate.samples);
    overhead.timings = {{"plan_run", run}, {"launch", launch}};
    overhead.value = run.seconds - launch.seconds;
    break;
  }
  return overhead;
}

/// One entry for each GPU.
std::vector<Overhead> measure_launches() {
  std::vector<Overhead> all;
  for (const DeviceInfo& info : devices()) {
    if (!info.available || kind_of(info.memory) != DeviceKind::gpu) continue;
    for (const OpenDevice& gpu : open_devices({info.uri}, 0)) all.push_back(measure_launch(gpu));
  }
  return all;
}

/// The layers of all networks in every dtype and both layouts, as many images as the lists have and one.
std::vector<Case> network_layers() {
  std::vector<Case> layers;
  for (const char* layout : {"nhwc", "nchw"}) {
    for (const std::int64_t most : {0, 1}) {
      SelectionOptions options;
      options.suite = kNetworks;
      options.layout = layout;
      options.max_batch = most;
      const std::vector<Case> cases = select(options, false).cases;
      layers.insert(layers.end(), cases.begin(), cases.end());
    }
  }
  return layers;
}

/// The lesser of two times, since other programs only add time.
SlowPlan time_of_planning(const OpenDevice& device, const Case& layer) {
  SlowPlan plan{.layer = describe(layer.op)};
  for (int i = 0; i < 2; ++i) {
    const auto start_time = std::chrono::steady_clock::now();
    const Plan made = device.device.plan(layer.op);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_time).count();
    plan.kernel = made.kernel();
    plan.seconds = i == 0 ? seconds : std::min(plan.seconds, seconds);
  }
  return plan;
}

/// Device::plan() over all layers that the device takes.
Overhead measure_plans(const OpenDevice& device, const std::vector<Case>& layers) {
  constexpr std::size_t kShown = 10;
  Overhead overhead{.what = "99 of 100 calls of Device::plan() for the layers of the networks, on " + device.uri,
                    .limit = kPlanLimit,
                    .reason = "the device takes no layer, or there are no lists of networks"};
  std::vector<double> samples;
  for (const Case& layer : layers) {
    try {
      overhead.slowest.push_back(time_of_planning(device, layer));
      samples.push_back(overhead.slowest.back().seconds);
    } catch (const Error&) {  // no kernel
    }
  }
  if (samples.empty()) return overhead;
  std::sort(overhead.slowest.begin(), overhead.slowest.end(),
            [](const SlowPlan& a, const SlowPlan& b) { return a.seconds > b.seconds; });
  overhead.slowest.resize(std::min(kShown, overhead.slowest.size()));
  overhead.timings = {{"plan", perf::summarize(samples)}};
  std::sort(samples.begin(), samples.end());
  overhead.value = perf::quantile(samples, 0.99);
  return overhead;
}

/// One entry for the CPU and for each GPU, on gable's own backends.
std::vector<Overhead> measure_all_plans() {
  const std::vector<Case> layers = network_layers();
  std::vector<Overhead> all{measure_plans(open_devices({"cpu"}, 0).front(), layers)};
  for (const DeviceInfo& info : devices()) {
    if (!info.available || info.backend != "cuda") continue;
    for (const OpenDevice& gpu : open_devices({info.uri}, 0)) all.push_back(measure_plans(gpu, layers));
  }
  return all;
}

/// The costs of a plan for batches 1 to 64: choosing again for a known batch, and planning a new one.
Overhead measure_batches() {
  const Device device = open("auto?only=cpu");
  const BatchRange range{1, 64};
  const Conv2d conv{.input = {1, 64, 28, 28}, .weights = {64, 64, 3, 3}, .padding = {1, 1}, .layout = Layout::nhwc};
  std::vector<double> again, fresh;
  for (int round = 0; round < 5; ++round) {
    const BatchPlan plan = device.plan(conv, range);
    for (std::vector<double>* const samples : {&fresh, &again}) {
      for (std::int64_t batch = range.least; batch <= range.most; ++batch) {
        const auto start_time = std::chrono::steady_clock::now();
        const auto made = plan.at(batch);
        samples->push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_time).count());
      }
    }
  }
  Overhead overhead{.what = "to choose again in a plan for a range of batches, 99 of 100 times", .limit = kBatchLimit};
  overhead.timings = {{"again", perf::summarize(again)}, {"first_time", perf::summarize(fresh)}};
  std::sort(again.begin(), again.end());
  overhead.value = perf::quantile(again, 0.99);
  return overhead;
}

constexpr std::size_t kSweptBytes = std::size_t{64} << 20;  ///< more than the caches next to a core hold

/// choose() for each layer once, with the caches swept before each or not. What is measured is the first choice of an
/// op, or that of a tuned one.
perf::Timing time_choices(const Device& device, const std::vector<Case>& layers, bool swept,
                          std::vector<double>& samples) {
  samples.clear();
  perf::CacheFlusher caches(kSweptBytes);
  for (const Case& layer : layers) {
    if (swept) caches.flush();
    const auto start_time = std::chrono::steady_clock::now();
    choose(device, layer.op);
    samples.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_time).count());
  }
  const perf::Timing timing = perf::summarize(samples);
  std::sort(samples.begin(), samples.end());
  return timing;
}

/// The median of choices in a row; those with swept caches and the slowest of a hundred are beside it.
Overhead measure_choices(const std::string& what, const Device& device, const std::vector<Case>& layers, double limit) {
  Overhead overhead{.what = what, .limit = limit, .reason = "there are no such layers"};
  if (layers.empty()) return overhead;
  std::vector<double> samples;
  for (const bool swept : {false, true}) {
    overhead.timings.emplace_back(swept ? "swept" : "in_a_row", time_choices(device, layers, swept, samples));
    overhead.quantiles.push_back({swept ? "swept_p99" : "in_a_row_p99", perf::quantile(samples, 0.99)});
  }
  overhead.value = overhead.timings.front().second.seconds;
  return overhead;
}

/// Every `step`-th layer of one image.
std::vector<Case> some_layers(const char* dtype, std::size_t first, std::size_t step) {
  SelectionOptions options;
  options.suite = kNetworks;
  options.layout = "nhwc";
  options.max_batch = 1;
  options.dtypes = {dtype};
  const std::vector<Case> all = select(options, false).cases;
  std::vector<Case> some;
  for (std::size_t i = first; i < all.size(); i += step) some.push_back(all[i]);
  return some;
}

/// Those that could be tuned.
std::vector<Case> tuned(const Device& device, const std::vector<Case>& layers) {
  std::vector<Case> done;
  for (const Case& layer : layers) {
    try {
      tune(device, layer.op, 0.1);
      done.push_back(layer);
    } catch (const Error&) {  // it takes longer
    }
  }
  return done;
}

/// Choices do not ask cuDNN, but the tuning does, which its heuristics' engine shortens by seconds. Builds without
/// cuDNN have no such option.
Device open_auto(const std::string& options) {
  try {
    return open("auto?algorithm=heuristic" + (options.empty() ? "" : "&" + options));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    return open("auto" + (options.empty() ? "" : "?" + options));
  }
}

/// On an `auto`, and where there is a GPU also on one whose tensors lie on the host.
std::vector<Overhead> measure_all_choices() {
  std::vector<Overhead> all;
  for (const char* options : {"", "memory=host"}) {
    const Device device = open_auto(options);
    const std::string uri = device.info().uri;
    for (const char* dtype : {"f32", "bf16", "f16"}) {
      const std::string where = std::string(dtype) + " on " + uri;
      all.push_back(measure_choices("choose() by the model, " + where, device, some_layers(dtype, 0, 3), kModelLimit));
      const std::vector<Case> known = tuned(device, some_layers(dtype, 1, 60));
      all.push_back(measure_choices("choose() of tuned layers, " + where, device, known, kKnownLimit));
    }
    if (device.info().memory.kind == Memory::Kind::host) break;
  }
  return all;
}

/// What `measure` gives, or why it can't: containers forbid counters, a program that was moved lacks the two that it
/// starts.
Overhead or_reason(const char* what, const std::function<Overhead()>& measure) {
  try {
    return measure();
  } catch (const Error& error) {
    return {.what = what, .reason = error.what()};
  }
}

struct Overheads {
  Overhead run, load, armed, batches;
  std::vector<Overhead> launches, plans, choices;

  bool passed() const {
    const auto within_limit = [](const Overhead& overhead) { return overhead.passed(); };
    return run.passed() && load.passed() && armed.passed() && batches.passed() &&
           std::all_of(launches.begin(), launches.end(), within_limit) &&
           std::all_of(plans.begin(), plans.end(), within_limit) &&
           std::all_of(choices.begin(), choices.end(), within_limit);
  }
};

json to_json(const Overheads& all) {
  json launches = json::array();
  for (const Overhead& launch : all.launches) launches.push_back(to_json(launch));
  json plans = json::array();
  for (const Overhead& plan : all.plans) plans.push_back(to_json(plan));
  json choices = json::array();
  for (const Overhead& choice : all.choices) choices.push_back(to_json(choice));
  return {{"machine", machine_json(perf::describe_machine(), "gable_overhead")},
          {"plan_run", to_json(all.run)},
          {"load", to_json(all.load)},
          {"armed_counters", to_json(all.armed)},
          {"batches", to_json(all.batches)},
          {"gpu_launches", std::move(launches)},
          {"plans", std::move(plans)},
          {"choices", std::move(choices)}};
}

void print(const Overheads& all) {
  fmt::print("Plan::run() beyond the kernel: {:.0f} ns (limit {:.0f} ns)\n", all.run.value.value_or(0) * 1e9,
             kRunLimit * 1e9);
  if (all.load.value) {
    fmt::print("loading libgable: {:.2f} ms (limit {:.0f} ms)\n", *all.load.value * 1e3, kLoadLimit * 1e3);
  }
  if (all.armed.value) {
    fmt::print("counters running, read by nobody: {:+.2f} % of T (limit {:.0f} %)\n", *all.armed.value * 100,
               kArmedLimit * 100);
  }
  if (all.batches.value) {
    fmt::print("{}: {:.2f} us (limit {:.0f} us), a batch that is new: {:.0f} us (median)\n", all.batches.what,
               *all.batches.value * 1e6, kBatchLimit * 1e6, all.batches.timings.back().second.seconds * 1e6);
  }
  for (const Overhead& launch : all.launches) {
    if (launch.value)
      fmt::print("{}: {:.2f} us (limit {:.0f} us)\n", launch.what, *launch.value * 1e6, kLaunchLimit * 1e6);
  }
  for (const Overhead& plan : all.plans) {
    if (!plan.value) continue;
    fmt::print("{}: {:.0f} us (limit {:.0f} us), median {:.0f} us\n", plan.what, *plan.value * 1e6, kPlanLimit * 1e6,
               plan.timings.front().second.seconds * 1e6);
    for (const SlowPlan& slow : plan.slowest)
      fmt::print("  {:.0f} us {}: {}\n", slow.seconds * 1e6, slow.kernel, slow.layer);
  }
  for (const Overhead& choice : all.choices) {
    if (!choice.value) continue;
    fmt::print("{}: {:.0f} us (limit {:.0f} us; p99 {:.0f}), with swept caches {:.0f} us (p99 {:.0f})\n", choice.what,
               *choice.value * 1e6, choice.limit * 1e6, choice.quantiles.front().second * 1e6,
               choice.timings.back().second.seconds * 1e6, choice.quantiles.back().second * 1e6);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string file = argc == 2 ? argv[1] : "";
  const bool wants_help = file == "--help" || file == "-h";
  if (file.empty() || file.starts_with("-")) {
    std::fputs("usage: gable_overhead FILE.json\n", wants_help ? stdout : stderr);
    return wants_help ? kDone : kBadInput;
  }
  setenv("GABLE_CACHE", "off", 0);  // what is tuned here is not for others, unless the caller names a folder
  try {
    const Overheads all{
        .run = measure_run(),
        .load = or_reason("loading libgable", [] { return measure_load(GABLE_LOADS_GABLE, GABLE_LOADS_NOTHING); }),
        .armed = or_reason("counters running, read by nobody", measure_armed),
        .batches = measure_batches(),
        .launches = measure_launches(),
        .plans = measure_all_plans(),
        .choices = measure_all_choices()};
    write_file(file, {json_text(to_json(all))});
    print(all);
    return all.passed() ? kDone : kCheckFailed;
  } catch (const std::exception& error) {
    std::fputs((std::string("gable_overhead: ") + error.what() + "\n").c_str(), stderr);
    return kFailure;
  }
}
