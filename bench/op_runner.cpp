// See op_runner.h.
#include "bench/op_runner.h"

#include <utility>

#include "bench/cases.h"

namespace gable::bench {

OpRunner::OpRunner(const OpenDevice& device, const Op& op) : device_(&device), plan_(device.device.plan(op)) {}

ConstTensorView OpRunner::place(const Tensor& tensor, Tensor& storage) const {
  if (tensor.data() == nullptr || on_host()) return tensor;
  storage = device_->device.tensor(tensor.dtype(), tensor.shape(), tensor.layout());
  device_->device.copy(tensor, storage);
  return storage;
}

void OpRunner::prepare(const OpData& data) {
  const DType dtype = dtype_of(plan_.op());
  const Layout layout = output_layout(plan_.op());
  x_ = place(data.x, x_copy_);
  second_ = place(data.second, second_copy_);
  bias_ = place(data.bias, bias_copy_);
  if (has_math(plan_.op())) {
    Tensor weights_copy;
    weights_ = plan_.pack(place(data.weights, weights_copy));
  }
  y_ = device_->device.tensor(dtype, plan_.output_shape(), layout);
  if (on_host()) {
    poison(y_);
  } else {
    Tensor poisoned(dtype, plan_.output_shape(), layout);
    poison(poisoned);
    device_->device.copy(poisoned, y_);
  }
  device_->device.synchronize();
}

void OpRunner::run() const {
  if (has_math(plan_.op())) {
    plan_.run(x_, weights_, bias_, y_);
  } else if (std::holds_alternative<Add>(plan_.op())) {
    plan_.run(x_, second_, y_);
  } else {
    plan_.run(x_, y_);
  }
  if (!on_host()) device_->device.synchronize();
}

Tensor OpRunner::result() const {
  if (on_host()) return Tensor(y_.storage(), y_.view());
  Tensor host(y_.dtype(), y_.shape(), y_.layout());
  device_->device.copy(y_, host);
  device_->device.synchronize();
  return host;
}

}  // namespace gable::bench
