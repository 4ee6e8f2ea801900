// The API without any kernel: URIs, the checks of a plan, batches, threads and processes. ops_test.cpp has ops as data.
#include <doctest/doctest.h>
#include <gable/backend.h>
#include <gable/gable.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "backends/cudnn/trial.h"
#include "tests/tools/expect.h"

namespace gable {
namespace {

TEST_CASE("a device URI has a backend, a selector and options") {
  const DeviceUri uri = parse_device_uri("cpu:avx2?threads=3&kernel=direct");
  CHECK(uri.backend == "cpu");
  CHECK(uri.selector == "avx2");
  CHECK(uri.options.at("threads") == "3");
  CHECK(to_string(uri) == "cpu:avx2?kernel=direct&threads=3");
  CHECK(integer_option(uri, "threads", 1, 8, 1) == 3);
  CHECK(integer_option(uri, "depth", 1, 8, 5) == 5);
  CHECK(contains(message_of([&] { integer_option(uri, "threads", 4, 8, 4); }), "threads is '3'; it must be"));
  CHECK(contains(message_of([] { parse_device_uri(""); }), "no backend is named"));
  CHECK(contains(message_of([] { parse_device_uri("../evil"); }), "'../evil' is no backend's name"));
  CHECK(contains(message_of([] { parse_device_uri("cudnn&choose=measured"); }), "write only=cuda+cudnn there"));
  CHECK(contains(message_of([] { parse_device_uri("cpu:"); }), "nothing follows ':'"));
  CHECK(contains(message_of([] { parse_device_uri("cpu?threads"); }), "'threads' is not an option"));
  CHECK(contains(message_of([] { parse_device_uri("cpu?a=1&a=2"); }), "given twice"));
  CHECK(contains(message_of([&] { check_options(uri, {"threads"}); }), "unknown option 'kernel'; cpu has threads"));
}

TEST_CASE("a device that is not there is refused with what is") {
  const std::string message = message_of([] { open("nosuch:0"); }, ErrorCode::unavailable);
  CHECK(contains(message, "no backend 'nosuch'"));
  CHECK(contains(message, "reference"));
  CHECK(contains(message, "libgable_nosuch.so"));
  CHECK(contains(message_of([] { open("reference:fast"); }), "the reference has no 'fast'"));
  CHECK(contains(message_of([] { open("reference?speed=9"); }), "unknown option 'speed'"));
  CHECK(contains(message_of([] { open("reference?kernel=quick"); }), "the reference has f64_loops"));
  CHECK(open("reference?kernel=f64_loops").info().library.empty());
}

TEST_CASE("a plan refuses tensors that it was not made for") {
  const Device device = open("reference");
  const Conv2d conv{.input = {1, 2, 4, 4}, .weights = {3, 2, 3, 3}, .epilogue = {.bias = true}};
  const Plan plan = device.plan(conv);
  const Tensor x(DType::f32, conv.input);
  const Tensor weights(DType::f32, conv.weights);
  const Tensor bias(DType::f32, {3});
  const Tensor y(DType::f32, plan.output_shape());
  std::fill_n(weights.as<float>(), weights.shape().elements(), 0.5f);
  std::fill_n(x.as<float>(), x.shape().elements(), 1.0f);
  std::fill_n(bias.as<float>(), 3, 0.25f);
  const PackedWeights packed = plan.pack(weights);

  plan.run(x, packed, bias, y);
  CHECK(y.as<float>()[0] == doctest::Approx(9.25));
  CHECK(contains(message_of([&] { plan.run(x, packed, y); }), "bias is a null pointer; this plan takes 3 f32"));
  CHECK(contains(message_of([&] { plan.run(x, PackedWeights(), bias, y); }), "packed weights are empty"));
  const Plan other = device.plan(Conv2d{.input = {1, 2, 4, 4}, .weights = {3, 2, 1, 1}});
  const PackedWeights foreign = other.pack(Tensor(DType::f32, {3, 2, 1, 1}));
  CHECK(contains(message_of([&] { plan.run(x, foreign, bias, y); }), "packed for another kernel or shape"));
  CHECK(contains(message_of([&] {
                   other.run(x, foreign, bias, Tensor(DType::f32, {1, 3, 4, 4}));
                 }),
                 "described without one"));
  const Tensor wide(DType::f32, {1, 2, 4, 5});
  CHECK(contains(message_of([&] { plan.run(wide, packed, bias, y); }),
                 "x is 1x2x4x5 f32 nchw in host memory; this plan takes 1x2x4x4"));
  const Tensor half(DType::f16, conv.input);
  CHECK(contains(message_of([&] { plan.run(half, packed, bias, y); }), "x is 1x2x4x4 f16"));
  const Tensor channels_last(DType::f32, conv.input, Layout::nhwc);
  CHECK(contains(message_of([&] { plan.run(channels_last, packed, bias, y); }), "f32 nhwc"));
  ConstTensorView elsewhere(x);
  elsewhere.memory = {.kind = Memory::Kind::cuda, .index = 1};
  CHECK(contains(message_of([&] { plan.run(elsewhere, packed, bias, y); }), "in cuda:1 memory"));
  CHECK(contains(message_of([&] { plan.run(x, y); }), "needs packed weights"));
  CHECK(contains(message_of([&] { device.plan(Add{.shape = {4}}).pack(weights); }), "add has no weights"));
}

TEST_CASE("NCHW and NHWC are one order where C = 1 or H = W = 1: a plan, copy() and the oracle take either") {
  CHECK(same_order({2, 1, 4, 5}, Layout::nchw, Layout::nhwc));
  CHECK(same_order({2, 3, 1, 1}, Layout::nchw, Layout::nhwc));
  CHECK(same_order({4, 5}, Layout::nchw, Layout::nhwc));
  CHECK_FALSE(same_order({2, 2, 1, 4}, Layout::nchw, Layout::nhwc));
  CHECK_FALSE(same_order({2, 2, 4, 1}, Layout::nchw, Layout::nhwc));
  for (const char* uri : {"reference", "cpu"}) {
    CAPTURE(uri);
    const Device device = open(uri);
    // One channel in, one pixel out.
    const Conv2d conv{.input = {2, 1, 2, 2}, .weights = {3, 1, 2, 2}, .layout = Layout::nhwc};
    const Plan plan = device.plan(conv);
    const Tensor x(DType::f32, conv.input, Layout::nchw);
    const Tensor weights(DType::f32, conv.weights);
    const Tensor y(DType::f32, plan.output_shape(), Layout::nchw);
    for (int i = 0; i < 8; ++i) x.as<float>()[i] = static_cast<float>(i);
    for (int i = 0; i < 12; ++i) weights.as<float>()[i] = static_cast<float>(i / 4);
    plan.run(x, plan.pack(weights), y);
    CHECK(y.as<float>()[2] == 2 * (0 + 1 + 2 + 3));
    CHECK(y.as<float>()[4] == 4 + 5 + 6 + 7);
    CHECK(oracle(conv, {x, weights}).exact[4] == 4 + 5 + 6 + 7);
    const Tensor other(DType::f32, conv.input, Layout::nhwc);
    device.copy(x, other);
    CHECK(other.as<float>()[7] == 7);
  }
}

TEST_CASE("an output that overlaps what the op reads is refused") {
  const Device device = open("cpu");
  const Conv2d conv{.input = {1, 4, 4, 4}, .weights = {4, 4, 1, 1}, .epilogue = {.bias = true}};
  const Plan plan = device.plan(conv);
  const Tensor memory(DType::f32, {3 * 64});
  const auto at = [&](std::int64_t element) {
    return TensorView(memory.as<float>() + element, DType::f32, conv.input);
  };
  const auto bias_at = [&](std::int64_t element) { return TensorView(memory.as<float>() + element, DType::f32, {4}); };
  const Tensor weights(DType::f32, conv.weights);
  const PackedWeights packed = plan.pack(weights);
  const auto refusal = [&](const TensorView& x, const TensorView& bias, const TensorView& y) {
    return message_if_thrown([&] { plan.run(x, packed, bias, y); });
  };
  CHECK(refusal(at(0), bias_at(128), at(64)).empty());
  CHECK(contains(refusal(at(0), bias_at(128), at(0)), "y overlaps x: the output needs memory of its own"));
  CHECK(contains(refusal(at(0), bias_at(128), at(63)), "y overlaps x"));
  CHECK(contains(refusal(at(64), bias_at(128), at(1)), "y overlaps x"));
  CHECK(contains(refusal(at(0), bias_at(124), at(64)), "y overlaps bias"));
  const TensorView over_weights(const_cast<void*>(packed.data()), DType::f32, conv.input);
  CHECK(contains(refusal(at(0), bias_at(128), over_weights), "y overlaps the packed weights"));

  const Plan transpose = device.plan(Transpose{.rows = 8, .columns = 8});
  const TensorView square(memory.as<float>(), DType::f32, {8, 8});
  CHECK(contains(message_of([&] { transpose.run(square, square); }), "transpose: y overlaps x"));

  const Plan add = device.plan(Add{.shape = {64}});
  const auto flat = [&](std::int64_t element) { return TensorView(memory.as<float>() + element, DType::f32, {64}); };
  add.run(flat(0), flat(64), flat(0));
  add.run(flat(0), flat(64), flat(64));
  CHECK(
      contains(message_of([&] { add.run(flat(0), flat(64), flat(32)); }), "c overlaps a: the output must be exactly"));
  CHECK(contains(message_of([&] { add.run(flat(0), flat(64), flat(100)); }), "c overlaps b"));
}

/// Counts how often it is asked, and runs nothing.
class CountingDevice final : public DeviceImpl {
 public:
  explicit CountingDevice(Memory memory = {})
      : DeviceImpl({.uri = "counting", .backend = "counting", .available = true, .memory = memory}) {}

