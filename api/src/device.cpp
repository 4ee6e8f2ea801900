// Devices: checks arguments and calls backend.h's DeviceImpl.
#include <gable/backend.h>
#include <gable/device.h>
#include <gable/error.h>

#include <algorithm>
#include <cstdint>

#include "api/src/tensor_check.h"
#include "common/number.h"
#include "common/there.h"

namespace gable {
namespace {

constexpr const char* kDevice = "this device";

/// One line for each refusal.
std::string refusals(const std::vector<KernelOffer>& offers) {
  std::string text;
  for (const KernelOffer& offer : offers) {
    if (!offer.supported()) text += "\nrefused " + offer.kernel + ": " + offer.refusal;
  }
  return text;
}

/// Null if the kernel refuses when its plan is made; `offer` then has the reason.
std::unique_ptr<PlanImpl> made(KernelOffer& offer) {
  try {
    return offer.make();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    offer.refusal = error.what();
    return nullptr;
  }
}

/// The plan of the first kernel of the choice that can run the op.
Plan plan_of(const Op& op, const std::shared_ptr<DeviceImpl>& device, Choice choice) {
  while (true) {
    for (KernelOffer& offer : choice.offers) {
      if (!offer.supported()) continue;
      if (std::unique_ptr<PlanImpl> plan = made(offer)) {
        std::string explanation = choice.reasons + plan->details().explanation + refusals(choice.offers);
        return Plan(op, choice.device ? choice.device : device, std::move(plan), std::move(explanation));
      }
    }
    if (!choice.otherwise) break;
    choice = choice.otherwise(std::move(choice.offers));
  }
  throw Error(ErrorCode::unsupported, "device '" + device->info().uri + "' can't run " + describe(op) + ":" +
                                          why_refused(*device, op, choice.offers) +
                                          (choice.reasons.empty() ? "" : "\n" + choice.reasons));
}

/// Throws for a device that was moved from.
const DeviceImpl& impl_of(const Device& device) {
  static_cast<void>(device.info());
  return device.impl();
}

}  // namespace

const DeviceInfo& Device::info() const { return there(impl_, kDevice).info(); }

std::vector<KernelSupport> Device::query(const Op& op) const {
  validate(op);
  std::vector<KernelSupport> answers;
  for (const KernelOffer& offer : there(impl_, kDevice).offers(op)) {
    answers.push_back({.kernel = offer.kernel, .supported = offer.supported(), .reason = offer.refusal});
  }
  return answers;
}

Ranking choose(const Device& device, const Op& op) {
  validate(op);
  return impl_of(device).ranking(op);
}

Ranking tune(const Device& device, const Op& op, double seconds) {
  validate(op);
  if (!(seconds > 0)) {
    throw Error(ErrorCode::invalid_argument,
                "tune: " + short_number(seconds, 6) + " seconds: the time must be above 0");
  }
  return impl_of(device).tune(op, seconds);
}

Plan Device::plan(const Op& op) const {
  validate(op);
  return plan_of(op, impl_, there(impl_, kDevice).choose(op));
}

Plan Device::plan(const Op& op, const Candidate& like) const {
  validate(op);
  return plan_of(op, impl_, there(impl_, kDevice).choose_like(op, like));
}

BatchPlan Device::plan(const Op& op, BatchRange range) const { return {*this, op, range}; }

Tensor Device::tensor(DType dtype, const Shape& shape, Layout layout) const {
  validate_tensor(dtype, shape, layout);
  TensorView view(nullptr, dtype, shape, layout, info().memory);
  std::shared_ptr<void> storage = there(impl_, kDevice).allocate(view.bytes());
  view.data = storage.get();
  return Tensor(std::move(storage), view);
}

void Device::copy(const ConstTensorView& from, const TensorView& to, const Stream& stream) const {
  if (from.data == nullptr || to.data == nullptr) throw Error(ErrorCode::invalid_argument, "copy: a null pointer");
  if (from.shape != to.shape || from.dtype != to.dtype || !same_order(from.shape, from.layout, to.layout)) {
    throw Error(ErrorCode::invalid_argument,
                "copy from " + to_string(from.shape) + " " + std::string(to_string(from.dtype)) + " " +
                    std::string(to_string(from.layout)) + " to " + to_string(to.shape) + " " +
                    std::string(to_string(to.dtype)) + " " + std::string(to_string(to.layout)) +
                    ": shape, dtype and layout must be equal");
  }
  validate_tensor(from.dtype, from.shape, from.layout);
  const auto source = reinterpret_cast<std::uintptr_t>(from.data), target = reinterpret_cast<std::uintptr_t>(to.data);
  if (source != target && source < target + to.bytes() && target < source + from.bytes())
    throw Error(ErrorCode::invalid_argument, "copy: the tensors overlap; they must lie apart, or be the same");
  there(impl_, kDevice).copy(from, to, stream.native());
}

Stream Device::stream() const { return there(impl_, kDevice).stream(); }
Event Device::event() const { return Event(there(impl_, kDevice).event()); }
void Device::synchronize(const Stream& stream) const { there(impl_, kDevice).synchronize(stream.native()); }

}  // namespace gable
