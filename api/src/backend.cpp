// The defaults of gable/backend.h's classes, besides memory (tensor.cpp) and events (event.cpp).
#include <gable/backend.h>

#include <algorithm>
#include <utility>

namespace gable {

std::optional<double> DeviceImpl::predicted_seconds(const Op&) const { return std::nullopt; }
std::vector<KernelOffer> DeviceImpl::quick_offers(const Op& op) const { return offers(op); }
Choice DeviceImpl::choose_like(const Op& op, const Candidate& like) const {
  Choice choice{.offers = quick_offers(op)};
  const auto found = std::find_if(choice.offers.begin(), choice.offers.end(), [&](const KernelOffer& offer) {
    return like.measured && offer.kernel == like.kernel && offer.supported();
  });
  if (found != choice.offers.end()) std::rotate(choice.offers.begin(), found, found + 1);
  return choice;
}
Choice DeviceImpl::choose(const Op& op) const { return {.offers = offers(op)}; }

Ranking DeviceImpl::ranking(const Op& op) const {
  Ranking result;
  bool first = true;
  for (const KernelOffer& offer : offers(op)) {
    Candidate one{.device = info_.uri, .kernel = offer.kernel, .refusal = offer.refusal};
    if (offer.supported() && std::exchange(first, false)) one.predicted = predicted_seconds(op);
    result.candidates.push_back(std::move(one));
  }
  std::stable_partition(result.candidates.begin(), result.candidates.end(),
                        [](const Candidate& one) { return one.supported(); });
  return result;
}

Ranking DeviceImpl::tune(const Op&, double) const {
  throw Error(ErrorCode::invalid_argument,
              "device '" + info_.uri +
                  "' is one device: tuning chooses among several, so open an auto, such as "
                  "'auto?only=cpu' for the kernels of cpu");
}

Stream DeviceImpl::stream() const { return {}; }
void DeviceImpl::synchronize(void*) const {}
DeviceImpl::~DeviceImpl() = default;
Backend::~Backend() = default;
PlanImpl::~PlanImpl() = default;
void PlanImpl::pack(const void*, void*) {}

}  // namespace gable
