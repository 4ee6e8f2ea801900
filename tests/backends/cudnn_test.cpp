// The cuDNN device itself: the reason it reports without cuDNN or a GPU, its URIs, the explanations of its plans,
// graphs. conformance_test checks results. Tests that need a GPU are skipped, with the reason, without one.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <gable/gable.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>

#include "cuda/common/check.h"
#include "tests/conformance/conformance_run.h"
#include "tests/tools/expect.h"

namespace gable {
namespace {

using conformance::make_operands;
using conformance::Operands;
using conformance::Placed;

Conv2d small_conv() {
  return {.input = {2, 64, 23, 21},
          .weights = {96, 64, 3, 3},
          .padding = {1, 1},
          .dtype = DType::f16,
          .layout = Layout::nhwc,
          .epilogue = {.bias = true, .activation = Activation::relu, .max_pool = {2, 2}}};
}

/// Must run first: once cuDNN is loaded, it stays loaded.
TEST_CASE("a GABLE_CUDNN that names no cuDNN is quoted in the loader's words, with what cures it") {
  REQUIRE(setenv("GABLE_CUDNN", "/nonexistent/one:/nonexistent/libtwo.so", 1) == 0);
  const DeviceInfo info = first_device("cudnn");
  REQUIRE(unsetenv("GABLE_CUDNN") == 0);
  REQUIRE(info.backend == "cudnn");
  CHECK_FALSE(info.available);
  CHECK(contains(info.reason, "/nonexistent/one: cannot open shared object file"));
  CHECK(contains(info.reason, "/nonexistent/libtwo.so: cannot open shared object file"));
  CHECK(contains(info.reason, "set GABLE_CUDNN to the folder that holds libcudnn.so.9"));
}

TEST_CASE("cudnn is always listed, and without a GPU or cuDNN says why") {
  const DeviceInfo info = first_device("cudnn");
  REQUIRE(info.backend == "cudnn");
  if (info.available) {
    CHECK(info.uri == "cudnn:0");
    CHECK(contains(info.name, "cuDNN 9."));
    CHECK(info.memory == Memory{Memory::Kind::cuda, 0});
  } else {
    CHECK_FALSE(info.reason.empty());
    CHECK(contains(message_of([] { open("cudnn:0"); }, ErrorCode::unavailable), "device 'cudnn:0': "));
  }
}

TEST_CASE("a URI that is wrong is refused by the part that is wrong") {
  const std::string algorithm = message_of([] { open("cudnn:0?algorithm=best"); }, ErrorCode::invalid_argument);
  CHECK(contains(algorithm, "'best'"));
  CHECK(contains(algorithm, "measured or heuristic"));
  CHECK(contains(message_of([] { open("cudnn:0?threads=2"); }, ErrorCode::invalid_argument), "threads"));
  CHECK(contains(message_of([] { open("cudnn:first"); }, ErrorCode::invalid_argument), "'first'"));
}

TEST_CASE("what cuDNN can't run is refused with a reason, as data and by plan()") {
  if (is_missing("cudnn")) return;
  const Device device = open("cudnn:0");
  Conv2d conv = small_conv();
  conv.dtype = DType::f32;
  conv.math = Math::split3;
  const std::vector<KernelSupport> answers = device.query(conv);
  REQUIRE(answers.size() == 1);
  CHECK_FALSE(answers.front().supported);
  CHECK(contains(answers.front().reason, "no split f32 products"));
  CHECK(contains(message_of([&] { device.plan(conv); }, ErrorCode::unsupported), answers.front().reason));
  const MaxPool uneven{.input = {1, 8, 9, 9}, .window = {3, 3}, .stride = {1, 1}, .padding = {0, 1, 2, 0}};
  CHECK(contains(device.query(uneven).front().reason, "pads both sides alike"));
}

TEST_CASE("a plan says which engine it took and whether that was measured, and either way computes the same") {
  if (is_missing("cudnn")) return;
  const Conv2d conv = small_conv();
  const Operands operands = make_operands(conv);
  const OracleResult expected = oracle(conv, operands.views());
  for (const std::string algorithm : {"measured", "heuristic"}) {
    const Device device = open("cudnn:0?algorithm=" + algorithm);
    const Plan plan = device.plan(conv);
    CHECK(contains(plan.explain(), "on engine "));
    CHECK(contains(plan.explain(), algorithm == "measured" ? "the fastest of" : "not measured"));
    CHECK_FALSE(plan.fused());
    conformance::Bench bench(device, plan, operands);
    bench.run();
    CHECK(compare(bench.outcome().y, expected, plan.error_bound()).passed);
  }
}

TEST_CASE(
    "a second plan of an op takes the engine that won the race of the first, without a race, and computes the same") {
  if (is_missing("cudnn")) return;
  const Conv2d conv = small_conv();
  const Operands operands = make_operands(conv);
  const Device device = open("cudnn:0");
  const std::string first = device.plan(conv).explain();
  const Plan again = device.plan(conv);
  CHECK(contains(first, "the fastest of"));
  CHECK(contains(again.explain(), "measured for an earlier plan of the op"));
  const auto engine = [](const std::string& text) { return text.substr(0, text.find("; measured")); };
  CHECK(engine(first) == engine(again.explain()));
  conformance::Bench bench(device, again, operands);
  bench.run();
  CHECK(compare(bench.outcome().y, oracle(conv, operands.views()), again.error_bound()).passed);
  Conv2d other = conv;
  other.epilogue.activation = Activation::none;
  CHECK(contains(device.plan(other).explain(), "the fastest of"));
}

TEST_CASE("a window for which cuDNN compiles some engines for half a minute has a plan") {
  if (is_missing("cudnn")) return;
  const Conv2d conv{.input = {8, 108, 10, 10},
                    .weights = {996, 108, 3, 3},
                    .stride = {2, 2},
                    .padding = {1, 1},
                    .dtype = DType::f16,
                    .layout = Layout::nhwc,
                    .epilogue = {.bias = true, .activation = Activation::relu}};
  CHECK(contains(open("cudnn:0").plan(conv).explain(), "the fastest of"));
}

/// The least seconds of some runs, the host's share included.
double seconds_of(const Conv2d& conv, const Operands& operands, const std::string& uri) {
  const Device device = open(uri);
  const Plan plan = device.plan(conv);
  const conformance::Bench bench(device, plan, operands);
  bench.run();
  double least = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    bench.run();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

TEST_CASE("the measured engine runs when all others were tried after it, and is at most as slow as the heuristics'") {
  if (is_missing("cudnn")) return;
  const Conv2d conv{.input = {2000, 1, 48, 48},
                    .weights = {6, 1, 5, 5},
                    .layout = Layout::nhwc,
                    .math = Math::tf32,
                    .epilogue = {.activation = Activation::tanh, .max_pool = {2, 2}}};
  const Operands operands = make_operands(conv);
  CHECK(seconds_of(conv, operands, "cudnn:0") < 1.5 * seconds_of(conv, operands, "cudnn:0?algorithm=heuristic"));
}

TEST_CASE("run can be captured in a CUDA graph, and the graph computes the same") {
  if (is_missing("cudnn")) return;
  const Conv2d conv = small_conv();
  const Operands operands = make_operands(conv);
  const Device device = open("cudnn:0");
  const Plan plan = device.plan(conv);
  const Placed x(device, operands.tensors[0]), w(device, operands.tensors[1]), b(device, operands.tensors[2]);
  Placed y(device, conv.dtype, plan.output_shape(), conv.layout);
  const PackedWeights packed = plan.pack(w.view());
  const Stream stream = device.stream();
  const auto native = static_cast<cudaStream_t>(stream.native());
  y.poison();
  GABLE_CUDA_CHECK(cudaStreamBeginCapture(native, cudaStreamCaptureModeGlobal));
  plan.run(x.view(), packed, b.view(), y.view(), stream);
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t executable = nullptr;
  GABLE_CUDA_CHECK(cudaStreamEndCapture(native, &captured));
  GABLE_CUDA_CHECK(cudaGraphInstantiate(&executable, captured));
  GABLE_CUDA_CHECK(cudaGraphLaunch(executable, native));
  device.synchronize(stream);
  CHECK(compare(y.read(), oracle(conv, operands.views()), plan.error_bound()).passed);
  cuda::ignore(cudaGraphExecDestroy(executable));
  cuda::ignore(cudaGraphDestroy(captured));
}

}  // namespace
}  // namespace gable
