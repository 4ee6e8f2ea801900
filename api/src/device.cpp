// Devices: a thin, checked face of backend.h's DeviceImpl.
#include <gable/backend.h>
#include <gable/device.h>
#include <gable/error.h>

#include <algorithm>

namespace gable {
namespace {

std::string reasons(const std::vector<KernelSupport>& answers) {
  std::string text;
  for (const KernelSupport& answer : answers) {
    if (!answer.supported) text += "\n  " + answer.kernel + ": " + answer.reason;
  }
  return text;
}

}  // namespace

const DeviceInfo& Device::info() const { return impl_->info(); }

std::vector<KernelSupport> Device::query(const Op& op) const {
  validate(op);
  return impl_->query(op);
}

Plan Device::plan(const Op& op) const {
  const std::vector<KernelSupport> answers = query(op);
  const bool possible = std::any_of(answers.begin(), answers.end(), [](const auto& a) { return a.supported; });
  if (!possible) {
    throw Error(ErrorCode::unsupported,
                "device '" + info().uri + "' can't run " + describe(op) + ":" + reasons(answers));
  }
  return Plan(op, impl_, impl_->plan(op));
}

Tensor Device::tensor(DType dtype, const Shape& shape, Layout layout) const {
  validate(Add{.shape = shape, .dtype = dtype});
  TensorView view(nullptr, dtype, shape, layout, info().memory);
  std::shared_ptr<void> storage = impl_->allocate(view.bytes());
  view.data = storage.get();
  return Tensor(std::move(storage), view);
}

void Device::copy(const ConstTensorView& from, const TensorView& to, const Stream& stream) const {
  const bool same_layout = from.shape.rank() != 4 || from.layout == to.layout;
  if (from.shape != to.shape || from.dtype != to.dtype || !same_layout) {
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
std::vector<Ceiling> DeviceImpl::ceilings(const CeilingRequest&) const { return {}; }
std::vector<Ceiling> Device::ceilings(const CeilingRequest& request) const { return impl_->ceilings(request); }

}  // namespace gable