  class EmptyPlan final : public PlanImpl {
   public:
    using PlanImpl::PlanImpl;
    void run(const RunArguments&) override {}
  };

  std::vector<KernelOffer> offers(const Op&) const override {
    ++asked;
    const auto make = [this] {
      ++made;
      return std::make_unique<EmptyPlan>(PlanDetails{
          .kernel = "second", .explanation = "counts", .packed_bytes = 1, .packing_key = packing_key("counting")});
    };
    return {{"first", "it is too small", {}}, {"second", "", make}, {"third", "", {}}, {"fourth", "it is late", {}}};
  }
  std::shared_ptr<void> allocate(std::size_t) const override { return std::make_shared<char>(); }

  mutable int asked = 0;
  mutable int made = 0;
};

TEST_CASE("explain() names the plan's kernel, and the one inside of it") {
  const Conv2d conv{.input = {1, 64, 28, 28}, .weights = {64, 64, 3, 3}, .padding = {1, 1}};
  Conv2d half = conv;
  half.dtype = DType::f16, half.layout = Layout::nhwc;
  const Plan around = open("cpu?kernel=reordered").plan(conv), widened = open("cpu?kernel=widened").plan(half);
  CHECK(around.kernel() == "reordered");
  CHECK(contains(around.explain(), "cpu: kernel reordered with "));
  CHECK(widened.kernel() == "widened");
  CHECK(contains(widened.explain(), "cpu: kernel widened with "));
}

TEST_CASE("kernels are asked once for a plan, and explain() has every refusal") {
  const auto counting = std::make_shared<CountingDevice>();
  const Device device(counting);
  const Plan plan = device.plan(Add{.shape = {4}});
  CHECK(counting->asked == 1);
  CHECK(counting->made == 1);
  CHECK(plan.kernel() == "second");
  CHECK(plan.explain() == "counts\nrefused first: it is too small\nrefused fourth: it is late");
  const Conv2d conv{.input = {1, 24, 9, 9}, .weights = {16, 24, 3, 3}};
  for (const char* uri : {"cpu", "reference"}) {
    const Device real = open(uri);
    const std::string text = real.plan(conv).explain();
    for (const KernelSupport& answer : real.query(conv)) {
      CAPTURE(answer.kernel);
      CHECK(contains(text, "refused " + answer.kernel + ": " + answer.reason) == !answer.supported);
    }
  }
}

/// A device whose runs wait until they are let go.
class WaitingDevice final : public DeviceImpl {
 public:
  WaitingDevice() : DeviceImpl({.uri = "waiting", .backend = "waiting", .available = true}) {}

