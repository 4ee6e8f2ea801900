// What every device's plans keep to: a second run, tensors that they were not made for, packed weights of other plans.
#include "tests/conformance/conformance_run.h"
#include "tests/conformance/devices.h"
#include "tests/tools/expect.h"

#include <doctest/doctest.h>
#include <gable/gable.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gable::conformance {
namespace {

TEST_CASE("a second run gives the same result, from other memory too") {
  for (const Device& device : available_devices()) {
    for (const Op& op : one_of_each(device)) {
      INFO(device.info().uri, ": ", describe(op));
      const Plan plan = device.plan(op);
      const Operands operands = make_operands(op);
      const OracleResult expected = oracle(op, operands.views());
      Bench first(device, plan, operands);
      Bench second(device, plan, operands);
      first.run();
      second.run();
      first.output().poison();
      first.run();
      for (const Bench* bench : {&first, &second}) {
        CHECK(compare(bench->outcome().y, expected, plan.error_bound()).passed);
      }
    }
  }
}

TEST_CASE("a plan refuses what it was not made for and names it") {
  for (const Device& device : available_devices()) {
    INFO(device.info().uri);
    const Conv2d conv = small_conv();
    const Plan plan = device.plan(conv);
    const Operands operands = make_operands(conv);
    const Placed x(device, operands.tensors[0]);
    const Placed w(device, operands.tensors[1]);
    const Placed b(device, operands.tensors[2]);
    const Placed y(device, conv.dtype, plan.output_shape(), conv.layout);
    const PackedWeights packed = plan.pack(w.view());
    const auto run = [&](const TensorView& input, const TensorView& bias, const TensorView& output) {
      return message_if_thrown([&] { plan.run(input, packed, bias, output); });
    };
    CHECK(run(x.view(), b.view(), y.view()).empty());

    TensorView wrong = x.view();
    wrong.shape[1] = 17;
    CHECK(contains(run(wrong, b.view(), y.view()), "2x17x11x13"));
    wrong = x.view();
    wrong.dtype = DType::bf16;
    CHECK(contains(run(wrong, b.view(), y.view()), "bf16"));
    wrong = x.view();
    wrong.layout = Layout::nchw;
    CHECK(contains(run(wrong, b.view(), y.view()), "nchw"));
    wrong = x.view();
    wrong.memory = {Memory::Kind::cuda, 7};
    CHECK(contains(run(wrong, b.view(), y.view()), "cuda:7"));
    wrong = y.view();
    wrong.data = nullptr;
    CHECK(contains(run(x.view(), b.view(), wrong), "y is a null pointer"));
    wrong = b.view();
    wrong.shape[0] = 33;
    CHECK(contains(run(x.view(), wrong, y.view()), "bias is 33"));
    CHECK(contains(message_of([&] { plan.run(x.view(), packed, y.view()); }), "bias is a null pointer"));
    CHECK(contains(message_of([&] { plan.run(x.view(), PackedWeights{}, b.view(), y.view()); }), "empty"));

    Conv2d other = conv;
    other.weights = {50, 18, 3, 3};
    const Plan other_plan = device.plan(other);
    const Placed other_w(device, make_operands(other).tensors[1]);
    const PackedWeights foreign = other_plan.pack(other_w.view());
    CHECK(contains(message_of([&] { plan.run(x.view(), foreign, b.view(), y.view()); }), "another kernel or shape"));
    CHECK(contains(message_of([&] { plan.pack(other_w.view()); }), "50x18x3x3"));
  }
}

/// Backends whose f32 plans of one layer must share packed weights, whatever the batch and the image.
bool must_share(const std::string& backend) { return backend != "onednn"; }

/// The plan gives right numbers with weights that another plan packed.
void check_with(const PackedWeights& packed, const Device& device, const Plan& plan, const Operands& operands) {
  const Placed x(device, operands.tensors[0]);
  const Placed b(device, operands.tensors[2]);
  Placed y(device, dtype_of(plan.op()), plan.output_shape(), operands.tensors[0].layout());
  y.poison();
  plan.run(x.view(), packed, b.view(), y.view());
  device.synchronize();
  CHECK(compare(y.read(), oracle(plan.op(), operands.views()), plan.error_bound()).passed);
}

TEST_CASE("plans of one layer share packed weights, whatever the batch and the image, and refuse another layer's") {
  const Conv2d layer{.input = {1, 24, 11, 13},
                     .weights = {40, 24, 3, 3},
                     .padding = {1, 1},
                     .layout = Layout::nhwc,
                     .epilogue = {.bias = true}};
  for (const Device& device : available_devices()) {
    INFO(device.info().uri);
    const Plan packer = device.plan(layer);
    const Placed w(device, make_operands(layer).tensors[1]);
    const PackedWeights packed = packer.pack(w.view());
    for (const Shape& input : {Shape{5, 24, 11, 13}, Shape{1, 24, 30, 8}}) {
      Conv2d other = layer;
      other.input = input;
      other.epilogue.activation = Activation::relu;
      INFO(describe(other));
      Operands operands = make_operands(other);
      operands.tensors[1] = w.read();
      const Plan runner = device.plan(other);
      const bool shares = runner.pack(w.view()).key() == packed.key();
      CHECK((shares || !must_share(device.info().backend)));
      if (shares) {
        check_with(packed, device, runner, operands);
      } else {
        CHECK_THROWS_AS(check_with(packed, device, runner, operands), Error);
      }
    }
    std::vector<Conv2d> others(3, layer);
    others[0].weights = {48, 24, 3, 3};
    others[1].weights = {40, 24, 1, 9};
    others[1].padding = {0, 4};
    others[2].weights = {40, 12, 3, 3};
    others[2].groups = 2;
    for (const Conv2d& other : others) {
      INFO(describe(other));
      CHECK_THROWS_AS(check_with(packed, device, device.plan(other), make_operands(other)), Error);
    }
  }
}

TEST_CASE("element-wise ops may write over an input of the output's shape, and not over another") {
  const std::vector<Op> ops{Add{.shape = {1003}},
                            Add{.shape = {1 << 20}},
                            Multiply{.a = {70001}, .b = {70001}},
                            Multiply{.a = {2, 7, 5, 9}, .b = {2, 7, 1, 1}},
                            Activate{.shape = {70001}, .function = Function::hard_swish},
                            Softmax{.shape = {11, 1003}},
                            Softmax{.shape = {2, 11, 9, 7}, .axis = 1}};
  for (const Device& device : available_devices()) {
    for (const Op& op : ops) {
      if (!takes(device, op)) continue;
      INFO(device.info().uri, ": ", describe(op));
      const Operands operands = make_operands(op);
      const OracleResult expected = oracle(op, operands.views());
      const Plan plan = device.plan(op);
      for (std::size_t over = 0; over < operands.tensors.size(); ++over) {
        std::vector<Placed> inputs;
        inputs.reserve(operands.tensors.size());
        for (const Tensor& tensor : operands.tensors) inputs.emplace_back(device, tensor);
        TensorView y = inputs[over].view();
        const bool fits = y.shape == plan.output_shape();
        y.shape = plan.output_shape();  // begins where the input begins
        const auto run = [&] {
          inputs.size() == 2 ? plan.run(inputs[0].view(), inputs[1].view(), y) : plan.run(inputs[0].view(), y);
        };
        if (!fits) {
          CHECK_THROWS_WITH_AS(run(), doctest::Contains("overlaps"), Error);
          continue;
        }
        run();
        device.synchronize();
        CHECK(compare(inputs[over].read(), expected, plan.error_bound()).passed);
      }
    }
  }
}

}  // namespace
}  // namespace gable::conformance
