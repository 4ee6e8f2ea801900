// See auto_device.h.
#include "backends/registry/auto_device.h"

#include <gable/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <new>

#include "backends/registry/choice_cache.h"
#include "backends/registry/log.h"
#include "backends/registry/staged_device.h"
#include "backends/registry/tuner.h"
#include "common/number.h"

namespace gable {
namespace {

using DevicePointer = std::shared_ptr<DeviceImpl>;

constexpr double kMargin = 1.03;  // predicted speed-up over a preferred device that is needed to replace it
constexpr double kDoubt = 1.005;  // measured speed-up over the predicted choice that is needed to replace it
constexpr double kCheap = 1e-3;   // predicted seconds: a run of less is worth it for the first kernel of any device
// Of a trip's predicted time over the host's: beyond, no estimate is asked for, since choices must stay cheap.
constexpr double kTripInReach = 3;
// Of an estimate over the predicted time: up to here, the predicted time holds. Chosen by 17 records of tensors on the
// host of an H200, where 1.1 to 1.3 choose alike.
constexpr double kUsualEstimate = 1.2;
constexpr double kNever = std::numeric_limits<double>::infinity();

DeviceInfo auto_info(const std::string& uri, const DeviceInfo& first) {
  DeviceInfo info = first;
  info.uri = uri;
  return info;
}

bool any_supported(const std::vector<KernelOffer>& offers) {
  return std::any_of(offers.begin(), offers.end(), [](const auto& offer) { return offer.supported(); });
}

std::string text_of(double seconds) {
  const bool micro = seconds < 1e-3;
  return short_number(seconds * (micro ? 1e6 : 1e3), 3) + (micro ? " us" : " ms");
}

/// A device with its predicted time of an op.
struct Ranked {
  DevicePointer device;
  bool staged = false;
  std::optional<double> seconds{};
  std::vector<KernelOffer> offers{};  ///< quick_offers(), where ranking asked for them
};

/// quick_offers(), asked once: they take most of a choice's time.
std::vector<KernelOffer> take_offers(Ranked& one, const Op& op) {
  return one.offers.empty() ? one.device->quick_offers(op) : std::move(one.offers);
}

/// How many times as long as predicted all devices of the host will take an op, by the estimate of the first kernel of
/// `host`. Where that is longer than the predicted time, all of them are slower: their times are closer to the
/// geometric mean of both.
double slowness_by_estimate(Ranked& host, const Op& op) {
  host.offers = host.device->quick_offers(op);
  if (host.offers.empty() || !host.offers.front().seconds) return 1;
  return std::sqrt(std::max(1.0, *host.offers.front().seconds / (kUsualEstimate * *host.seconds)));
}

/// Makes the predicted times of devices in the tensors' memory longer where that may make a trip to another memory the
/// choice. Among themselves they keep their order. `all` is in order of preference.
void weigh_trips(const Op& op, std::vector<Ranked>& all) {
  double here = kNever, trip = kNever;
  Ranked* preferred = nullptr;
  for (Ranked& one : all) {
    if (!one.seconds) continue;
    if (!one.staged && preferred == nullptr) preferred = &one;
    double& least = one.staged ? trip : here;
    least = std::min(least, *one.seconds);
  }
  if (preferred == nullptr || trip > kTripInReach * here || kMargin * trip < here) return;
  const double slowness = slowness_by_estimate(*preferred, op);
  for (Ranked& one : all) {
    if (one.seconds && !one.staged) *one.seconds *= slowness;
  }
}

/// The owner of tensors in host memory, for candidates that all have another memory.
class HostMemory final : public DeviceImpl {
 public:
  explicit HostMemory(DeviceInfo info) : DeviceImpl(std::move(info)) { info_.memory = {}; }
  std::vector<KernelOffer> offers(const Op&) const override { return {}; }
};

/// The device that allocates the tensors of an `auto` of these candidates.
DevicePointer owner_of(const std::vector<AutoCandidate>& candidates) {
  for (const AutoCandidate& one : candidates) {
    if (!one.staged) return one.device;
  }
  return std::make_shared<HostMemory>(candidates.front().device->info());
}

std::optional<double> finite(std::optional<double> seconds) {
  return seconds && *seconds < kNever ? seconds : std::nullopt;
}

/// The offers as candidates. `seconds` is the predicted time of the first supported offer; the times of the others
/// follow from the device's own estimates.
std::vector<Candidate> candidates_of(const DeviceImpl& device, const std::vector<KernelOffer>& offers,
                                     std::optional<double> seconds) {
  const auto found = std::find_if(offers.begin(), offers.end(), [](const auto& offer) { return offer.supported(); });
  const KernelOffer* const first = found == offers.end() ? nullptr : &*found;
  const double own = first == nullptr ? 0 : first->seconds.value_or(0);
  std::vector<Candidate> all;
  for (const KernelOffer& offer : offers) {
    Candidate one{.device = device.info().uri, .kernel = offer.kernel, .refusal = offer.refusal};
    if (&offer == first) one.predicted = seconds;
    const double other = offer.seconds.value_or(kNever);
    const bool compares = offer.supported() && seconds && own > 0 && own < kNever && other < kNever;
    if (&offer != first && compares) one.predicted = *seconds * std::max(1.0, other / own);
    all.push_back(std::move(one));
  }
  return all;
}

/// "cpu/direct 1.2 ms measured".
std::string text_of(const Candidate& one) {
  std::string text = one.device + (one.kernel.empty() ? "" : "/" + one.kernel);
  if (one.measured) return text + " " + text_of(*one.measured) + " measured";
  if (!one.predicted) return text + " not predicted";
  text += " " + text_of(*one.predicted) + " predicted";
  return one.copies > 0 ? text + " (copies " + text_of(one.copies) + ")" : text;
}

/// Whether the candidate is predicted to be so slow that even one run of it would be a waste, such as the reference.
bool is_hopeless(const Candidate& one, const Candidate& first) {
  constexpr double kHopeless = 8;
  return one.predicted && first.predicted && *one.predicted > kHopeless * *first.predicted;
}

/// Whether the candidate is the first of its device. Kernels without an estimate are measured, so the one that the
/// device prefers to them must be too, or a host that is slower than predicted loses to the wrong kernel of the GPU.
bool leads_its_device(const Candidate& one, const Ranking& ranking) {
  const auto same = [&](const Candidate& other) { return other.device == one.device; };
  return &*std::find_if(ranking.candidates.begin(), ranking.candidates.end(), same) == &one;
}

class AutoDevice final : public DeviceImpl {
 public:
  AutoDevice(AutoOptions options, std::vector<AutoCandidate> candidates, DevicePointer owner)
      : DeviceImpl(auto_info(options.uri, owner->info())),
        candidates_(std::move(candidates)),
        owner_(std::move(owner)),
        options_(std::move(options)),
        cache_(options_.cache_folder, options_.identity) {}

