// See kernel_counter.h.
#include "perfcounters/cupti/injection/kernel_counter.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <string_view>

#include "perfcounters/cupti/demangle.h"
#include "perfcounters/cupti/injection/counted_context.h"
#include "perfcounters/cupti/injection/regions.h"
#include "perfcounters/sources/gpu_metrics.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {
namespace {

using perf::GpuProfilerError;
using Armed = CountedContext::Armed;

// Launches whose work is counted: it is the same each time, and takes several passes.
constexpr std::int64_t kWorkCalls = 2;
constexpr std::int64_t kFurtherCalls = 4;  // counted calls for a kernel's further arguments, and in CUDA graphs
constexpr std::int64_t kGraphCalls = 2;    // counted launches of a CUDA graph as a whole
constexpr int kMostUnrolled = 24;          // launches of a CUDA graph that become launches of its nodes
constexpr double kSameInstructions = 0.01;

constexpr const char* kOnlyInGraph = "it ran only inside a CUDA graph, whose kernels can't be counted one by one";
constexpr const char* kOutside = "; launched once outside, it can be";
constexpr const char* kUncheckedGraph =
    "other kernels of its CUDA graph ran only there, so that the counts of its launches outside can't be checked";
constexpr const char* kUncountedGraph = "its CUDA graph could not be counted";
constexpr const char* kWaits = "it waits for kernels of other GPUs, so it can't be run again by itself to be counted";
constexpr const char* kFailed = "counting had failed before it was launched";
constexpr const char* kUntied = "its counts could not be tied to its launches";

/// Each kernel is replayed alone, so one that waits for its peers would wait for ever.
bool waits_for_others(std::string_view name) {
  return name.find("ncclDevKernel") != name.npos || name.find("ncclKernel") != name.npos ||
         name.find("nvshmem") != name.npos;
}

bool belongs(const std::map<std::string, double>& values, const CountedKernel& kernel) {
  const auto blocks = values.find(kBlocks);
  return blocks == values.end() || blocks->second == static_cast<double>(blocks_of(kernel.shape));
}

void add(const std::map<std::string, double>& values, Counts& counts) {
  if (const auto found = values.find(perf::kHardwareInstructions); found != values.end()) {
    const double least = counts.calls > 0 ? counts.least_instructions : found->second;
    counts.least_instructions = std::min(least, found->second);
    counts.most_instructions = std::max(counts.most_instructions, found->second);
  }
  ++counts.calls;
  for (const auto& [metric, value] : values) counts.sums[metric] += value;
}

/// A metric per call; 0 if it was not counted.
double per_call(const Counts& counts, const char* metric) {
  const auto sum = counts.sums.find(metric);
  return sum != counts.sums.end() && counts.calls > 0 ? sum->second / static_cast<double>(counts.calls) : 0;
}

double instructions_of(const CountedKernel& kernel) {
  const double hardware = per_call(kernel.traffic, perf::kHardwareInstructions);
  return hardware > 0 ? hardware : per_call(kernel.work, perf::kInstrumentedInstructions);
}

/// Launches that are counted beyond need before the profiler is disarmed, which takes longer than some launches.
int most_idle(Armed armed) { return armed == Armed::for_work ? 1 : 4; }

std::int64_t calls_of(const CountedKernel& kernel) { return kernel.traffic.calls + kernel.work.calls; }

Counts& counts_for(Armed what, CountedKernel& kernel) {
  return what == Armed::for_traffic ? kernel.traffic : kernel.work;
}

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

perf::KernelRecord record_of(int gpu, const std::string& gpu_name, const KernelShape& shape,
                             const std::string& region) {
  perf::KernelRecord record;
  record.gpu = gpu;
  record.gpu_name = gpu_name;
  record.name = demangled(shape.name.c_str());
  record.region = region;
  record.grid = shape.grid;
  record.block = shape.block;
  record.arguments = shape.arguments;
  return record;
}

thread_local bool holds_launches = false;  // this thread is between before() and after() of a counted launch

/// A record for each set of metrics, since each has its own number of calls.
void append_counts(const perf::KernelRecord& identity, const CountedKernel& kernel,
                   std::vector<perf::KernelRecord>& records) {
  for (const Counts* counts : {&kernel.traffic, &kernel.work}) {
    if (counts->calls == 0) continue;
    records.push_back(identity);
    records.back().metrics = counts->sums;
    records.back().counted_calls = counts->calls;
    records.back().least_instructions = counts->least_instructions;
    records.back().most_instructions = counts->most_instructions;
  }
}

}  // namespace

KernelCounter::KernelCounter(SessionFile& file, std::vector<std::string> metrics, int calls)
    : file_(file), metrics_(std::move(metrics)), calls_(calls) {}

