// See choice_commands.h.
#include "bench/cli/choice_commands.h"

#include <fmt/format.h>
#include <gable/backend.h>
#include <gable/ceilings.h>
#include <gable/choose.h>
#include <gable/error.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "bench/common/text.h"
#include "bench/record/study_json.h"
#include "bench/workloads/data.h"
#include "bench/workloads/identity.h"
#include "bench/workloads/problem.h"
#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr double kMaxSecondsEach = 4;  // for tuning one op (half of it for the search for cuDNN's plan), or if longer:
constexpr double kTimesPredicted = 4;  // times the predicted time of its tensors and two runs
constexpr double kReserve = 0.05;      // of all seconds, for what an op takes beyond its own

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

OpenDevice open_auto(const ChoiceOptions& options) {
  OpenDevice device = open_devices({options.device}, options.threads).front();
  if (parse_device_uri(options.device).backend != "auto") {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--device {}: there is something to choose among several devices or kernels: write "
                            "auto?only={}",
                            options.device, options.device));
  }
  return device;
}

std::string title(const Case& one) { return printable(fmt::format("{} {}", one.name, to_string(dtype_of(one.op)))); }

std::string text_of(const Candidate& one) { return fmt::format("{}/{}", one.device, one.kernel); }

/// Seconds for one of several ops that share `remaining` but for `reserve`; a long op gets more than its share.
double seconds_for(const Case& one, const Ranking& ranking, double remaining, double reserve, std::size_t ops) {
  const double share = std::clamp((remaining - reserve) / static_cast<double>(ops), 0.0, kMaxSecondsEach);
  const double run = ranking.first() == nullptr ? 0 : ranking.first()->predicted.value_or(0);
  return std::min(remaining, std::max(share, kTimesPredicted * (2 * run + seconds_to_make(one.op, 1))));
}

/// One op that was tuned, beside what the model would have taken.
struct Tuned {
  const Case* one;
  Candidate best;
  Candidate predicted;
};

const Candidate* same_candidate(const Ranking& ranking, const Candidate& wanted) {
  for (const Candidate& one : ranking.candidates) {
    if (one.device == wanted.device && one.kernel == wanted.kernel) return &one;
  }
  return nullptr;
}

std::string line_of(const Tuned& tuned) {
  std::string line = fmt::format("{:<28} {:<26} {:>8}", title(*tuned.one), text_of(tuned.best),
                                 tuned.best.measured ? seconds_text(*tuned.best.measured) : "-");
  const bool other = tuned.best.device != tuned.predicted.device || tuned.best.kernel != tuned.predicted.kernel;
  if (other && tuned.predicted.measured && tuned.best.measured) {
    line += fmt::format("  the model's {} {} ({:.2f}x)", text_of(tuned.predicted),
                        seconds_text(*tuned.predicted.measured), *tuned.predicted.measured / *tuned.best.measured);
  }
  return line;
}

json tuned_json(const Tuned& tuned) {
  const Identity identity = identity_of(*tuned.one);
  json row{{"suite", identity.suite},
           {"name", identity.name},
           {"problem", identity.problem},
           {"dtype", identity.dtype},
           {"layout", identity.layout},
           {"device", tuned.best.device},
           {"kernel", tuned.best.kernel},
           {"model_device", tuned.predicted.device},
           {"model_kernel", tuned.predicted.kernel}};
  if (tuned.best.measured) row["seconds"] = *tuned.best.measured;
  if (tuned.predicted.measured) row["model_seconds"] = *tuned.predicted.measured;
  return row;
}

bool is_cache_off() {
  const char* const chosen = std::getenv("GABLE_CACHE");
  return chosen != nullptr && std::string_view(chosen) == "off";
}

Selection selected(const ChoiceOptions& options, const OpenDevice& device, Console& console) {
  Selection selection = select(options.selection, device.on_gpu());
  print_refusals(selection.refused, console);
  return selection;
}

/// Every second round runs in reverse order, so that different layers precede a layer.
std::size_t place_in_round(std::size_t at, std::size_t count, std::size_t round) {
  const std::size_t from = (at + round / 2 * count / 3) % count;
  return round % 2 == 0 ? from : count - 1 - from;
}

