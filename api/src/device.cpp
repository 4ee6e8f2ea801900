// Devices: a thin, checked face of backend.h's DeviceImpl.
#include <gable/backend.h>
#include <gable/device.h>
#include <gable/error.h>

#include <algorithm>

namespace gable {
namespace {

/// One line for each refusal, which begins with `prefix`.
std::string refusals(const std::vector<KernelOffer>& offers, const std::string& prefix) {
  std::string text;
  for (const KernelOffer& offer : offers) {
    if (!offer.supported()) text += "\n" + prefix + offer.kernel + ": " + offer.refusal;
  }
  return text;
}

}  // namespace

const DeviceInfo& Device::info() const { return impl_->info(); }

std::vector<KernelSupport> Device::query(const Op& op) const {
  validate(op);
  std::vector<KernelSupport> answers;
  for (const KernelOffer& offer : impl_->offers(op)) {
    answers.push_back({.kernel = offer.kernel, .supported = offer.supported(), .reason = offer.refusal});
  }
  return answers;
}

Ranking choose(const Device& device, const Op& op) {
  validate(op);
  return device.impl().ranking(op);
}

Ranking tune(const Device& device, const Op& op, double seconds) {
  validate(op);
  if (!(seconds > 0)) {
    throw Error(ErrorCode::invalid_argument, "tune: " + std::to_string(seconds) + " seconds: the time must be above 0");
  }
  return device.impl().tune(op, seconds);
}

Plan Device::plan(const Op& op) const {
  validate(op);
  const Choice choice = impl_->choose(op);
  const auto offer =
      std::find_if(choice.offers.begin(), choice.offers.end(), [](const auto& o) { return o.supported(); });
  if (offer == choice.offers.end()) {
    throw Error(ErrorCode::unsupported, "device '" + info().uri + "' can't run " + describe(op) + ":" +
                                            refusals(choice.offers, "  ") +
                                            (choice.reasons.empty() ? "" : "\n" + choice.reasons));
  }
  std::unique_ptr<PlanImpl> plan = offer->make();
  std::string explanation = choice.reasons + plan->details().explanation + refusals(choice.offers, "refused ");
  return Plan(op, choice.device ? choice.device : impl_, std::move(plan), std::move(explanation));
}

Tensor Device::tensor(DType dtype, const Shape& shape, Layout layout) const {
  validate(Add{.shape = shape, .dtype = dtype});
  TensorView view(nullptr, dtype, shape, layout, info().memory);
  std::shared_ptr<void> storage = impl_->allocate(view.bytes());
  view.data = storage.get();
  return Tensor(std::move(storage), view);
}

void Device::copy(const ConstTensorView& from, const TensorView& to, const Stream& stream) const {
  if (from.shape != to.shape || from.dtype != to.dtype || !same_order(from.shape, from.layout, to.layout)) {
    throw Error(ErrorCode::invalid_argument,
                "copy from " + to_string(from.shape) + " " + std::string(to_string(from.dtype)) + " " +
                    std::string(to_string(from.layout)) + " to " + to_string(to.shape) + " " +
                    std::string(to_string(to.dtype)) + " " + std::string(to_string(to.layout)) +
                    ": shape, dtype and layout must be equal");
  }
  if (from.data == nullptr || to.data == nullptr) throw Error(ErrorCode::invalid_argument, "copy: a null pointer");
  impl_->copy(from, to, stream.native());
}

Stream Device::stream() const { return impl_->stream(); }
Event Device::event() const { return Event(impl_->event()); }
void Device::synchronize(const Stream& stream) const { impl_->synchronize(stream.native()); }

}  // namespace gable