  /// The offers of every candidate. Kernel names are prefixed with the device.
  std::vector<KernelOffer> offers(const Op& op) const override { return offers_by(op, &DeviceImpl::offers); }
  std::vector<KernelOffer> quick_offers(const Op& op) const override {
    return offers_by(op, &DeviceImpl::quick_offers);
  }

  std::optional<double> predicted_seconds(const Op& op) const override { return ranked(op).front().seconds; }

  Choice choose(const Op& op) const override {
    const std::string key = describe(op);
    std::shared_ptr<const Ranking> known = cache_.find(key);
    if (known == nullptr && options_.measures) known = tuned(op);
    if (known != nullptr) {
      if (std::optional<Choice> choice = follow(op, *known)) return std::move(*choice);
    }
    return by_model(op);
  }

  Choice choose_like(const Op& op, const Candidate& like) const override {
    const DevicePointer device = device_of(like.device);
    if (device == nullptr) return choose(op);
    Choice choice = device->choose_like(op, like);
    choice.device = device;
    choice.reasons = "auto chose " + like.device + " for this range of batches\n" + options_.reasons;
    choice.otherwise = [this, op](std::vector<KernelOffer>) { return by_model(op); };
    return choice;
  }

  Ranking ranking(const Op& op) const override {
    if (const auto known = cache_.find(describe(op)); known != nullptr && is_usable(*known)) return *known;
    return model_ranking(op);
  }