Refusal refusal_of(const Case& one, const OpenDevice& device, const Error& error) {
  const Identity identity = identity_of(one);
  return {identity.suite, identity.name, identity.problem, identity.dtype, identity.math, device.uri, error.what()};
}

struct TuneOutcome {
  int tuned = 0, known = 0, left = 0;
  json rows = json::array();
  std::vector<Refusal> refused{};
};

/// Tunes the op. `before` is what `auto` knew of it.
Tuned tune_one(const Case& one, const Device& device, const Ranking& before, double seconds) {
  require_memory(bytes_needed(one.op, 2), fmt::format("'{}'", descriptor(one.op)));
  const Ranking after = tune(device, one.op, seconds);
  const Candidate* const best = after.first();
  const Candidate* const predicted = before.first() == nullptr ? nullptr : same_candidate(after, *before.first());
  if (best == nullptr || predicted == nullptr) {
    throw Error(ErrorCode::device_failure, "every candidate failed: " + after.candidates.front().refusal);
  }
  return {&one, *best, *predicted};
}

TuneOutcome tune_all(const ChoiceOptions& options, const OpenDevice& device, const std::vector<Case>& cases,
                     const Clock::time_point& start, Console& console) {
  TuneOutcome outcome;
  const std::size_t count = cases.size();
  for (std::size_t i = 0; i < count && perf::interrupting_signal() == 0; ++i) {
    const Case& one = cases[i];
    console.progress(i, count, title(one));
    const double remaining = options.seconds - seconds_since(start);
    try {
      const Ranking before = choose(device.device, one.op);
      if (before.source == ChoiceSource::measured && !options.again) {
        ++outcome.known;
      } else if (remaining <= 0) {
        ++outcome.left;
      } else {
        const Tuned result = tune_one(one, device.device, before,
                                      seconds_for(one, before, remaining, kReserve * options.seconds, count - i));
        console.print(line_of(result));
        outcome.rows.push_back(tuned_json(result));
        ++outcome.tuned;
      }
    } catch (const Error& error) {
      outcome.refused.push_back(refusal_of(one, device, error));
    }
  }
  console.finish_progress();
  return outcome;
}

/// The medians of all rounds, with the median time of choosing.
RegretDocument measure_regret(const ChoiceOptions& options, const OpenDevice& device, const std::vector<Case>& cases,
                              Console& console) {
  const std::size_t count = cases.size(), runs = count * static_cast<std::size_t>(options.rounds);
  std::vector<RegretDocument> rounds{{.device = device.uri}};
  RegretMeter meter(device, options.job);
  std::vector<double> choosing;
  for (std::size_t i = 0; i < runs && perf::interrupting_signal() == 0; ++i) {
    if (i > 0 && i % count == 0) rounds.push_back({.device = device.uri});
    RegretDocument& document = rounds.back();
    const Case& one = cases[place_in_round(i % count, count, i / count)];
    console.progress(i, runs, title(one));
    try {
      meter.measure(one, document);
      const Clock::time_point start = Clock::now();
      choose(device.device, one.op);
      choosing.push_back(seconds_since(start));
    } catch (const Error& error) {
      ++document.without_choice;
      document.refused.push_back(refusal_of(one, device, error));
    }
  }
  console.finish_progress();
  RegretDocument document = median_of(std::move(rounds));
  document.rounds = options.rounds;
  std::sort(choosing.begin(), choosing.end());
  if (!choosing.empty()) document.choosing = choosing[choosing.size() / 2];
  return document;
}

void print_worst(const RegretDocument& document, std::size_t most, Console& console) {
  std::vector<const RegretLayer*> worst;
  for (const RegretLayer& layer : document.layers) worst.push_back(&layer);
  std::stable_sort(worst.begin(), worst.end(), [](const auto* a, const auto* b) { return a->ratio() > b->ratio(); });
  console.print(fmt::format("{:>6}  {:<5} {:<6} {:<28} {:<28} layer", "regret", "dtype", "layout", "pick", "best"));
  for (std::size_t i = 0; i < std::min(most, worst.size()) && worst[i]->ratio() > 1; ++i) {
    const RegretLayer& one = *worst[i];
    console.print(
        printable(fmt::format("{:6.2f}  {:<5} {:<6} {:<28} {:<28} {} {}", one.ratio(), one.identity.dtype,
                              one.identity.layout, one.pick.device + "/" + one.pick.kernel,
                              one.best.device + "/" + one.best.kernel, one.identity.name, one.identity.problem)));
  }
}

