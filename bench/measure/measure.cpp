// See measure.h.
#include "bench/measure/measure.h"

#include <fmt/format.h>
#include <gable/backend.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <new>
#include <span>

#include "bench/measure/in_turn.h"
#include "bench/measure/timed_row.h"
#include "bench/workloads/identity.h"
#include "bench/workloads/problem.h"

namespace gable::bench {
namespace {

double now(const MeasureOptions& options) {
  if (options.clock) return options.clock();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Divides the remaining time among the remaining cases. What a case is expected to take is what the cases before it
/// took on average, without the first one, which loads libraries.
class Budget {
 public:
  Budget(const MeasureOptions& options, std::size_t cases, std::size_t devices)
      : options_(options), cases_left_(cases), devices_(devices) {}

  bool spent() const { return options_.seconds_total > 0 && left() <= 0; }
  bool is_limited() const { return options_.seconds_total > 0; }
  double left() const { return options_.seconds_total + excused_ - since(start_); }
  void begin_case() { case_start_ = now(options_), reported_ = 0; }
  void finish_case() {
    (finished_++ > 0 ? timed_ : first_) += since(case_start_) - reported_;
    --cases_left_;
  }
  /// A report took `seconds`; `excused` of them do not count.
  void add_report(double seconds, double excused) {
    reported_ += seconds;
    excused_ += excused;
    beside_times_ += seconds - excused;
  }

  /// Seconds for one device and one cache state of the case.
  double of_case(std::size_t devices) const {
    if (options_.seconds_total <= 0) return options_.seconds_each;
    const auto turns = static_cast<double>(std::max<std::size_t>(1, devices) * options_.caches.size());
    const double share = (1 - options_.share_beside_times) * left() / (static_cast<double>(cases_left_) * turns);
    return std::min(options_.seconds_each, share);
  }

  /// The time that is left besides that for the following cases. If these can't all be measured, enough for reports to
  /// have their share of the time so far: W and Q for a kind of row that has none are worth more than another T.
  double spare() const {
    if (options_.seconds_total <= 0) return std::numeric_limits<double>::infinity();
    constexpr double kMargin = 1.25;
    const double expected = finished_ > 1 ? timed_ / static_cast<double>(finished_ - 1)
                            : finished_ == 1
                                ? first_
                                : of_case(devices_) * static_cast<double>(devices_ * options_.caches.size());
    const double beyond = left() - kMargin * expected * static_cast<double>(cases_left_ - 1);
    const double share = options_.share_beside_times;
    const double times = since(start_) - excused_ - beside_times_;
    return std::clamp(std::max(beyond, share / (1 - share) * times - beside_times_), 0.0, std::max(0.0, left()));
  }

 private:
  double since(double start) const { return now(options_) - start; }

  const MeasureOptions& options_;
  std::size_t cases_left_, devices_;
  std::size_t finished_ = 0;
  double first_ = 0;         ///< seconds of the first case without its reports
  double timed_ = 0;         ///< of the other finished cases
  double reported_ = 0;      ///< of this case
  double beside_times_ = 0;  ///< of all reports
  double excused_ = 0;
  double start_ = now(options_), case_start_ = start_;
};

/// True for cases that differ only in their math: they use the same data and take turns.
using Rivals = std::span<const Case>;

bool differ_in_math_alone(const Case& a, const Case& b) {
  return a.suite == b.suite && a.name == b.name && a.op == in_math(b.op, math_of(a.op));
}

/// The cases in groups of neighbouring rivals.
std::vector<Rivals> rivals_of(const std::vector<Case>& cases) {
  std::vector<Rivals> all;
  for (auto first = cases.begin(); first != cases.end();) {
    const auto last =
        std::find_if_not(first, cases.end(), [&](const Case& one) { return differ_in_math_alone(*first, one); });
    all.emplace_back(first, last);
    first = last;
  }
  return all;
}

/// A case on a device, with the seconds of its first run, on a GPU of its second, since the first one loads code.
struct Contestant {
  const Case* one;
  std::unique_ptr<OpRunner> runner;
  double first_run = 0;
  double making = 0;  ///< seconds of the plan
};

/// The kernels with their reasons, where several refuse: the error may name the one attribute at fault instead.
std::vector<KernelRefusal> kernel_refusals(const Device& device, const Op& op, const Error& error) {
  std::vector<KernelRefusal> kernels;
  if (error.code() != ErrorCode::unsupported) return kernels;
  try {
    for (KernelSupport& one : device.query(op)) kernels.push_back({std::move(one.kernel), std::move(one.reason)});
  } catch (const Error&) {
    return {};
  }
  return kernels.size() > 1 ? kernels : std::vector<KernelRefusal>{};
}

/// Makes a plan for each case on every device that supports it.
std::vector<Contestant> plan_all(Rivals rivals, const MeasureJob& job) {
  std::vector<Contestant> contestants;
  for (const Case& one : rivals) {
    try {
      validate(one.op);  // the shape is valid here, but the dtype may not have this math
    } catch (const Error& error) {
      job.outcome.refuse(identity_of(one), "", error);
      continue;
    }
    for (const OpenDevice& device : job.devices) {
      try {
        const double start = now(job.options);
        contestants.push_back({&one, std::make_unique<OpRunner>(device, one.op)});
        contestants.back().making = now(job.options) - start;
      } catch (const Error& error) {
        job.outcome.refuse(identity_of(one), device.uri, error, kernel_refusals(device.device, one.op, error));
      }
    }
  }
  return contestants;
}

/// Makes their tensors. Those that find no memory are refused and left out.
void prepare(std::vector<Contestant>& contestants, const OpData& data, Outcome& outcome) {
  std::erase_if(contestants, [&](const Contestant& c) {
    try {
      c.runner->prepare(data);
      return false;
    } catch (const Error& error) {
      outcome.refuse(identity_of(*c.one), c.runner->device().uri, error);
      return true;
    }
  });
}

/// The convolution without reuse: a multiplication reads both operands, and each output is written once.
std::optional<NaiveModel> naive_model(const Op& op, double flop) {
  const auto* conv = std::get_if<Conv2d>(&op);
  if (conv == nullptr) return std::nullopt;
  const double terms = static_cast<double>(conv->weights[1] * conv->weights[2] * conv->weights[3]);
  const double outputs = flop / (2 * terms);
  return NaiveModel{.bytes = static_cast<double>(size_of(conv->dtype)) * outputs * (2 * terms + 1), .seconds = {}};
}

Placement place_of(const Contestant& c, perf::Cache cache) {
  Placement place = c.runner->placement();
  place.cache = cache == perf::Cache::warm ? "warm" : "cold";
  return place;
}

/// The same convolution with twice the batch; nothing for other ops.
std::optional<Op> with_twice_the_batch(const Op& op) {
  const auto* conv = std::get_if<Conv2d>(&op);
  if (conv == nullptr) return std::nullopt;
  Conv2d twice = *conv;
  twice.input[0] *= 2;
  return twice;
}

/// Longer calls are not bound by the cost of a call.
constexpr double kLongestScaled = 2e-3;   // seconds
constexpr double kLargestScaled = 256e6;  // bytes of tensors: making random ones takes time as well
const Round kScalingRound{.budget = 0.04, .max_runs = 9};

/// How T grows with the batch: `c` in turn with a runner of twice the batch. Nothing where the device can't run that.
std::optional<Scaling> scaling_of(const Contestant& c, double seconds) {
  const std::optional<Op> twice = with_twice_the_batch(c.one->op);
  if (!twice || seconds > kLongestScaled || bytes_needed(*twice, 1) > kLargestScaled) return std::nullopt;
  try {
    OpRunner runner(c.runner->device(), *twice);
    const OpData data = random_data(*twice);
    runner.prepare(data);
    const bool by_events = runner.timed_by_events();
    const double first = run_first([&runner] { runner.run(); }, by_events);
    const std::vector<perf::Timing> timings =
        time_in_turn({{c.runner->subject(), seconds, by_events}, {runner.subject(), first, by_events}}, kScalingRound);
    const Work work = c.runner->plan().work(), more = runner.plan().work();
    const std::string kernel = runner.placement().kernel;
    return Scaling{.work = more.flop / work.flop,
                   .bytes = more.bytes() / work.bytes(),
                   .time = timings[1].seconds / timings[0].seconds,
                   .kernel = kernel == c.runner->placement().kernel ? "" : kernel};
  } catch (const Error&) {  // no memory, or no kernel: the row stands without it
    return std::nullopt;
  }
}

Measured measured_of(const Contestant& c, perf::Cache cache, const perf::Timing& timing) {
  const Plan& plan = c.runner->plan();
  const Work least = plan.work();
  Row row =
      timed_row(identity_of(*c.one), place_of(c, cache), {c.runner->time_source(), timing, least.flop, least.bytes()});
  row.naive = naive_model(c.one->op, least.flop);
  return {c.one, c.runner.get(), std::move(row)};
}

/// Keeps the rows of the contestants if all of them are known; otherwise returns false.
bool keep_known(const std::vector<Contestant>& contestants, const MeasureJob& job, const MeasureCallbacks& callbacks) {
  if (job.known.empty()) return false;
  for (const perf::Cache cache : job.options.caches) {
    for (const Contestant& c : contestants) {
      // One row for each contestant that can't be told apart: the same problem given twice, or a device under two
      // names.
      const auto alike = std::count_if(contestants.begin(), contestants.end(), [&](const Contestant& other) {
        return KnownRows::alike(identity_of(*c.one), place_of(c, cache), identity_of(*other.one),
                                place_of(other, cache));
      });
      if (job.known.count(identity_of(*c.one), place_of(c, cache)) < static_cast<std::size_t>(alike)) return false;
    }
  }
  for (const perf::Cache cache : job.options.caches) {
    for (const Contestant& c : contestants) {
      callbacks.keep(job.known.take(identity_of(*c.one), place_of(c, cache)));
      ++job.outcome.ran;
    }
  }
  return true;
}

/// The device could run the case; only time was missing.
void leave_out(const Case& one, const OpenDevice& device, const MeasureJob& job) {
  job.outcome.refuse(identity_of(one), device.uri,
                     Error(ErrorCode::unsupported,
                           fmt::format("{} ({:.3g} s for these devices)", kOutOfTime, job.options.seconds_total)));
}

/// Leaves out contestants whose first runs would exceed the time: a run can't be interrupted.
void leave_out_too_long(std::vector<Contestant>& contestants, const Op& op, const Budget& budget,
                        const MeasureJob& job) {
  if (!budget.is_limited()) return;
  double needed = seconds_to_make(op, contestants.size());
  std::erase_if(contestants, [&](const Contestant& c) {
    const double run = c.runner->device().device.impl().predicted_seconds(c.one->op).value_or(0);
    const double runs = static_cast<double>(job.options.caches.size()) * run;
    if (needed + runs <= budget.left()) {
      needed += runs;
      return false;
    }
    job.outcome.refuse(
        identity_of(*c.one), c.runner->device().uri,
        Error(ErrorCode::unsupported,
              fmt::format("{}: of {:.3g} s that are left its first runs would take {:.3g} s by prediction, "
                          "and making tensors {:.3g} s",
                          kOutOfTime, budget.left(), runs, seconds_to_make(op, 1))));
    return true;
  });
}

void leave_out(Rivals rivals, const MeasureJob& job) {
  for (const Case& one : rivals) {
    for (const OpenDevice& device : job.devices) leave_out(one, device, job);
  }
}

/// The whole budget, or a round's part of it where the calls are short enough.
Round round_of(double seconds, double slowest, const MeasureOptions& options) {
  constexpr double kSampledShare = 0.25;  // of the time, for calls that are batched to longer samples
  const double part = seconds / options.rounds;
  if (options.rounds == 1 || slowest > part) return {.budget = seconds, .max_runs = options.max_runs};
  return {.budget = part, .max_runs = options.max_runs, .sample_seconds = kSampledShare * part / options.max_runs};
}

void measure_rivals(Rivals rivals, Budget& budget, const MeasureJob& job, const MeasureCallbacks& callbacks) {
  const Op op = in_math(rivals.front().op, Math::strict);  // the data are the same for every math
  validate(op);
  require_memory(bytes_needed(op, job.devices.size() * rivals.size()), fmt::format("'{}'", descriptor(op)));
  std::vector<Contestant> contestants = plan_all(rivals, job);
  if (keep_known(contestants, job, callbacks)) return;
  if (budget.spent()) {
    for (const Contestant& c : contestants) leave_out(*c.one, c.runner->device(), job);
    return;
  }
  leave_out_too_long(contestants, op, budget, job);
  if (contestants.empty()) return;
  const double seconds = budget.of_case(job.devices.size() * rivals.size());
  const OpData data = random_data(op);
  prepare(contestants, data, job.outcome);
  for (Contestant& c : contestants) c.first_run = run_first([&c] { c.runner->run(); }, c.runner->timed_by_events());
  const auto report = [&](const Measured& measured) {
    const double start = now(job.options);
    const double excused = callbacks.report(measured, budget.spare());
    budget.add_report(now(job.options) - start, excused);
    ++job.outcome.ran;
  };
  std::vector<Turn> turns;
  double slowest = 0;
  for (const Contestant& c : contestants) {
    turns.push_back({c.runner->subject(), c.first_run, c.runner->timed_by_events()});
    slowest = std::max(slowest, c.first_run);
  }
  Round round = round_of(seconds, slowest, job.options);
  for (const perf::Cache cache : job.options.caches) {
    round.cache = cache;
    round.clock = job.options.clock;
    const std::vector<perf::Timing> timings = time_in_turn(turns, round);
    for (std::size_t i = 0; i < turns.size(); ++i) {
      Measured measured = measured_of(contestants[i], cache, timings[i]);
      // If a plan takes longer to make than a row's time (cuDNN compiles engines), a second one would cost other rows
      // their time.
      const bool is_affordable = job.options.seconds_total <= 0 || contestants[i].making <= seconds;
      if (job.options.scale && cache == perf::Cache::warm && is_affordable)
        measured.row.scaling = scaling_of(contestants[i], timings[i].seconds);
      report(measured);
    }
  }
}

void refuse_all(Rivals rivals, const Error& error, Outcome& outcome) {
  for (const Case& one : rivals) outcome.refuse(identity_of(one), "", error);
}

}  // namespace

void measure_cases(const std::vector<Case>& cases, const MeasureJob& job, const MeasureCallbacks& callbacks) {
  const std::vector<Rivals> all = rivals_of(cases);
  Budget budget(job.options, all.size(), job.devices.size());
  std::size_t done = 0;
  for (const Rivals rivals : all) {
    const Case& one = rivals.front();
    budget.begin_case();
    callbacks.progress(done++, all.size(), fmt::format("{} {}", one.name, to_string(dtype_of(one.op))));
    try {
      if (budget.spent() && job.known.empty()) {
        leave_out(rivals, job);
      } else {
        measure_rivals(rivals, budget, job, callbacks);
      }
    } catch (const Error& error) {
      refuse_all(rivals, error, job.outcome);
    } catch (const std::bad_alloc&) {
      refuse_all(rivals, Error(ErrorCode::out_of_memory, "host memory ran out"), job.outcome);
    }
    budget.finish_case();
  }
}

}  // namespace gable::bench
