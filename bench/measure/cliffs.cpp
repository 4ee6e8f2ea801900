// See cliffs.h.
#include "bench/measure/cliffs.h"

#include <gable/error.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>

#include "bench/measure/op_runner.h"
#include "bench/workloads/problem.h"
#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

constexpr double kEventSampleSeconds = 1e-3;  ///< long enough for the host to stay ahead of a GPU
constexpr double kAgain = 3;                  ///< the second measurement is this much longer
constexpr double kNoise = 1.02;               ///< ratio of two medians in turn of the same program

// ---- properties ---------------------------------------------------------------------------------------------------

Conv2d in_dtype(Conv2d conv, DType dtype) {
  conv.dtype = dtype;
  return conv;
}

Conv2d in_layout(Conv2d conv, Layout layout) {
  conv.layout = layout;
  return conv;
}

Conv2d with_batch(Conv2d conv, std::int64_t batch) {
  conv.input[0] = batch;
  return conv;
}

Conv2d without_groups(Conv2d conv) {
  conv.weights[1] = conv.input[1];
  conv.groups = 1;
  return conv;
}

std::int64_t next_16(std::int64_t channels) { return (channels + 15) / 16 * 16; }

void add_channels(const Conv2d& layer, std::vector<Property>& all) {
  constexpr double kLimit = 1.15;
  const auto add = [&](const char* name, const Conv2d& padded) {
    if (!(padded == layer)) all.push_back({name, kLimit, 1, layer, {padded}});
  };
  if (layer.groups == 1) {
    Conv2d more = layer;
    more.input[1] = more.weights[1] = next_16(layer.input[1]);
    add("input channels", more);
    more = layer;
    more.weights[0] = next_16(layer.weights[0]);
    add("output channels", more);
  } else if (layer.weights[1] == 1) {
    Conv2d more = layer;
    more.groups = more.input[1] = next_16(layer.input[1]);
    more.weights[0] = more.groups * (layer.weights[0] / layer.groups);
    add("channels", more);
  }
}

// ---- timing -------------------------------------------------------------------------------------------------------

/// An op with its tensors.
struct Runner {
  OpData data;
  std::unique_ptr<OpRunner> runner;
};

std::optional<Runner> runner_of(const OpenDevice& device, const Op& op) try {
  Runner runner{.data = {}, .runner = std::make_unique<OpRunner>(device, op)};
  runner.data = random_data(op);
  runner.runner->prepare(runner.data);
  return runner;
} catch (const Error&) {
  return std::nullopt;
}

// ---- the search ---------------------------------------------------------------------------------------------------

/// Every op of the properties once.
std::vector<Op> ops_of(std::span<const Property> properties) {
  std::vector<Op> ops;
  const auto add = [&](const Op& op) {
    if (std::find(ops.begin(), ops.end(), op) == ops.end()) ops.push_back(op);
  };
  for (const Property& property : properties) {
    add(property.layer);
    for (const Op& other : property.others) add(other);
  }
  return ops;
}

CliffTerm term_of(const Op& op, const TimedOp& timed) {
  CliffTerm term{.op = std::string(name(op)),
                 .problem = descriptor(op),
                 .dtype = std::string(to_string(dtype_of(op))),
                 .kernel = timed.kernel,
                 .seconds = timed.seconds};
  if (const auto* conv = std::get_if<Conv2d>(&op)) term.layout = to_string(conv->layout);
  if (const auto* reorder = std::get_if<Reorder>(&op)) {
    term.layout = std::string(to_string(reorder->from)) + " to " + std::string(to_string(reorder->to));
  }
  return term;
}

/// The property with its numbers; none where the device has no kernel for one of its ops.
std::optional<Cliff> judged(const Property& property, const std::vector<Op>& ops, const std::vector<TimedOp>& times) {
  const auto timed = [&](const Op& op) {
    return times[static_cast<std::size_t>(std::find(ops.begin(), ops.end(), op) - ops.begin())];
  };
  Cliff cliff{.property = property.name,
              .layer = term_of(property.layer, timed(property.layer)),
              .times = property.times,
              .limit = property.limit};
  double sum = 0;
  bool complete = cliff.layer.seconds > 0;
  for (const Op& other : property.others) {
    cliff.others.push_back(term_of(other, timed(other)));
    sum += cliff.others.back().seconds;
    complete = complete && cliff.others.back().seconds > 0;
  }
  if (!complete) return std::nullopt;
  cliff.ratio = cliff.layer.seconds / (property.times * sum);
  return cliff;
}

bool is_broken(const Cliff& cliff) { return cliff.ratio > cliff.limit * kNoise; }

