// A backend of one device that adds f32 tensors: what the loader's test plugins are made of.
#pragma once

#include <gable/backend.h>
#include <gable/error.h>

#include <memory>
#include <string>
#include <vector>

namespace gable::test {

class AddPlan final : public PlanImpl {
 public:
  explicit AddPlan(const Op& op)
      : PlanImpl(
            {.kernel = "loop", .explanation = "adds in a loop", .bound = f32_accumulation_bound(1, DType::f32, {})}),
        count_(output_shape(op).elements()) {}
  void run(const RunArguments& arguments) override {
    const auto* a = static_cast<const float*>(arguments.inputs[0]);
    const auto* b = static_cast<const float*>(arguments.inputs[1]);
    auto* c = static_cast<float*>(arguments.output);
    for (std::int64_t i = 0; i < count_; ++i) c[i] = a[i] + b[i];
  }

 private:
  std::int64_t count_;
};

class AddDevice final : public DeviceImpl {
 public:
  using DeviceImpl::DeviceImpl;
  std::vector<KernelOffer> offers(const Op& op) const override {
    const bool can = std::holds_alternative<Add>(op) && dtype_of(op) == DType::f32;
    if (!can) return {{"loop", "it adds f32 tensors and nothing else", {}}};
    return {{"loop", "", [op] { return std::make_unique<AddPlan>(op); }}};
  }
};

class TestBackend : public Backend {
 public:
  explicit TestBackend(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  int priority() const override { return -1; }  // behind every real device
  std::vector<std::string> options() const override { return {}; }
  std::vector<DeviceInfo> probe() const override {
    return {{.uri = name_, .backend = name_, .name = "a loop", .available = true, .kernels = {"loop"}}};
  }
  std::shared_ptr<DeviceImpl> open(const DeviceUri&) const override {
    return std::make_shared<AddDevice>(TestBackend::probe().front());
  }

 private:
  std::string name_;
};

}  // namespace gable::test