  class WaitingPlan final : public PlanImpl {
   public:
    explicit WaitingPlan(const WaitingDevice& device) : PlanImpl({.kernel = "waits"}), device_(device) {}
    void run(const RunArguments&) override {
      ++device_.started;
      while (device_.held) std::this_thread::yield();
      if (device_.fails) throw Error(ErrorCode::device_failure, "it fails");
    }

   private:
    const WaitingDevice& device_;
  };

  std::vector<KernelOffer> offers(const Op&) const override {
    return {{"waits", "", [this] { return std::make_unique<WaitingPlan>(*this); }}};
  }

  mutable std::atomic<int> started{0};
  std::atomic<bool> held{true};
  std::atomic<bool> fails{false};
};

TEST_CASE("one plan that runs in two threads at once is refused in the second, and runs again afterwards") {
  const auto waiting = std::make_shared<WaitingDevice>();
  const Plan plan = Device(waiting).plan(Transpose{.rows = 2, .columns = 2});
  const Tensor x(DType::f32, {2, 2});
  const Tensor y(DType::f32, {2, 2});
  const Tensor z(DType::f32, {2, 2});
  std::thread first([&] { plan.run(x, y); });
  while (waiting->started == 0) std::this_thread::yield();
  CHECK(contains(message_of([&] { plan.run(x, z); }), "transpose: this plan is running in another thread"));
  waiting->held = false;
  first.join();
  CHECK(waiting->started == 1);
  waiting->fails = true;
  CHECK(message_of([&] { plan.run(x, y); }, ErrorCode::device_failure) == "it fails");
  CHECK(message_of([&] { plan.run(x, y); }, ErrorCode::device_failure) == "it fails");
}

/// A convolution on the CPU with its data; every instance has the same.
struct Layer {
  Conv2d conv{.input = {2, 24, 17, 19}, .weights = {40, 24, 3, 3}, .padding = {1, 1, 1, 1}};
  Plan plan;
  Tensor x{DType::f32, conv.input};
  Tensor weights{DType::f32, conv.weights};
  Tensor y{DType::f32, output_shape(conv)};
  PackedWeights packed;

