// See auto_device.h.
#include "backends/registry/auto_device.h"

#include <algorithm>

namespace gable {
namespace {

DeviceInfo auto_info(const std::string& uri, const DeviceInfo& first) {
  DeviceInfo info = first;
  info.uri = uri;
  return info;
}

bool any_supported(const std::vector<KernelOffer>& offers) {
  return std::any_of(offers.begin(), offers.end(), [](const auto& offer) { return offer.supported(); });
}

/// Takes memory, streams, events and studies from the first candidate.
class AutoDevice final : public DeviceImpl {
 public:
  AutoDevice(const std::string& uri, std::vector<std::shared_ptr<DeviceImpl>> candidates, std::string reasons)
      : DeviceImpl(auto_info(uri, candidates.front()->info())),
        candidates_(std::move(candidates)),
        reasons_(std::move(reasons)) {}

  /// The offers of every candidate. A kernel's name has the device before it.
  std::vector<KernelOffer> offers(const Op& op) const override {
    std::vector<KernelOffer> all;
    for (const auto& candidate : candidates_) add_offers(*candidate, candidate->offers(op), all);
    return all;
  }

  /// Stops at the first candidate that can run the op.
  Choice choose(const Op& op) const override {
    std::string passed_over = reasons_;
    std::vector<KernelOffer> refused;
    for (const auto& candidate : candidates_) {
      std::vector<KernelOffer> offers = candidate->offers(op);
      const std::string& uri = candidate->info().uri;
      if (any_supported(offers)) {
        return {candidate, std::move(offers),
                "auto chose " + uri + ", the first in order of preference that runs this op\n" + passed_over};
      }
      passed_over += "passed over " + uri;
      for (const KernelOffer& offer : offers) passed_over += "; " + offer.kernel + ": " + offer.refusal;
      passed_over += "\n";
      add_offers(*candidate, std::move(offers), refused);
    }
    return {nullptr, std::move(refused), reasons_};
  }

  std::shared_ptr<void> allocate(std::size_t bytes) const override { return first().allocate(bytes); }
  void copy(const ConstTensorView& from, const TensorView& to, void* stream) const override {
    first().copy(from, to, stream);
  }
  Stream stream() const override { return first().stream(); }
  void synchronize(void* stream) const override { first().synchronize(stream); }
  std::shared_ptr<EventImpl> event() const override { return first().event(); }
  const StudyImpl* studies() const override { return first().studies(); }

 private:
  static void add_offers(const DeviceImpl& device, std::vector<KernelOffer> offers, std::vector<KernelOffer>& all) {
    for (KernelOffer& offer : offers) {
      offer.kernel = device.info().uri + "/" + offer.kernel;
      all.push_back(std::move(offer));
    }
  }

  const DeviceImpl& first() const { return *candidates_.front(); }

  std::vector<std::shared_ptr<DeviceImpl>> candidates_;
  std::string reasons_;
};

}  // namespace

std::shared_ptr<DeviceImpl> make_auto_device(const std::string& uri,
                                             std::vector<std::shared_ptr<DeviceImpl>> candidates, std::string reasons) {
  return std::make_shared<AutoDevice>(uri, std::move(candidates), std::move(reasons));
}

}  // namespace gable
