// A backend with two devices: the first has a GPU's kind of memory, held on the host, the second has host memory. A
// device's kind is that of its memory, whatever its name begins with.
#include <gable/backend.h>
#include <gable/gable.h>

#include <chrono>
#include <cstring>
#include <memory>

namespace {

class HostPlan final : public gable::PlanImpl {
 public:
  HostPlan(const gable::Conv2d& conv, gable::Plan plan)
      : PlanImpl({.kernel = "on_host",
                  .explanation = "the reference",
                  .bound = plan.error_bound(),
                  .packed_bytes = 1,
                  .packing_key = gable::packing_key("double")}),
        conv_(conv),
        plan_(std::move(plan)) {}

  void pack(const void* weights, void*) override { weights_ = plan_.pack({weights, conv_.dtype, conv_.weights}); }

  void run(const gable::RunArguments& arguments) override {
    const gable::ConstTensorView x(arguments.inputs[0], conv_.dtype, conv_.input, conv_.layout);
    plan_.run(x, weights_, gable::TensorView(arguments.output, conv_.dtype, plan_.output_shape(), conv_.layout));
  }

 private:
  gable::Conv2d conv_;
  gable::Plan plan_;
  gable::PackedWeights weights_;
};

class ClockEvent final : public gable::EventImpl {
 public:
  void record(void*) override { at_ = std::chrono::steady_clock::now(); }
  double seconds_since(const EventImpl& start) const override {
    return std::chrono::duration<double>(at_ - static_cast<const ClockEvent&>(start).at_).count();
  }

 private:
  std::chrono::steady_clock::time_point at_{};
};

class DoubleDevice final : public gable::DeviceImpl {
 public:
  using DeviceImpl::DeviceImpl;

  std::vector<gable::KernelOffer> offers(const gable::Op& op) const override {
    const auto* conv = std::get_if<gable::Conv2d>(&op);
    if (conv == nullptr) return {{"on_host", "only convolutions", {}}};
    return {{"on_host", "",
             [conv = *conv] { return std::make_unique<HostPlan>(conv, gable::open("reference").plan(conv)); }}};
  }

  void copy(const gable::ConstTensorView& from, const gable::TensorView& to, void*) const override {
    std::memcpy(to.data, from.data, static_cast<std::size_t>(from.shape.elements()) * gable::size_of(from.dtype));
  }

  std::shared_ptr<gable::EventImpl> event() const override { return std::make_shared<ClockEvent>(); }
};

class DoubleBackend final : public gable::Backend {
 public:
  std::string name() const override { return "cuda_double"; }
  int priority() const override { return -2; }
  std::vector<std::string> options() const override { return {}; }

  std::vector<gable::DeviceInfo> probe() const override {
    return {
        {.uri = "cuda_double:0",
         .backend = "cuda_double",
         .name = "a GPU's double",
         .available = true,
         .memory = {gable::Memory::Kind::cuda, 0},
         .kernels = {"on_host"}},
        {.uri = "cuda_double:1", .backend = "cuda_double", .name = "a CPU", .available = true, .kernels = {"on_host"}}};
  }

  std::shared_ptr<gable::DeviceImpl> open(const gable::DeviceUri& uri) const override {
    return std::make_shared<DoubleDevice>(probe().at(uri.selector == "1" ? 1 : 0));
  }
};

}  // namespace

GABLE_PLUGIN(DoubleBackend)