/// Finds and counts the cliffs of one layer after another.
class Search {
 public:
  Search(const CliffJob& job, const TimeOps& time_ops) : job_(job), time_ops_(time_ops) {}

  void check(const Conv2d& layer) {
    const std::vector<Property> properties = properties_of(layer, kDenseFactor * job_.limits.gflop);
    const std::vector<Op> ops = ops_of(properties);
    const std::vector<TimedOp> times = time_ops_(ops, job_.seconds_each);
    for (const Property& property : properties) {
      std::optional<Cliff> cliff = judged(property, ops, times);
      if (!cliff) continue;
      if (is_broken(*cliff)) cliff = again(property);
      if (cliff) count(*cliff);
    }
  }

  CliffDocument document() {
    std::stable_sort(document_.broken.begin(), document_.broken.end(),
                     [](const Cliff& a, const Cliff& b) { return a.ratio / a.limit > b.ratio / b.limit; });
    return std::move(document_);
  }

 private:
  static constexpr double kDenseFactor = 2;  ///< dense layers may have this many times the work of others

  std::optional<Cliff> again(const Property& property) {
    const std::vector<Op> ops = ops_of({&property, 1});
    return judged(property, ops, time_ops_(ops, kAgain * job_.seconds_each));
  }

  void count(const Cliff& cliff) {
    std::vector<PropertyCount>& counts = document_.properties;
    auto found = std::find_if(counts.begin(), counts.end(),
                              [&](const PropertyCount& one) { return one.property == cliff.property; });
    if (found == counts.end()) found = counts.insert(found, {.property = cliff.property, .limit = cliff.limit});
    ++found->checked;
    found->worst = std::max(found->worst, cliff.ratio);
    if (!is_broken(cliff)) return;
    ++found->broken;
    document_.broken.push_back(cliff);
  }

  const CliffJob& job_;
  const TimeOps& time_ops_;
  CliffDocument document_;
};

}  // namespace

std::vector<Property> properties_of(const Conv2d& layer, double most_gflop) {
  std::vector<Property> all;
  const Conv2d f32 = in_dtype(layer, DType::f32);
  all.push_back({"bf16", 1.1, 1, in_dtype(layer, DType::bf16), {f32}});
  all.push_back({"f16", 1.1, 1, in_dtype(layer, DType::f16), {f32}});
  if (const Conv2d dense = without_groups(layer); layer.groups > 1 && work(dense).flop <= most_gflop * 1e9) {
    all.push_back({"groups", 1, 1, layer, {dense}});
  }
  add_channels(layer, all);
  if (const std::int64_t batch = layer.input[0]; batch > 1) {
    all.push_back({"batch", 1.1, static_cast<double>(batch), layer, {with_batch(layer, 1)}});
  }
  const Reorder in{.shape = layer.input, .from = Layout::nchw, .to = Layout::nhwc, .dtype = layer.dtype};
  const Reorder out{.shape = output_shape(layer), .from = Layout::nhwc, .to = Layout::nchw, .dtype = layer.dtype};
  all.push_back({"layout", 1, 1, in_layout(layer, Layout::nchw), {in_layout(layer, Layout::nhwc), in, out}});
  return all;
}

TimeOps timer_on(const OpenDevice& device) {
  return [&device](const std::vector<Op>& ops, double seconds) {
    std::vector<TimedOp> timed(ops.size());
    std::vector<std::optional<Runner>> runners;
    std::vector<perf::Subject> subjects;
    for (const Op& op : ops) {
      runners.push_back(runner_of(device, op));
      if (runners.back()) subjects.push_back(runners.back()->runner->subject());
    }
    if (subjects.empty()) return timed;
    perf::TimingOptions options{.min_runs = 3, .max_runs = 200, .budget_seconds = seconds};
    if (device.on_gpu()) options.min_sample_seconds = kEventSampleSeconds;
    const std::vector<perf::Timing> timings =
        perf::measure_alternating(std::span<const perf::Subject>(subjects), options);
    auto timing = timings.begin();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (runners[i]) timed[i] = {(timing++)->seconds, runners[i]->runner->plan().kernel()};
    }
    return timed;
  };
}

CliffDocument find_cliffs(const CliffJob& job, const TimeOps& time_ops, const std::function<void(int)>& progress) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  RandomLayers layers(job.seed, job.limits);
  Search search(job, time_ops);
  int done = 0;
  for (; done < job.layers && seconds() < job.seconds && perf::interrupting_signal() == 0; ++done) {
    progress(done);
    search.check(layers.next());
  }
  CliffDocument document = search.document();
  document.seed = job.seed;
  document.layers = done;
  document.seconds = seconds();
  return document;
}

}  // namespace gable::bench