KernelCounter::~KernelCounter() = default;

void KernelCounter::context_created(CUcontext context) {
  const std::lock_guard lock(mutex_);
  try {
    const MadeCurrent current(context);
    contexts_[context] = std::make_unique<CountedContext>(context, metrics_);
  } catch (const GpuProfilerError& error) {
    file_.fail(error.code(), error.what());
    write(false);
  }
}

void KernelCounter::context_ends(CUcontext context) {
  const std::lock_guard lock(mutex_);
  CountedContext* counted = context_of(context);
  if (counted == nullptr) return;
  disarm(*counted);
  contexts_.erase(context);
  unroller_.context_ends(context);
  write(false);
}

CountedContext* KernelCounter::context_of(CUcontext context) {
  const auto found = contexts_.find(context);
  return found != contexts_.end() ? found->second.get() : nullptr;
}

CountedKernel& KernelCounter::kernel_of(const CountedContext& context, KernelShape shape) {
  const std::string region = current_region();
  KernelShape bare = shape;
  bare.arguments = 0;
  shape.arguments = first_arguments_.limited(bare, shape.arguments);
  const auto [place, is_new] = kernels_.try_emplace({context.gpu(), shape, region});
  if (is_new) {
    place->second = {.gpu = context.gpu(), .gpu_name = context.gpu_name(), .shape = shape, .region = region};
    const bool few = first_arguments_.number(bare) > 1 || unrolls_;
    place->second.most_calls = few ? std::min(calls_, kFurtherCalls) : calls_;
    if (waits_for_others(shape.name)) place->second.reason = kWaits;
  }
  return place->second;
}

bool KernelCounter::wanted(const CountedContext& context, const CountedKernel& kernel, Armed what) const {
  if (!context.can(what) || !kernel.reason.empty()) return false;
  return what == Armed::for_traffic ? kernel.traffic.planned < kernel.most_calls
                                    : kernel.work.planned < std::min(kernel.most_calls, kWorkCalls);
}

CountedContext::Armed KernelCounter::wanted_of(const CountedContext& context, const CountedKernel& kernel) const {
  for (const Armed what : {Armed::for_traffic, Armed::for_work}) {
    if ((!unrolls_for_ || *unrolls_for_ == what) && wanted(context, kernel, what)) return what;
  }
  return Armed::no;
}

CountedContext::Armed KernelCounter::wanted_of(const CountedContext& context, const std::vector<KernelShape>& kernels) {
  for (const Armed what : {Armed::for_traffic, Armed::for_work}) {
    if (std::any_of(kernels.begin(), kernels.end(),
                    [&](const KernelShape& shape) { return wanted(context, kernel_of(context, shape), what); }))
      return what;
  }
  return Armed::no;
}

void KernelCounter::before(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  const Call kind = kind_of(call);
  if (kind == Call::begin_capture) {
    const std::lock_guard lock(mutex_);
    if (captures_ == 0) disarm_all();
    ++captures_;
  }
  if (kind != Call::launch && kind != Call::graph_launch) return;
  std::unique_lock lock(mutex_);
  CountedContext* context = context_of(data.context);
  if (context == nullptr) return;
  try {
    if (context->failed) {
      if (kind == Call::launch) refuse_launch(*context, call, data);
      return;
    }
    if (captures_ > 0) {
      if (kind == Call::graph_launch) file_.note("CUDA graphs that ran while a stream was captured were not counted");
      return;
    }
    if (kind == Call::launch) {
      before_launch(*context, call, data);
    } else {
      before_graph(*context, call, data);
    }
  } catch (const GpuProfilerError& error) {
    give_up(*context, error);
  }
  if (context->armed() != Armed::no) {
    holds_launches = true;
    lock.release();  // until after()
  }
}

void KernelCounter::give_up(CountedContext& context, const GpuProfilerError& error) {
  file_.fail(error.code(), error.what());
  context.failed = true;
  context.launches.clear();
  context.abandon();
}

void KernelCounter::refuse_graphs(CountedContext& context, const GpuProfilerError& error) {
  context.abandon();  // single kernels can be counted all the same
  file_.note(std::string("a CUDA graph was not counted: ") + error.what());
}

void KernelCounter::refuse_launch(const CountedContext& context, CUpti_CallbackId call,
                                  const CUpti_CallbackData& data) {
  std::optional<KernelShape> shape = shape_of(call, data);
  if (!shape) return;
  shape->arguments = arguments_of(call, data);
  CountedKernel& kernel = kernel_of(context, *shape);
  if (calls_of(kernel) == 0 && kernel.reason.empty()) kernel.reason = kFailed;
}