  explicit Layer(const Device& device) : plan(device.plan(conv)) {
    for (const Tensor* tensor : {&x, &weights}) {
      for (std::int64_t i = 0; i < tensor->shape().elements(); ++i)
        tensor->as<float>()[i] = static_cast<float>(i * 2654435761 % 1001) / 500 - 1;
    }
    packed = plan.pack(weights);
  }
  void run() const {
    std::memset(y.data(), 0xff, y.bytes());
    plan.run(x, packed, y);
  }
  bool equals(const Layer& other) const { return std::memcmp(y.data(), other.y.data(), y.bytes()) == 0; }
};

TEST_CASE("plans of one device run side by side in threads") {
  const Device device = open("cpu?threads=2");
  const Layer alone(device);
  alone.run();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const Layer layer(device);
      for (int i = 0; i < 20; ++i) {
        layer.plan.run(layer.x, alone.packed, layer.y);
        if (!layer.equals(alone)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a plan for a range of batches computes what a plan of each batch does, from weights packed once") {
  for (const char* const uri : {"cpu?threads=2", "reference", "auto?only=cpu,reference"}) {
    const Device device = open(uri);
    Conv2d conv{.input = {1, 24, 9, 7}, .weights = {40, 24, 3, 3}, .padding = {1, 1, 1, 1}};
    conv.epilogue.bias = true;
    Tensor weights(DType::f32, conv.weights), bias(DType::f32, {40});
    for (std::int64_t i = 0; i < weights.shape().elements(); ++i)
      weights.as<float>()[i] = static_cast<float>(i * 2654435761 % 1001) / 500 - 1;
    for (std::int64_t i = 0; i < 40; ++i) bias.as<float>()[i] = static_cast<float>(i);
    const BatchPlan plan = device.plan(conv, BatchRange{1, 6});
    const BatchWeights packed = plan.pack(weights);
    for (const std::int64_t batch : {6, 1, 3, 6, 2}) {
      conv.input[0] = batch;
      Tensor x(DType::f32, conv.input), y(DType::f32, output_shape(conv)), expected(DType::f32, output_shape(conv));
      for (std::int64_t i = 0; i < x.shape().elements(); ++i) x.as<float>()[i] = static_cast<float>(i % 17) - 8;
      std::memset(y.data(), 0xff, y.bytes());
      plan.run(x, packed, bias, y);
      const Plan alone = device.plan(conv);
      alone.run(x, alone.pack(weights), bias, expected);
      CHECK(std::memcmp(y.data(), expected.data(), y.bytes()) == 0);
      CHECK(plan.at(batch).get() == plan.at(batch).get());
      CHECK(plan.at(batch)->kernel() == alone.kernel());
    }
    CHECK(packed.packings() >= 1);
    CHECK(packed.packings() <= 2);
    CHECK(contains(plan.explain(), "batches 1 to 6: "));
    CHECK(contains(message_of([&] { plan.at(7); }), "conv2d: a batch of 7; this plan takes 1 to 6"));
  }
}

TEST_CASE("a range of batches varies m of a matmul; wrong ranges, ops and weights are refused") {
  const Device device = open("cpu?threads=1");
  const Matmul matmul{.m = 1, .n = 5, .k = 3};
  const BatchPlan plan = device.plan(matmul, BatchRange{2, 4});
  CHECK(plan.range().most == 4);
  CHECK(plan.at(3)->output_shape()[0] == 3);
  CHECK(contains(message_of([&] { device.plan(matmul, BatchRange{0, 4}); }), "1 <= least <= most"));
  CHECK(contains(message_of([&] { device.plan(matmul, BatchRange{3, 2}); }), "batches from 3 to 2"));
  CHECK(contains(message_of([&] { device.plan(Transpose{}, BatchRange{1, 2}); }), "a transpose has no batch"));
  CHECK(contains(message_of([&] { device.plan(Add{}, BatchRange{1, 2}); }), "shape has 0 dimensions"));
  const Tensor a(DType::f32, {2, 3}), c(DType::f32, {2, 5});
  CHECK(contains(message_of([&] { plan.run(a, BatchWeights{}, c); }), "make them with this plan's pack()"));
  const Tensor many(DType::f32, {9, 3});
  const BatchWeights packed = plan.pack(Tensor(DType::f32, {3, 5}));
  CHECK(contains(message_of([&] { plan.run(many, packed, c); }), "a batch of 9"));
}

TEST_CASE("a range of batches of ops without weights: each batch gives what a plan of its own gives") {
  const Device device = open("cpu?threads=1");
  const Shape image{1, 3, 5, 4};
  const MaxPool pool{.input = image, .window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  const Add add{.shape = image, .activation = Activation::relu};
  const Reorder reorder{.shape = image};
  const Concat concat{.a = image, .b = {1, 2, 5, 4}};
  const Multiply multiply{.a = image, .b = image};
  const BatchPlan pools = device.plan(pool, BatchRange{1, 70}), adds = device.plan(add, BatchRange{1, 70}),
                  reorders = device.plan(reorder, BatchRange{1, 70}), concats = device.plan(concat, BatchRange{1, 70}),
                  multiplies = device.plan(multiply, BatchRange{1, 70}),
                  softmaxes = device.plan(Softmax{.shape = image, .axis = 1}, BatchRange{1, 70}),
                  activates = device.plan(Activate{.shape = image, .function = Function::relu6}, BatchRange{1, 70}),
                  upsamples = device.plan(Upsample{.input = image}, BatchRange{1, 70});
  CHECK(adds.explain() == "batches 1 to 70: cpu?threads=1/add\n");
  const auto bytes_of = [](const Tensor& t) {
    return std::string(static_cast<const char*>(t.data()), t.view().bytes());
  };
  for (const std::int64_t batch : {1, 2, 70, 2}) {
    Shape shape = image;
    shape[0] = batch;
    const Tensor x(DType::f32, shape), more(DType::f32, shape);
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      x.as<float>()[i] = static_cast<float>(i % 7) - 3;
      more.as<float>()[i] = static_cast<float>(i % 5) - 2;
    }
    MaxPool one_pool = pool;
    one_pool.input = shape;
    const Plan alone = device.plan(one_pool);
    const Tensor pooled(DType::f32, alone.output_shape()), expected(DType::f32, alone.output_shape());
    pools.run(x, pooled);
    alone.run(x, expected);
    CHECK(bytes_of(pooled) == bytes_of(expected));

    const Tensor sum(DType::f32, shape), sum_alone(DType::f32, shape);
    adds.run(x, more, sum);
    device.plan(Add{.shape = shape, .activation = Activation::relu}).run(x, more, sum_alone);
    CHECK(bytes_of(sum) == bytes_of(sum_alone));
    CHECK(*std::min_element(sum.as<float>(), sum.as<float>() + shape.elements()) == 0);

    const Tensor turned(DType::f32, shape, Layout::nhwc), turned_alone(DType::f32, shape, Layout::nhwc);
    reorders.run(x, turned);
    device.plan(Reorder{.shape = shape}).run(x, turned_alone);
    CHECK(bytes_of(turned) == bytes_of(turned_alone));

    const Tensor narrow(DType::f32, {batch, 2, 5, 4}), joined(DType::f32, {batch, 5, 5, 4});
    std::fill_n(narrow.as<float>(), narrow.shape().elements(), 9.0f);
    concats.run(x, narrow, joined);
    const float* last = joined.as<float>() + (batch - 1) * 100;
    CHECK(std::memcmp(last, x.as<float>() + (batch - 1) * 60, 60 * sizeof(float)) == 0);
    CHECK(std::count(last + 60, last + 100, 9.0f) == 40);

    const Tensor product(DType::f32, shape);
    multiplies.run(x, more, product);
    CHECK(product.as<float>()[shape.elements() - 1] ==
          x.as<float>()[shape.elements() - 1] * more.as<float>()[shape.elements() - 1]);

    const Tensor shares(DType::f32, shape);
    softmaxes.run(x, shares);
    const float* share = shares.as<float>() + (batch - 1) * 60;
    CHECK(share[0] + share[20] + share[40] == doctest::Approx(1));

    const Tensor doubled(DType::f32, {batch, 3, 10, 8});
    upsamples.run(x, doubled);
    CHECK(doubled.as<float>()[doubled.shape().elements() - 1] == x.as<float>()[shape.elements() - 1]);
    activates.run(x, x);
    CHECK(*std::min_element(x.as<float>(), x.as<float>() + shape.elements()) == 0);
  }
  const Tensor many(DType::f32, {71, 3, 5, 4});
  CHECK(contains(message_of([&] { adds.run(many, many, many); }), "add: a batch of 71; this plan takes 1 to 70"));
  CHECK(contains(message_of([&] { adds.pack(many); }), "add has no weights to pack"));
  const Tensor one(DType::f32, image);
  CHECK(contains(message_of([&] { adds.run(one, one); }), "add has two inputs: run(a, b, y)"));
  CHECK(contains(message_of([&] { pools.run(one, one, one); }), "max_pool does not take two inputs"));
}

TEST_CASE("what was moved from says so") {
  Device device = open("cpu?threads=1");
  const Op op = Matmul{.m = 2, .n = 5, .k = 3};
  Plan plan = device.plan(op);
  BatchPlan batches = device.plan(op, BatchRange{1, 4});
  Event event = device.event();
  const Plan other_plan = std::move(plan);
  const BatchPlan other_batches = std::move(batches);
  const Event other_event = std::move(event);
  const Tensor a(DType::f32, {2, 3}), b(DType::f32, {3, 5}), c(DType::f32, {2, 5});
  // NOLINTBEGIN(bugprone-use-after-move): that is what is tested
  CHECK(contains(message_of([&] { plan.kernel(); }), "this plan was moved from"));
  CHECK(contains(message_of([&] { plan.pack(b); }), "this plan was moved from"));
  CHECK(contains(message_of([&] { plan.run(a, other_plan.pack(b), c); }), "this plan was moved from"));
  CHECK(contains(message_of([&] { batches.run(a, other_batches.pack(b), c); }), "range of batches was moved from"));
  CHECK(contains(message_of([&] { batches.at(1); }), "range of batches was moved from"));
  CHECK(contains(message_of([&] { event.record(); }), "this event was moved from"));
  const Device other = std::move(device);
  for (const auto& call : std::initializer_list<std::function<void()>>{
           [&] { device.plan(op); }, [&] { device.info(); },
           [&] {
             device.plan(op, BatchRange{1, 2});
           },
           [&] { choose(device, op); }, [&] { tune(device, op); }, [&] { device.tensor(DType::f32, {4}); }})
    CHECK(contains(message_of(call), "this device was moved from"));
  // NOLINTEND(bugprone-use-after-move)
}

TEST_CASE("a tensor that was moved from is empty, and whatever takes one says so") {
  const Device device = open("cpu?threads=1");
  const Plan plan = device.plan(Matmul{.m = 2, .n = 5, .k = 3});
  Tensor a(DType::f32, {2, 3}), b(DType::f32, {3, 5}), assigned;
  const Tensor c(DType::f32, {2, 5}), like_a(DType::f32, {2, 3});
  std::fill_n(b.as<float>(), 15, 1.0F);
  const PackedWeights packed = plan.pack(b);
  const void* memory = a.data();
  const Tensor moved(std::move(a));
  assigned = std::move(b);
  CHECK(moved.data() == memory);
  CHECK(moved.shape() == Shape{2, 3});
  CHECK(assigned.as<float>()[14] == 1);
  const Tensor never;
  // NOLINTBEGIN(bugprone-use-after-move): that is what is tested
  for (const Tensor* empty : std::initializer_list<const Tensor*>{&a, &b, &never}) {
    CHECK(empty->data() == nullptr);
    CHECK(empty->shape() == Shape{});
    CHECK(empty->bytes() == 0);
    CHECK(contains(message_of([&] { empty->as<float>(); }), "the tensor is empty"));
    CHECK(contains(message_of([&] { plan.run(*empty, packed, c); }), "a null pointer; this plan takes 2x3"));
    CHECK(contains(message_of([&] { plan.run(moved, packed, *empty); }), "a null pointer; this plan takes 2x5"));
    CHECK(contains(message_of([&] { plan.pack(*empty); }), "a null pointer; this plan takes 3x5"));
    CHECK(contains(message_of([&] { device.copy(*empty, like_a); }), "copy: a null pointer"));
    CHECK(contains(message_of([&] { device.copy(like_a, *empty); }), "copy: a null pointer"));
  }
  a = Tensor(DType::f32, {2, 3});  // may be used again
  CHECK(a.bytes() == 24);
  // NOLINTEND(bugprone-use-after-move)
}

TEST_CASE("threads run several batches of one range at once") {
  const Device device = open("cpu?threads=1");
  const Matmul matmul{.m = 1, .n = 33, .k = 17};
  const BatchPlan plan = device.plan(matmul, BatchRange{1, 80});
  Tensor b(DType::f32, {17, 33});
  for (std::int64_t i = 0; i < b.shape().elements(); ++i) b.as<float>()[i] = 1;
  const BatchWeights packed = plan.pack(b);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t m = 1 + t; m <= 80; m += 4) {  // more batches than plans are kept
        Tensor a(DType::f32, {m, 17}), c(DType::f32, {m, 33});
        for (std::int64_t i = 0; i < a.shape().elements(); ++i) a.as<float>()[i] = 2;
        plan.run(a, packed, c);
        if (c.as<float>()[m * 33 - 1] != 34) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("threads open, list, choose and plan at once, on devices of their own and on one") {
  const Device shared = open("auto?only=cpu+reference&threads=2");
  const Layer alone(shared);
  alone.run();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 4; ++i) {
        const Device own = open(t % 2 == 0 ? "auto?only=cpu+reference&threads=2" : "cpu?threads=2");
        const Layer layer(i % 2 == 0 ? own : shared);
        layer.run();
        if (!layer.equals(alone) || devices().empty() || !choose(shared, layer.plan.op()).first()) ++wrong;
        set_log(t == 0 ? [](std::string_view) {} : std::function<void(std::string_view)>());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  set_log({});
  CHECK(wrong == 0);
}

#if !defined(__SANITIZE_THREAD__)

TEST_CASE("a child made by fork() after plans ran on several threads runs them too") {
  const Device device = open("cpu?threads=2");
  const Layer layer(device);
  layer.run();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(30);  // GCC's OpenMP would wait for its threads for ever
    const Layer own(device);
    own.run();
    ::_exit(own.equals(layer) ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  const Layer again(device);
  again.run();
  CHECK(again.equals(layer));
}

TEST_CASE("what ends its process is found out in a child") {
  CHECK(why_it_ends_the_process([] {}).empty());
  CHECK(why_it_ends_the_process([] { throw std::runtime_error("an exception"); }).empty());
  const std::string aborted = why_it_ends_the_process([] {
    std::fputs("Could not load library libx_part.so.9\n", stderr);
    std::abort();
  });
  CHECK(contains(aborted, "signal 6"));
  CHECK(contains(aborted, "Could not load library libx_part.so.9"));
  CHECK(contains(why_it_ends_the_process([] { ::_exit(7); }), "exit code 7"));
  CHECK(why_it_ends_the_process([] { ::pause(); }, 1) == "it had not returned after 1 s and was killed");
}
#endif

TEST_CASE("weights packed in one memory are refused in another") {
  const Conv2d conv{.input = {1, 1, 1, 1}, .weights = {1, 1, 1, 1}};
  const auto key_on = [&](Memory memory) {
    float weight = 1;
    return Device(std::make_shared<CountingDevice>(memory))
        .plan(conv)
        .pack({&weight, DType::f32, conv.weights, Layout::nchw, memory})
        .key();
  };
  CHECK(key_on({}) == key_on({}));
  CHECK(key_on({Memory::Kind::cuda, 0}) != key_on({Memory::Kind::cuda, 1}));
  CHECK(key_on({Memory::Kind::cuda, 0}) != key_on({}));
}

TEST_CASE("what a device can't run is refused with each kernel's reason") {
  const Device device = open("reference");
  const Conv2d conv{.input = {1, 2, 4, 4}, .weights = {3, 2, 3, 3}, .math = Math::tf32};
  const std::vector<KernelSupport> answers = device.query(conv);
  REQUIRE(answers.size() == 1);
  CHECK_FALSE(answers[0].supported);
  CHECK(contains(message_of([&] { device.plan(conv); }, ErrorCode::unsupported), answers[0].reason));
}

TEST_CASE("where one attribute is at fault, one line for each device says what would do") {
  const Conv2d conv{.input = {1, 3, 9, 9}, .weights = {8, 3, 3, 3}, .layout = Layout::nhwc, .math = Math::tf32};
  const std::string text = message_of([&] { open("cpu").plan(conv); }, ErrorCode::unsupported);
  CHECK(contains(text, ":\n  cpu: math tf32: it takes strict"));  // and split3, split6 where the CPU has AMX
  CHECK(text.find("\n  ") == text.rfind("\n  "));
  const std::string of_auto = message_of([&] { open("auto?only=cpu,reference").plan(conv); }, ErrorCode::unsupported);
  CHECK(contains(of_auto, "\n  cpu: math tf32: it takes strict"));
  CHECK(contains(of_auto, "\n  reference/"));  // it has one kernel, whose reason stands
  CHECK_FALSE(contains(of_auto, "cpu/"));
  CHECK(contains(message_of([&] { tune(open("auto?only=cpu"), conv, 0.1); }, ErrorCode::unsupported),
                 "cpu: math tf32: it takes strict"));
  CHECK(open("cpu").query(conv).size() > 5);  // all reasons are there
}

TEST_CASE("where no other value of one attribute would do, each kernel has its reason") {
  const Device device = open("cpu?kernel=depthwise");
  const Conv2d conv{.input = {1, 3, 9, 9}, .weights = {8, 3, 3, 3}, .layout = Layout::nhwc};
  const std::vector<KernelSupport> answers = device.query(conv);
  REQUIRE_FALSE(answers.empty());
  CHECK(contains(message_of([&] { device.plan(conv); }, ErrorCode::unsupported), answers[0].reason));
}

TEST_CASE("GABLE_DEVICE stands in for auto alone") {
  setenv("GABLE_DEVICE", "reference?threads=1", 1);
  CHECK(open("auto").info().uri == "reference?threads=1");
  setenv("GABLE_DEVICE", "nosuch", 1);
  CHECK(contains(message_of([] { open("auto"); }, ErrorCode::unavailable), "GABLE_DEVICE=nosuch: device 'nosuch'"));
  CHECK(open("reference").info().backend == "reference");
  setenv("GABLE_DEVICE", "bad:", 1);
  CHECK(contains(message_of([] { open("auto"); }), "GABLE_DEVICE=bad:"));
  unsetenv("GABLE_DEVICE");
}

TEST_CASE("tensors check their element type and refuse impossible shapes") {
  const Tensor half(DType::bf16, {3, 5});
  CHECK(half.bytes() == 30);
  CHECK(reinterpret_cast<std::uintptr_t>(half.data()) % 128 == 0);
  CHECK(contains(message_of([&] { half.as<float>(); }), "does not fit a bf16 tensor"));
  CHECK(contains(message_of([] { Tensor(DType::f32, {2, -1}); }), "is -1"));
  CHECK_THROWS_AS((Shape{1, 2, 3, 4, 5}), Error);
  const Device device = open("reference");
  const Tensor from(DType::f32, {2, 2});
  from.as<float>()[3] = 7;
  const Tensor to = device.tensor(DType::f32, {2, 2});
  device.copy(from, to);
  CHECK(to.as<float>()[3] == 7);
  CHECK(contains(message_of([&] { device.copy(from, Tensor(DType::f32, {4})); }), "must be equal"));
  std::vector<float> numbers(20);
  const TensorView first(numbers.data(), DType::f32, {10});
  CHECK(contains(message_of([&] { device.copy(first, TensorView(numbers.data() + 9, DType::f32, {10})); }), "overlap"));
  device.copy(first, TensorView(numbers.data() + 10, DType::f32, {10}));
  device.copy(first, first);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const TensorView endless(numbers.data(), DType::f32, {most, most});
  CHECK(contains(message_of([&] { device.copy(endless, endless); }), "must lie between 1 and"));
}

TEST_CASE("events of a host device measure the time between them, and only once recorded") {
  const Device device = open("cpu");
  Event start = device.event();
  Event end = device.event();
  start.record();
  CHECK_THROWS_AS(end.seconds_since(start), Error);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  end.record();
  CHECK(end.seconds_since(start) >= 2e-3);
  CHECK(end.seconds_since(end) == 0);
}

}  // namespace
}  // namespace gable