  Ranking tune(const Op& op, double seconds) const override {
    static std::mutex one_at_a_time;  // two ops measured at the same time would slow each other down
    const std::lock_guard turn(one_at_a_time);
    Ranking ranking = model_ranking(op);
    std::vector<Contestant> contestants;
    std::vector<Candidate*> measured;
    for (Candidate& one : ranking.candidates) {
      if (!one.supported()) continue;
      const bool hopeless = is_hopeless(one, ranking.candidates.front());
      if (hopeless && !(leads_its_device(one, ranking) && *one.predicted < kCheap)) continue;
      Contestant contestant = contestant_of(op, one);
      if (hopeless && contestant.search) continue;  // the search takes long, however short the run
      contestants.push_back(std::move(contestant));
      measured.push_back(&one);
    }
    if (contestants.empty()) {
      throw Error(ErrorCode::unsupported, "device '" + info().uri + "' can't run " + describe(op) + ":" +
                                              why_refused(*this, op, quick_offers(op)));
    }
    measure({.op = op, .owner = owner_, .seconds = seconds}, contestants);
    for (std::size_t i = 0; i < measured.size(); ++i) {
      measured[i]->measured = contestants[i].seconds;
      measured[i]->program = contestants[i].program;
      measured[i]->refusal = contestants[i].failure;
    }
    sort_by_measured(ranking.candidates);
    ranking.source = ChoiceSource::measured;
    if (ranking.first() != nullptr && ranking.first()->measured) cache_.store(describe(op), ranking);
    return ranking;
  }

  std::shared_ptr<void> allocate(std::size_t bytes) const override { return owner_->allocate(bytes); }
  void copy(const ConstTensorView& from, const TensorView& to, void* stream) const override {
    owner_->copy(from, to, stream);
  }
  Stream stream() const override { return owner_->stream(); }
  void synchronize(void* stream) const override { owner_->synchronize(stream); }
  std::shared_ptr<EventImpl> event() const override { return owner_->event(); }
  const StudyImpl* studies() const override { return owner_->studies(); }

 private:
  std::vector<KernelOffer> offers_by(const Op& op,
                                     std::vector<KernelOffer> (DeviceImpl::*answers)(const Op&) const) const {
    std::vector<KernelOffer> all;
    for (const Ranked& one : ranked(op)) add_offers(*one.device, (*one.device.*answers)(op), all);
    std::stable_partition(all.begin(), all.end(), [](const KernelOffer& offer) { return offer.supported(); });
    return all;
  }

  static void add_offers(const DeviceImpl& device, std::vector<KernelOffer> offers, std::vector<KernelOffer>& all) {
    for (KernelOffer& offer : offers) {
      offer.kernel = device.info().uri + "/" + offer.kernel;
      all.push_back(std::move(offer));
    }
  }

  /// Fastest first. A device without a model stays before or behind all devices that have one.
  std::vector<Ranked> ranked(const Op& op) const {
    std::vector<Ranked> all;
    for (const AutoCandidate& one : candidates_) {
      std::optional<double> seconds = one.device->predicted_seconds(op);
      if (one.staged && !seconds) seconds = kNever;  // without a model nothing says that the copies pay
      all.push_back({.device = one.device, .staged = one.staged, .seconds = seconds});
    }
    weigh_trips(op, all);
    const auto known = [](const Ranked& one) { return one.seconds.has_value(); };
    const auto begin = std::find_if(all.begin(), all.end(), known);
    if (begin == all.end()) return all;
    const auto end = std::stable_partition(begin, all.end(), known);
    const auto here = std::find_if(begin, end, [](const Ranked& one) { return !one.staged; });
    const DevicePointer preferred = here == end ? begin->device : here->device;
    const auto key = [&](const Ranked& one) { return one.device == preferred ? *one.seconds : *one.seconds * kMargin; };
    std::stable_sort(begin, end, [&](const Ranked& a, const Ranked& b) { return key(a) < key(b); });
    return all;
  }