void KernelCounter::before_launch(CountedContext& context, CUpti_CallbackId call, const CUpti_CallbackData& data) {
  std::optional<KernelShape> shape = shape_of(call, data);
  if (!shape) {
    disarm(context);
    file_.note("kernels that are started by " + std::string(data.functionName) + " were not counted");
    return;
  }
  shape->arguments = arguments_of(call, data);
  CountedKernel& kernel = kernel_of(context, *shape);
  if (context.armed() != Armed::no) {
    context.idle = wanted(context, kernel, context.armed()) ? 0 : context.idle + 1;
    const bool full = context.launches.size() >= context.room;
    if (full || context.idle > most_idle(context.armed()) || !kernel.reason.empty()) disarm(context);
  }
  if (context.failed) return;
  if (context.armed() == Armed::no) {
    const Armed what = wanted_of(context, kernel);
    if (what == Armed::no) return;
    context.arm(what);
  }
  ++counts_for(context.armed(), kernel).planned;
  context.launches.push_back(&kernel);
}

void KernelCounter::before_graph(CountedContext& context, CUpti_CallbackId call, const CUpti_CallbackData& data) {
  if (unroller_.takes_trial(data)) return;
  disarm(context);
  if (context.failed) return;
  const std::vector<KernelShape>* shapes = graphs_.kernels(data);
  if (shapes == nullptr) {
    file_.note("a CUDA graph whose kernels are not known (it has conditional nodes or was changed) was not counted");
    return;
  }
  if (std::any_of(shapes->begin(), shapes->end(), [](const KernelShape& s) { return waits_for_others(s.name); }))
    return;
  CountedGraph& graph = counted_graphs_[{context.gpu(), context.gpu_name(), current_region(), *shapes}];
  if (unroll(context, call, data, *shapes, graph) || graph.unrolls) return;
  if (graph.whole.planned >= kGraphCalls) return;
  ++graph.whole.planned;
  armed_graph_ = &graph.whole;
  try {
    context.arm(Armed::for_graph);
  } catch (const GpuProfilerError& error) {
    refuse_graphs(context, error);
  }
}

bool KernelCounter::unroll(CountedContext& context, CUpti_CallbackId call, const CUpti_CallbackData& data,
                           const std::vector<KernelShape>& kernels, CountedGraph& graph) {
  if (graph.launches >= kMostUnrolled) return false;
  graph.refusal = unroller_.refusal(call, data);
  graph.unrolls = graph.refusal.empty();
  if (!graph.unrolls) return false;
  unrolls_ = true;
  const Armed what = wanted_of(context, kernels);
  GraphUnroller::Outcome outcome;
  if (what != Armed::no) {
    unrolls_for_ = what;
    outcome = unroller_.run(call, data);
    unrolls_for_.reset();
  }
  unrolls_ = false;
  if (what == Armed::no) return false;
  ++graph.launches;
  disarm(context);
  if (outcome.refusal.empty()) return true;
  graph.unrolls = false;
  graph.refusal = outcome.refusal;
  if (outcome.ran_partly) file_.note("a CUDA graph, part of which ran twice in a run that counts, " + outcome.refusal);
  return false;
}

void KernelCounter::after(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  const Call kind = kind_of(call);
  const bool worked = *static_cast<const CUresult*>(data.functionReturnValue) == CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  switch (kind) {
    case Call::begin_capture:
      if (!worked) --captures_;
      break;
    case Call::end_capture:
      // It ends where it fails as well.
      captures_ = std::max(0, captures_ - 1);
      break;
    case Call::graph_instantiate:
    case Call::graph_change:
      if (worked) {
        ReadGraph read = read_graph(call, data);
        unroller_.keep(read);
        graphs_.keep(std::move(read));
      }
      break;
    case Call::graph_step_change:
    case Call::graph_destroy:
      if (worked) unroller_.forget(exec_of(data));
      break;
    case Call::launch:
    case Call::graph_launch:
      if (!holds_launches) break;
      holds_launches = false;
      if (CountedContext* context = context_of(data.context); context != nullptr) {
        if (!worked && !context->launches.empty()) context->launches.pop_back();
        if (kind == Call::graph_launch) disarm(*context);
      }
      mutex_.unlock();  // of before()
      break;
    default:
      break;
  }
  if (file_.due()) write(false);
}

