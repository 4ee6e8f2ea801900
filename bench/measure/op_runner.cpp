// See op_runner.h.
#include "bench/measure/op_runner.h"

#include <memory>
#include <optional>
#include <utility>

#include "bench/workloads/cases.h"

namespace gable::bench {
namespace {

/// Evicts the last-level cache by reading more than it holds (an H200's L2 has 60 MB, an MI300's 256 MB). The copies
/// write to one small buffer, because lines that a sweep leaves dirty are written back during the next run. The buffers
/// live from sweep to sweep: a driver zeroes new memory while the next run goes on (340 MB more on an H100).
class DeviceSweep {
 public:
  explicit DeviceSweep(const Device& device)
      : device_(device),
        from_(device.tensor(DType::f32, Shape{kBytes / 4})),
        to_(device.tensor(DType::f32, Shape{kPiece / 4})) {}

  void run() const {
    const ConstTensorView all = from_;
    for (std::int64_t at = 0; at < kBytes; at += kPiece) {
      const void* piece = static_cast<const char*>(all.data) + at;
      device_.copy(ConstTensorView(piece, all.dtype, to_.shape(), all.layout, all.memory), to_);
    }
  }

 private:
  static constexpr std::int64_t kBytes = std::int64_t{512} << 20, kPiece = std::int64_t{4} << 20;

  const Device& device_;
  Tensor from_;
  Tensor to_;
};

}  // namespace

OpRunner::OpRunner(const OpenDevice& device, const Op& op) : device_(&device), plan_(device.device.plan(op)) {}

Placement OpRunner::placement() const {
  const Arithmetic arithmetic = plan_.arithmetic();
  Placement place = placement_of(*device_, plan_);
  place.kernel = plan_.kernel();
  place.fused = plan_.fused();
  if (place.threads && plan_.threads() > 0 && plan_.threads() < *place.threads) place.used_threads = plan_.threads();
  place.arithmetic = {.dtype = arithmetic.dtype, .products = arithmetic.products};
  return place;
}

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

void OpRunner::enqueue() const {
  if (has_math(plan_.op())) {
    plan_.run(x_, weights_, bias_, y_);
  } else if (second_.data != nullptr) {
    plan_.run(x_, second_, y_);
  } else {
    plan_.run(x_, y_);
  }
}

void OpRunner::run() const {
  enqueue();
  if (!on_host()) device_->device.synchronize();
}

perf::Subject OpRunner::subject() const {
  if (on_host()) return perf::on_host([this] { run(); });
  return {[this](int calls) { return seconds_of(calls); },
          [this, sweep = std::make_shared<std::optional<DeviceSweep>>()] {
            if (!*sweep) sweep->emplace(device_->device);
            (*sweep)->run();
          }};
}

double OpRunner::seconds_of(int calls) const {
  Event start = device_->device.event();
  Event end = device_->device.event();
  // A call before the first event keeps the device busy while the host enqueues the others. A single call has no such
  // call before it, because it may need cold caches.
  if (calls > 1) enqueue();
  start.record();
  for (int i = 0; i < calls; ++i) enqueue();
  end.record();
  return end.seconds_since(start);
}

Tensor OpRunner::result() const {
  if (on_host()) return Tensor(y_.storage(), y_.view());
  Tensor host(y_.dtype(), y_.shape(), y_.layout());
  device_->device.copy(y_, host);
  device_->device.synchronize();
  return host;
}

}  // namespace gable::bench