  /// Null if there is no memory or no time for tensors to measure with: the plan itself does not need them.
  std::shared_ptr<const Ranking> tuned(const Op& op) const {
    std::string why = "out of memory";
    try {
      return std::make_shared<const Ranking>(tune(op, options_.tuning_seconds));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory && error.code() != ErrorCode::invalid_argument) throw;
      why = error.what();
    } catch (const std::bad_alloc&) {
    }
    log_word(describe(op) + " could not be measured, so the model chooses: " + why);
    return nullptr;
  }

  Ranking model_ranking(const Op& op) const {
    std::vector<Candidate> supported, refused;
    for (Ranked& one : ranked(op)) {
      for (Candidate& candidate : candidates_of(*one.device, take_offers(one, op), finite(one.seconds))) {
        if (one.staged) candidate.copies = staging_seconds(op);
        (candidate.supported() ? supported : refused).push_back(std::move(candidate));
      }
    }
    // The first is the choice, even if the margin kept it there; the others are sorted by time.
    if (supported.size() > 1) {
      std::stable_sort(supported.begin() + 1, supported.end(), [](const Candidate& a, const Candidate& b) {
        return a.predicted.value_or(kNever) < b.predicted.value_or(kNever);
      });
    }
    std::move(refused.begin(), refused.end(), std::back_inserter(supported));
    return {.candidates = std::move(supported), .source = ChoiceSource::model};
  }

