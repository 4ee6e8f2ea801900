// See regret.h.
#include "bench/measure/regret.h"

#include <gable/backend.h>
#include <gable/choose.h>
#include <gable/error.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "bench/measure/measure.h"
#include "bench/workloads/identity.h"
#include "perfcounters/timing.h"

namespace gable::bench {
namespace {

/// Candidates that are this many times slower than the pick, by prediction or measurement, are no contestants.
constexpr double kFarSlower = 8;
constexpr double kAbove = 1.05;  // a regret that counts

bool is_far_slower(const Candidate& one, const Candidate& pick) {
  if (one.measured && pick.measured) return *one.measured > kFarSlower * *pick.measured;
  return one.predicted && pick.predicted && *one.predicted > kFarSlower * *pick.predicted;
}

std::string with_option(const std::string& text, const std::string& option, const std::string& value) {
  DeviceUri uri = parse_device_uri(text);
  uri.options[option] = value;
  return to_string(uri);
}

std::string without_kernel(const std::string& text) {
  DeviceUri uri = parse_device_uri(text);
  uri.options.erase("kernel");
  return to_string(uri);
}

/// A device whose times hold copies is run by an `auto` of it alone.
std::string uri_of(const Candidate& one) {
  if (one.copies == 0) return one.device;
  DeviceUri inner = parse_device_uri(one.device);
  DeviceUri uri{.backend = "auto", .options = std::move(inner.options)};
  inner.options.clear();
  uri.options["only"] = to_string(inner);
  uri.options["memory"] = "host";
  return to_string(uri);
}

/// The first quartile, since other programs only add to times.
RegretTime time_of(const Row& row, const Ranking& ranking) {
  return {row.place.device, row.place.kernel, row.time.q1,
          predicted_seconds(ranking, row.place.device, row.place.kernel)};
}

bool same_program(const RegretTime& a, const RegretTime& b) { return a.device == b.device && a.kernel == b.kernel; }

/// Whether the device's own plan of the op is that of the candidate: the same device, which takes that kernel by
/// itself. A plan that is searched for may differ.
bool is_plan_of(const OpenDevice& device, const Op& op, const Candidate& candidate) {
  if (!candidate.program.empty() || without_kernel(device.uri) != uri_of(candidate)) return false;
  for (const KernelSupport& one : device.device.query(op)) {
    if (one.supported) return one.kernel == candidate.kernel;
  }
  return false;
}

bool same_layer(const Identity& a, const Identity& b) {
  return a.name == b.name && a.problem == b.problem && a.dtype == b.dtype && a.math == b.math && a.layout == b.layout;
}

bool same_contestants(const RegretLayer& a, const RegretLayer& b) {
  return same_layer(a.identity, b.identity) &&
         std::equal(a.times.begin(), a.times.end(), b.times.begin(), b.times.end(), same_program);
}

/// Rates become shares of the fastest rate of the same arithmetic.
void relate_rates(std::vector<RegretDocument>& rounds) {
  std::map<bool, double> fastest;
  const auto key = [](const RegretLayer& layer) { return layer.identity.dtype == "f32"; };
  for (const RegretDocument& round : rounds) {
    for (const RegretLayer& layer : round.layers) {
      for (const double rate : layer.core_rates) fastest[key(layer)] = std::max(fastest[key(layer)], rate);
    }
  }
  for (RegretDocument& round : rounds) {
    for (RegretLayer& layer : round.layers) {
      for (double& rate : layer.core_rates) rate /= fastest[key(layer)];
    }
  }
}

bool is_steady(const RegretLayer* round) {
  return std::all_of(round->core_rates.begin(), round->core_rates.end(),
                     [](double rate) { return rate >= kSteadyRate; });
}

/// The rounds of a layer without those in which a core was slow, where at least two are left.
std::vector<const RegretLayer*> steady_rounds(const std::vector<const RegretLayer*>& rounds) {
  std::vector<const RegretLayer*> steady;
  std::copy_if(rounds.begin(), rounds.end(), std::back_inserter(steady), is_steady);
  return steady.size() < 2 ? rounds : steady;
}

const RegretTime& fastest(const std::vector<RegretTime>& times) {
  return *std::min_element(times.begin(), times.end(),
                           [](const RegretTime& a, const RegretTime& b) { return a.seconds < b.seconds; });
}

}  // namespace

std::optional<double> predicted_seconds(const Ranking& ranking, const std::string& device, const std::string& kernel) {
  const std::string uri = without_kernel(device.substr(0, device.find(' ')));  // "cuda:0 from the host"
  for (const Candidate& one : ranking.candidates) {
    const bool is_kernel = one.kernel.empty() || one.kernel == kernel;
    if (one.supported() && is_kernel && without_kernel(one.device) == uri) return one.predicted;
  }
  return std::nullopt;
}

RegretMeter::RegretMeter(OpenDevice automatic, const RegretJob& job) : automatic_(std::move(automatic)), job_(job) {}

const OpenDevice* RegretMeter::opened(const std::string& uri) {
  const auto found = std::find_if(opened_.begin(), opened_.end(), [&](const auto& one) { return one.uri == uri; });
  if (found != opened_.end()) return &*found;
  try {
    opened_.push_back(open_devices({uri}, 0).front());
  } catch (const Error&) {
    return nullptr;  // cudnn has no ?kernel=
  }
  return &opened_.back();
}

/// 0 on a GPU.
double RegretMeter::slowest_core(DType dtype) {
  if (automatic_.threads < 1) return 0;
  return rates_.try_emplace(dtype == DType::f32, automatic_.threads, dtype).first->second.slowest();
}

std::vector<OpenDevice> RegretMeter::contestants(const Ranking& ranking) {
  std::map<std::string, int> supported;
  for (const Candidate& one : ranking.candidates) supported[one.device] += one.supported() ? 1 : 0;
  std::vector<std::string> uris;
  for (const Candidate& one : ranking.candidates) {
    if (!one.supported() || is_far_slower(one, *ranking.first())) continue;
    const std::string device = uri_of(one);
    const bool by_kernel = job_.kernels && supported[one.device] > 1;
    const std::string uri = by_kernel ? with_option(device, "kernel", one.kernel) : device;
    if (std::find(uris.begin(), uris.end(), uri) == uris.end()) uris.push_back(uri);
  }
  std::vector<OpenDevice> all;
  for (const std::string& uri : uris) {
    if (const OpenDevice* const device = opened(uri)) all.push_back(*device);
  }
  return all;
}

void RegretMeter::measure(const Case& one, RegretDocument& document) {
  const Ranking ranking = choose(automatic_.device, one.op);
  std::vector<OpenDevice> devices;
  if (ranking.first() != nullptr) devices = contestants(ranking);
  if (devices.size() < 2) {
    ++document.without_choice;
    return;
  }
  // If `auto` takes its first device unchanged, that plan is used again: a second one would cost time (with cuDNN,
  // seconds) and evict the other contestants' tensors from the caches. A measured choice may name another kernel of the
  // device.
  const bool apart = ranking.source == ChoiceSource::measured && !is_plan_of(devices.front(), one.op, *ranking.first());
  if (apart) devices.insert(devices.begin(), automatic_);
  const double rate_before = slowest_core(dtype_of(one.op));
  Outcome outcome;
  MeasureOptions options;
  options.seconds_each = job_.seconds_each;
  std::vector<RegretTime> times;
  KnownRows none;
  measure_cases({one}, {devices, options, outcome, none},
                {[](std::size_t, std::size_t, const std::string&) {},
                 [&](const Measured& measured, double) {
                   times.push_back(time_of(measured.row, ranking));
                   return 0.0;
                 }});
  if (times.size() < (apart ? 3u : 2u)) {
    ++document.without_choice;
    std::move(outcome.refused.begin(), outcome.refused.end(), std::back_inserter(document.refused));
    return;
  }
  RegretLayer layer{.identity = identity_of(one),
                    .pick = times.front(),
                    .source = ranking.source == ChoiceSource::model ? "model" : "measured",
                    .predicted = ranking.first()->predicted};
  if (automatic_.threads > 0) layer.core_rates = {std::min(rate_before, slowest_core(dtype_of(one.op)))};
  // The same program under another name: a right pick has a regret of 1 whatever the noise.
  for (RegretTime& time : times) {
    const RegretTime plain{without_kernel(time.device), time.kernel, time.seconds, time.predicted};
    if (ranking.first()->program.empty() && same_program(plain, layer.pick))
      layer.pick.seconds = std::min(layer.pick.seconds, time.seconds);
  }
  times.front() = layer.pick;
  layer.best = fastest(times);
  layer.times = std::move(times);
  document.layers.push_back(std::move(layer));
}

RegretDocument median_of(std::vector<RegretDocument> rounds) {
  relate_rates(rounds);
  RegretDocument all = rounds.front();
  for (RegretLayer& layer : all.layers) {
    std::vector<const RegretLayer*> every;
    for (const RegretDocument& round : rounds) {
      const auto found = std::find_if(round.layers.begin(), round.layers.end(),
                                      [&](const RegretLayer& one) { return same_contestants(one, layer); });
      if (found != round.layers.end()) every.push_back(&*found);
    }
    const std::vector<const RegretLayer*> same = steady_rounds(every);
    layer.left_out = static_cast<int>(every.size() - same.size());
    layer.core_rates.clear();
    for (const RegretLayer* one : every) {
      layer.core_rates.insert(layer.core_rates.end(), one->core_rates.begin(), one->core_rates.end());
    }
    std::vector<std::vector<double>> seconds(layer.times.size());  // of each contestant in each round
    for (std::size_t at = 0; at < seconds.size(); ++at) {
      for (const RegretLayer* one : same) seconds[at].push_back(one->times[at].seconds);
    }
    for (std::size_t at = 0; at < seconds.size(); ++at) layer.times[at].seconds = perf::median(seconds[at]);
    layer.pick = layer.times.front();
    layer.best = fastest(layer.times);
    const auto best = static_cast<std::size_t>(&fastest(layer.times) - layer.times.data());
    for (std::size_t i = 0; i < same.size(); ++i) layer.rounds.push_back(seconds.front()[i] / seconds[best][i]);
  }
  return all;
}

void summarize(RegretDocument& document) {
  std::map<std::pair<std::string, std::string>, RegretSummary> all;
  for (const RegretLayer& layer : document.layers) {
    RegretSummary& one = all[{layer.identity.dtype, layer.identity.layout}];
    one.dtype = layer.identity.dtype;
    one.layout = layer.identity.layout;
    const double ratio = layer.ratio();
    one.geo = std::exp((std::log(one.geo) * one.layers + std::log(ratio)) / (one.layers + 1));
    ++one.layers;
    if (layer.is_unsteady()) {
      ++one.unsteady;
    } else {
      const int steady = one.layers - one.unsteady;
      one.steady_geo = std::exp((std::log(one.steady_geo) * (steady - 1) + std::log(ratio)) / steady);
      one.steady_worst = std::max(one.steady_worst, ratio);
    }
    one.worst = std::max(one.worst, ratio);
    one.above += ratio > kAbove ? 1 : 0;
    one.surely_above += ratio > kAbove && layer.at_least() > kAbove ? 1 : 0;
    one.surely_worst = std::max(one.surely_worst, layer.at_least());
    one.right += ratio <= 1 ? 1 : 0;
  }
  for (auto& [key, one] : all) document.summaries.push_back(std::move(one));
}

}  // namespace gable::bench
