// A backend that is wrong on purpose: the reference's result with one wrong element, in any math. Checks of results
// must find it.
#include <gable/backend.h>
#include <gable/gable.h>

namespace {

void spoil(const gable::TensorView& y) {
  switch (y.dtype) {
    case gable::DType::f32:
      *static_cast<float*>(y.data) += 1;
      break;
    case gable::DType::f16:
      *static_cast<std::uint16_t*>(y.data) ^= 0x4000;
      break;
    case gable::DType::bf16:
      *static_cast<std::uint16_t*>(y.data) ^= 0x4000;
      break;
  }
}

gable::PlanDetails details_of(const gable::Plan& plan, std::size_t packed_bytes) {
  return {.kernel = "one_off",
          .explanation = "the reference, and one element off",
          .bound = plan.error_bound(),
          .packed_bytes = packed_bytes,
          .packing_key = gable::packing_key("wrong")};
}

class WrongPlan final : public gable::PlanImpl {
 public:
  WrongPlan(const gable::Conv2d& conv, gable::Plan plan)
      : PlanImpl(details_of(plan, 1)), conv_(conv), plan_(std::move(plan)) {}

  void pack(const void* weights, void*) override { weights_ = plan_.pack({weights, conv_.dtype, conv_.weights}); }

  void run(const gable::RunArguments& arguments) override {
    const gable::ConstTensorView x(arguments.inputs[0], conv_.dtype, conv_.input, conv_.layout);
    const gable::ConstTensorView bias(arguments.bias, gable::DType::f32, {conv_.weights[0]});
    const gable::TensorView y(arguments.output, conv_.dtype, plan_.output_shape(), conv_.layout);
    plan_.run(x, weights_, bias, y);
    spoil(y);
  }

 private:
  gable::Conv2d conv_;
  gable::Plan plan_;
  gable::PackedWeights weights_;
};

class WrongDevice final : public gable::DeviceImpl {
 public:
  using DeviceImpl::DeviceImpl;

  std::vector<gable::KernelOffer> offers(const gable::Op& op) const override {
    const auto* asked = std::get_if<gable::Conv2d>(&op);
    if (asked == nullptr) return {{"one_off", "only convolutions go wrong here", {}}};
    gable::Conv2d conv = *asked;
    conv.math = gable::Math::strict;
    return {{"one_off", "", [conv] { return std::make_unique<WrongPlan>(conv, gable::open("reference").plan(conv)); }}};
  }
};

class WrongBackend final : public gable::Backend {
 public:
  std::string name() const override { return "wrong"; }
  int priority() const override { return -1; }
  std::vector<std::string> options() const override { return {}; }

  std::vector<gable::DeviceInfo> probe() const override {
    return {
        {.uri = "wrong", .backend = "wrong", .name = "wrong on purpose", .available = true, .kernels = {"one_off"}}};
  }

  std::shared_ptr<gable::DeviceImpl> open(const gable::DeviceUri&) const override {
    return std::make_shared<WrongDevice>(probe().front());
  }
};

}  // namespace

GABLE_PLUGIN(WrongBackend)