  /// Measured first, by time; then those that were not measured; refused last.
  static void sort_by_measured(std::vector<Candidate>& candidates) {
    const Candidate predicted = candidates.front();
    const auto key = [&](const Candidate& one) {
      if (!one.supported()) return std::pair(2, 0.0);
      if (!one.measured) return std::pair(1, one.predicted.value_or(kNever));
      const bool first = one.device == predicted.device && one.kernel == predicted.kernel;
      return std::pair(0, first ? *one.measured / kDoubt : *one.measured);
    };
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](const Candidate& a, const Candidate& b) { return key(a) < key(b); });
  }

  DevicePointer device_of(const std::string& uri) const {
    const auto found = std::find_if(candidates_.begin(), candidates_.end(),
                                    [&](const AutoCandidate& one) { return one.device->info().uri == uri; });
    return found == candidates_.end() ? nullptr : found->device;
  }

  /// A cache may name devices that no longer exist.
  bool is_usable(const Ranking& ranking) const {
    return ranking.first() != nullptr && device_of(ranking.first()->device) != nullptr;
  }

  /// A candidate of model_ranking(), to be measured. It may make several plans.
  Contestant contestant_of(const Op& op, const Candidate& one) const {
    const auto offer = [op, device = device_of(one.device), kernel = one.kernel] {
      for (KernelOffer& found : device->quick_offers(op)) {
        if (found.kernel == kernel && found.supported()) return std::move(found);
      }
      throw Error(ErrorCode::unsupported, device->info().uri + " offers no " + kernel + " any more");
    };
    Contestant result{
        .device = device_of(one.device), .make = [offer] { return offer().make(); }, .predicted = one.predicted};
    if (offer().search) result.search = [offer](const PlanSearch& search) { return offer().search(search); };
    return result;
  }

  /// The measured choice; empty if its device or kernel no longer exists.
  std::optional<Choice> follow(const Op& op, const Ranking& ranking) const {
    if (is_usable(ranking)) {
      const Candidate& best = *ranking.first();
      const DevicePointer device = device_of(best.device);
      std::vector<KernelOffer> offers = device->quick_offers(op);
      const auto found = std::find_if(offers.begin(), offers.end(), [&](const KernelOffer& offer) {
        return offer.kernel == best.kernel && offer.supported();
      });
      if (found != offers.end()) {
        std::rotate(offers.begin(), found, found + 1);
        KernelOffer& first = offers.front();
        if (first.search)
          first.make = [search = first.search, program = best.program] { return search({.program = program}); };
        return Choice{device, std::move(offers), explanation(ranking) + options_.reasons,
                      [this, op](std::vector<KernelOffer>) { return by_model(op); }};
      }
    }
    log_word("a remembered choice for " + describe(op) + " names a device or kernel that is not there: it is ignored");
    return std::nullopt;
  }

  static std::string explanation(const Ranking& ranking) {
    std::string text = "auto chose " + text_of(ranking.candidates.front());
    for (std::size_t i = 1; i < ranking.candidates.size(); ++i) {
      if (ranking.candidates[i].supported()) text += "; " + text_of(ranking.candidates[i]);
    }
    return text + "\n";
  }

  /// The progress of by_model(): devices from `at` on have not been asked yet.
  struct Way {
    Op op;
    std::vector<Ranked> ranked;
    std::size_t at = 0;
    std::string passed_over{};
    std::vector<KernelOffer> refused{};
  };

  Choice by_model(const Op& op) const { return next({op, ranked(op), 0, options_.reasons}); }

  /// Asks devices in the order of predicted time and stops at the first that can run the op. If that one fails to make
  /// a plan, the next devices are asked.
  Choice next(Way way) const {
    while (way.at < way.ranked.size()) {
      Ranked& one = way.ranked[way.at];
      std::vector<KernelOffer> offers = take_offers(one, way.op);
      if (any_supported(offers)) {
        Choice choice{one.device, std::move(offers), explanation(one, way.ranked, way.op) + way.passed_over};
        choice.otherwise = [this, way = std::move(way)](std::vector<KernelOffer> refused) mutable {
          pass_over(std::move(refused), way);
          return next(std::move(way));
        };
        return choice;
      }
      pass_over(std::move(offers), way);
    }
    return {nullptr, std::move(way.refused), options_.reasons};
  }

  static void pass_over(std::vector<KernelOffer> offers, Way& way) {
    const DeviceImpl& device = *way.ranked[way.at++].device;
    way.passed_over += "passed over " + device.info().uri;
    for (const KernelOffer& offer : offers) way.passed_over += "; " + offer.kernel + ": " + offer.refusal;
    way.passed_over += "\n";
    add_offers(device, std::move(offers), way.refused);
  }

  std::string explanation(const Ranked& chosen, const std::vector<Ranked>& all, const Op& op) const {
    if (!chosen.seconds) {
      return "auto chose " + chosen.device->info().uri + ", the first in order of preference that runs this op\n";
    }
    std::string text = "auto chose " + text_of(candidate_of(chosen, op));
    for (const Ranked& other : all) {
      if (other.device != chosen.device) text += "; " + text_of(candidate_of(other, op));
    }
    return text + "\n";
  }

  Candidate candidate_of(const Ranked& one, const Op& op) const {
    return {.device = one.device->info().uri,
            .predicted = finite(one.seconds),
            .copies = one.staged ? staging_seconds(op) : 0};
  }

  std::vector<AutoCandidate> candidates_;
  DevicePointer owner_;
  AutoOptions options_;
  mutable ChoiceCache cache_;
};

}  // namespace

std::shared_ptr<DeviceImpl> make_auto_device(AutoOptions options, std::vector<AutoCandidate> candidates) {
  DevicePointer owner = owner_of(candidates);
  return std::make_shared<AutoDevice>(std::move(options), std::move(candidates), std::move(owner));
}

}  // namespace gable
