// See staged_device.h.
#include "backends/registry/staged_device.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backends/registry/operands.h"

namespace gable {
namespace {

// Copies between pageable memory and a GPU on PCIe 5, fitted to every other one of 1646 layers on an H200 and its host
// (bench/results/h200/regret-auto-*host*.json). On the others the median of measured over predicted times is 0.99.
constexpr double kCopyCall = 8e-6;     // seconds that an empty copy takes
constexpr double kShortBytes = 320e3;  // of a copy; what lies beyond is copied faster
constexpr double kShortRate = 11.2e9;  // bytes a second
constexpr double kLongRate = 14.2e9;

double copy_seconds(std::size_t bytes) {
  if (bytes == 0) return 0;
  const auto all = static_cast<double>(bytes), first = std::min(all, kShortBytes);
  return kCopyCall + first / kShortRate + (all - first) / kLongRate;
}

ConstTensorView flat(const void* data, std::size_t bytes, Memory memory) {
  return {data, DType::f16, Shape{static_cast<std::int64_t>(bytes / 2)}, Layout::nchw, memory};
}

TensorView flat(void* data, std::size_t bytes, Memory memory) {
  return {data, DType::f16, Shape{static_cast<std::int64_t>(bytes / 2)}, Layout::nchw, memory};
}

PlanDetails details_of(const PlanImpl& inner, const DeviceImpl& device, const Operands& operands) {
  PlanDetails details = inner.details();
  const Memory memory = device.info().memory;
  const std::size_t copied = operands.bytes(operands.inputs[0] + operands.inputs[1] + operands.output);
  details.explanation += "\ntensors lie in host memory: each run copies them to " + to_string(memory) + " and back";
  details.workspace_bytes += copied + operands.bias_bytes();
  // Weights packed on one GPU are not valid on another one.
  details.packing_key = packing_key(to_string(memory) + " staged " + std::to_string(details.packing_key));
  return details;
}

class StagedPlan final : public PlanImpl {
 public:
  StagedPlan(std::unique_ptr<PlanImpl> inner, std::shared_ptr<const DeviceImpl> device, const Op& op)
      : StagedPlan(std::move(inner), std::move(device), operands_of(op)) {}

  void pack(const void* weights, void* packed) override {
    const std::size_t bytes = operands_.bytes(operands_.weights);
    const std::shared_ptr<void> there = device_->allocate(bytes);
    device_->copy(flat(weights, bytes, {}), flat(there.get(), bytes, memory_), nullptr);
    inner_->pack(there.get(), packed);
    device_->synchronize(nullptr);
  }

  void run(const RunArguments& a) override {
    RunArguments there{.weights = a.weights, .output = output_.get(), .stream = stream_.native()};
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      send(a.inputs[i], operands_.bytes(operands_.inputs[i]), inputs_[i].get());
      there.inputs[i] = inputs_[i].get();
    }
    send(a.bias, operands_.bias_bytes(), bias_.get());
    there.bias = static_cast<const float*>(bias_.get());
    inner_->run(there);
    const std::size_t bytes = operands_.bytes(operands_.output);
    device_->copy(flat(static_cast<const void*>(output_.get()), bytes, memory_), flat(a.output, bytes, {}),
                  stream_.native());
    device_->synchronize(stream_.native());
  }

 private:
  StagedPlan(std::unique_ptr<PlanImpl> inner, std::shared_ptr<const DeviceImpl> device, const Operands& operands)
      : PlanImpl(details_of(*inner, *device, operands)),
        inner_(std::move(inner)),
        device_(std::move(device)),
        memory_(device_->info().memory),
        operands_(operands),
        stream_(device_->stream()),
        bias_(allocate(operands.bias_bytes())),
        output_(allocate(operands.bytes(operands.output))) {
    for (std::size_t i = 0; i < inputs_.size(); ++i) inputs_[i] = allocate(operands.bytes(operands.inputs[i]));
  }

  std::shared_ptr<void> allocate(std::size_t bytes) const { return bytes == 0 ? nullptr : device_->allocate(bytes); }

  void send(const void* from, std::size_t bytes, void* to) const {
    if (bytes != 0 && from != nullptr) device_->copy(flat(from, bytes, {}), flat(to, bytes, memory_), stream_.native());
  }

  std::unique_ptr<PlanImpl> inner_;
  std::shared_ptr<const DeviceImpl> device_;
  Memory memory_;
  Operands operands_;
  Stream stream_;
  std::array<std::shared_ptr<void>, 2> inputs_{};
  std::shared_ptr<void> bias_;
  std::shared_ptr<void> output_;
};

class StagedDevice final : public DeviceImpl {
 public:
  explicit StagedDevice(std::shared_ptr<DeviceImpl> inner) : DeviceImpl(inner->info()), inner_(std::move(inner)) {
    info_.memory = {};
  }

  std::vector<KernelOffer> offers(const Op& op) const override { return staged(op, inner_->offers(op)); }
  std::vector<KernelOffer> quick_offers(const Op& op) const override { return staged(op, inner_->quick_offers(op)); }

  std::optional<double> predicted_seconds(const Op& op) const override {
    const std::optional<double> there = inner_->predicted_seconds(op);
    if (!there) return std::nullopt;
    return *there + staging_seconds(op);
  }

  /// Allocates in the device's memory: plans allocate only packed weights here.
  std::shared_ptr<void> allocate(std::size_t bytes) const override { return inner_->allocate(bytes); }

 private:
  std::vector<KernelOffer> staged(const Op& op, std::vector<KernelOffer> all) const {
    for (KernelOffer& offer : all) {
      if (!offer.supported()) continue;
      offer.make = [make = std::move(offer.make), device = inner_, op]() -> std::unique_ptr<PlanImpl> {
        return std::make_unique<StagedPlan>(make(), device, op);
      };
      if (!offer.search) continue;
      offer.search = [search = std::move(offer.search), device = inner_,
                      op](const PlanSearch& how) -> std::unique_ptr<PlanImpl> {
        return std::make_unique<StagedPlan>(search(how), device, op);
      };
    }
    return all;
  }

  std::shared_ptr<DeviceImpl> inner_;
};

}  // namespace

double staging_seconds(const Op& op) {
  const Operands operands = operands_of(op);
  double seconds = copy_seconds(operands.bias_bytes());
  for (const auto elements : {operands.inputs[0], operands.inputs[1], operands.output})
    seconds += copy_seconds(operands.bytes(elements));
  return seconds;
}

std::shared_ptr<DeviceImpl> make_staged_device(std::shared_ptr<DeviceImpl> inner) {
  return std::make_shared<StagedDevice>(std::move(inner));
}

}  // namespace gable
