// See conv_runner.h.
#include "bench/conv_runner.h"

#include <utility>

namespace gable::bench {

ConvRunner::ConvRunner(const OpenDevice& device, const Conv2d& conv)
    : device_(&device), plan_(device.device.plan(conv)) {}

ConstTensorView ConvRunner::place(const Tensor& tensor, Tensor& storage) const {
  if (tensor.data() == nullptr || on_host()) return tensor;
  storage = device_->device.tensor(tensor.dtype(), tensor.shape(), tensor.layout());
  device_->device.copy(tensor, storage);
  return storage;
}

void ConvRunner::prepare(const ConvData& data) {
  const auto& conv = std::get<Conv2d>(plan_.op());
  x_ = place(data.x, x_copy_);
  bias_ = place(data.bias, bias_copy_);
  Tensor weights_copy;
  weights_ = plan_.pack(place(data.weights, weights_copy));
  y_ = device_->device.tensor(conv.dtype, plan_.output_shape(), conv.layout);
  if (on_host()) {
    poison(y_);
  } else {
    Tensor poisoned(conv.dtype, plan_.output_shape(), conv.layout);
    poison(poisoned);
    device_->device.copy(poisoned, y_);
  }
  device_->device.synchronize();
}

void ConvRunner::run() const {
  plan_.run(x_, weights_, bias_, y_);
  if (!on_host()) device_->device.synchronize();
}

Tensor ConvRunner::result() const {
  if (on_host()) return Tensor(y_.storage(), y_.view());
  Tensor host(y_.dtype(), y_.shape(), y_.layout());
  device_->device.copy(y_, host);
  device_->device.synchronize();
  return host;
}

}  // namespace gable::bench