void KernelCounter::disarm(CountedContext& context) {
  if (context.armed() == Armed::no) return;
  const Armed armed = context.armed();
  const std::vector<CountedKernel*> launches = std::move(context.launches);
  context.launches.clear();
  try {
    const auto ranges = context.disarm();
    if (armed == Armed::for_graph) {
      if (ranges.size() == 1) add(ranges.front(), *armed_graph_);
      return;
    }
    bool tied = ranges.size() == launches.size();
    for (std::size_t i = 0; tied && i < launches.size(); ++i) tied = belongs(ranges[i], *launches[i]);
    if (!tied) {
      file_.note("CUPTI's " + std::to_string(ranges.size()) + " ranges are not of the " +
                 std::to_string(launches.size()) + " kernels that were launched: their counts were thrown away");
      return;
    }
    for (std::size_t i = 0; i < launches.size(); ++i) add(ranges[i], counts_for(armed, *launches[i]));
  } catch (const GpuProfilerError& error) {
    if (armed == Armed::for_graph) {
      refuse_graphs(context, error);
    } else {
      give_up(context, error);
    }
  }
}

void KernelCounter::disarm_all() {
  for (const auto& [handle, context] : contexts_) disarm(*context);
}

void KernelCounter::finish(bool done) {
  const std::lock_guard lock(mutex_);
  disarm_all();
  if (captures_ > 0) file_.note("a stream was captured to the end of the process: launches meanwhile were not counted");
  write(done);
}

const CountedKernel* KernelCounter::outside(const GraphKey& graph, const KernelShape& shape) const {
  const auto same = kernels_.find({graph.gpu, shape, graph.region});
  if (same != kernels_.end() && calls_of(same->second) > 0) return &same->second;
  for (auto kernel = kernels_.lower_bound({graph.gpu, shape, ""}); kernel != kernels_.end(); ++kernel) {
    if (kernel->first.gpu != graph.gpu || kernel->first.shape != shape) break;
    if (calls_of(kernel->second) > 0) return &kernel->second;
  }
  // With other arguments: the graph's instructions tell whether these are of the same work.
  if (shape.arguments == 0) return nullptr;
  KernelShape bare = shape;
  bare.arguments = 0;
  for (auto kernel = kernels_.lower_bound({graph.gpu, bare, ""}); kernel != kernels_.end(); ++kernel) {
    const KernelShape& other = kernel->first.shape;
    if (kernel->first.gpu != graph.gpu || other.name != shape.name || other.grid != shape.grid ||
        other.block != shape.block)
      break;
    if (calls_of(kernel->second) > 0) return &kernel->second;
  }
  return nullptr;
}

std::string KernelCounter::refusal(const GraphKey& key, const CountedGraph& graph) const {
  if (graph.unrolls) return "";  // the counts are those of its own nodes
  double expected = 0;
  for (const KernelShape& shape : key.kernels) {
    const CountedKernel* kernel = outside(key, shape);
    if (kernel == nullptr) return kUncheckedGraph;
    expected += instructions_of(*kernel);
  }
  const double executed = per_call(graph.whole, perf::kHardwareInstructions);
  if (graph.whole.calls == 0 || executed <= 0 || expected <= 0) return kUncountedGraph;
  if (std::abs(executed / expected - 1) <= kSameInstructions) return "";
  return "its CUDA graph executes " + rounded(executed / expected) +
         " times the instructions of launches outside it with the same names, grids and blocks";
}

void KernelCounter::append_graphs(std::vector<perf::KernelRecord>& records) const {
  std::set<Key> written;
  for (const auto& [key, graph] : counted_graphs_) {
    const std::string refused = refusal(key, graph);
    for (const KernelShape& shape : key.kernels) {
      if (!written.insert({key.gpu, shape, key.region}).second) continue;
      const CountedKernel* kernel = outside(key, shape);
      perf::KernelRecord record = record_of(key.gpu, key.gpu_name, shape, key.region);
      if (kernel == nullptr) {
        record.reason = kOnlyInGraph + (graph.refusal.empty() ? "" : ": it " + graph.refusal) + kOutside;
      } else if (!refused.empty()) {
        record.reason = refused;
      } else if (kernel->region != key.region || kernel->shape != shape) {
        append_counts(std::move(record), *kernel, records);
        continue;
      } else {
        continue;
      }
      records.push_back(std::move(record));
    }
  }
}

void KernelCounter::write(bool done) {
  std::vector<perf::KernelRecord> records;
  for (const auto& [key, kernel] : kernels_) {
    perf::KernelRecord record = record_of(kernel.gpu, kernel.gpu_name, kernel.shape, kernel.region);
    record.reason = kernel.reason;
    if (calls_of(kernel) > 0) {
      append_counts(std::move(record), kernel, records);
      continue;
    }
    const bool chosen = kernel.traffic.planned + kernel.work.planned > 0;
    if (record.reason.empty()) record.reason = chosen ? kUntied : kFailed;
    records.push_back(std::move(record));
  }
  append_graphs(records);
  file_.write(std::move(records), done);
}

}  // namespace gable::cupti