void print_summaries(const RegretDocument& document, Console& console) {
  for (const RegretSummary& one : document.summaries) {
    const std::string sure =
        document.rounds == 1 ? ""
                             : fmt::format(" (beyond the noise {}, worst {:.2f})", one.surely_above, one.surely_worst);
    const std::string unsteady =
        one.unsteady == 0
            ? ""
            : fmt::format("; {} on cores below {} of their fastest rate, without these geo {:.3f}, worst {:.2f}",
                          one.unsteady, kSteadyRate, one.steady_geo, one.steady_worst);
    console.print(fmt::format("{} {}: {} layers with a choice: geo {:.3f}, worst {:.2f}, {} above 1.05{}, {} right{}",
                              one.dtype, one.layout, one.layers, one.geo, one.worst, one.above, sure, one.right,
                              unsteady));
  }
  console.print(fmt::format("{} without a choice; choosing took {} (median)", document.without_choice,
                            seconds_text(document.choosing)));
}

}  // namespace

ExitCode tune_command(const ChoiceOptions& options, Console& console) {
  console.check_target();
  const OpenDevice device = open_auto(options);
  const Selection selection = selected(options, device, console);
  const Clock::time_point start = Clock::now();
  const perf::InterruptKeeper interrupts;
  TuneOutcome outcome = tune_all(options, device, selection.cases, start, console);
  print_refusals(outcome.refused, console);
  const double took = seconds_since(start);
  const std::string why =
      outcome.left > 0 ? fmt::format(", since the {} s of --seconds were over", options.seconds) : "";
  console.print(fmt::format("{} tuned in {:.1f} s, {} known before, {} left{}", outcome.tuned, took, outcome.known,
                            outcome.left, why));
  if (is_cache_off()) console.print("nothing is kept, since GABLE_CACHE is off");
  console.emit({{"schema_version", 1},
                {"machine", machine_json(perf::describe_machine(), options.command)},
                {"device", device.uri},
                {"seconds", took},
                {"known", outcome.known},
                {"left", outcome.left},
                {"tuned", std::move(outcome.rows)},
                {"refused", to_json(outcome.refused)}});
  return outcome.tuned + outcome.known > 0 || outcome.refused.empty() ? kDone : kUnsupported;
}

ExitCode tune_ceilings_command(const ChoiceOptions& options, Console& console) {
  console.check_target();
  const double rate = tune_ceilings();
  console.print(
      fmt::format("one core: {:.1f} GFLOP/s of f32 from registers; predicted times of devices on the host rest on it",
                  2e-9 * rate));
  console.emit({{"schema_version", 1},
                {"machine", machine_json(perf::describe_machine(), options.command)},
                {"core_multiply_adds", rate}});
  return kDone;
}

ExitCode regret_command(const ChoiceOptions& options, Console& console) {
  console.check_target();
  const OpenDevice device = open_auto(options);
  const Selection selection = selected(options, device, console);
  const perf::InterruptKeeper interrupts;
  RegretDocument document = measure_regret(options, device, selection.cases, console);
  print_refusals(document.refused, console);
  if (document.layers.empty() && perf::interrupting_signal() != 0) return kDone;
  if (document.layers.empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("'{}' has nothing to choose for these layers: one device and kernel "
                            "takes each of them (--kernels compares all kernels)",
                            device.uri));
  }
  summarize(document);
  print_worst(document, options.most, console);
  print_summaries(document, console);
  json record = to_json(document);
  record["machine"] = machine_json(perf::describe_machine(), options.command);
  record["refused"] = to_json(document.refused);
  console.emit(record);
  const bool within = std::all_of(document.summaries.begin(), document.summaries.end(), [&](const RegretSummary& one) {
    return one.geo <= options.geo && one.worst <= options.worst;
  });
  return within ? kDone : kCheckFailed;
}

}  // namespace gable::bench
