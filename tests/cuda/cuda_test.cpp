// The CUDA device itself: the reason it reports without a GPU, its URIs, faults, streams, copies and graphs.
// conformance_test checks the results of its kernels. Tests that need a GPU are skipped, with the reason, without one.
#include <doctest/doctest.h>
#include <gable/gable.h>
#include <gable/study.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "backends/cuda/cuda_error.h"
#include "cuda/common/check.h"
#include "tests/conformance/conformance_run.h"
#include "tests/tools/expect.h"

namespace gable {
namespace {

using conformance::make_operands;
using conformance::Operands;
using conformance::Placed;

Conv2d small_conv() {
  return {.input = {2, 18, 11, 13},
          .weights = {34, 18, 3, 3},
          .padding = {1, 1},
          .layout = Layout::nhwc,
          .epilogue = {.bias = true, .activation = Activation::relu, .max_pool = {2, 2}}};
}

TEST_CASE("cuda is always listed, and without a GPU says why in the driver's words") {
  const DeviceInfo info = first_device("cuda");
  REQUIRE(info.backend == "cuda");
  if (info.available) {
    CHECK(info.uri == "cuda:0");
    CHECK(contains(info.name, "sm_"));
    CHECK(std::find(info.kernels.begin(), info.kernels.end(), "naive") != info.kernels.end());
    CHECK(info.memory == Memory{Memory::Kind::cuda, 0});
  } else {
    CHECK(contains(info.reason, "cudaGetDeviceCount: "));
    CHECK(contains(message_of([] { open("cuda:0"); }, ErrorCode::unavailable), info.reason));
  }
}

TEST_CASE("what is wrong with a driver is named together with what cures it") {
  const std::string none = why_no_device(cudaErrorInsufficientDriver, 0, 13000);
  CHECK(contains(none, "cudaErrorInsufficientDriver"));
  CHECK(contains(none, "libcuda.so.1"));
  CHECK(contains(none, "580"));
  const std::string old = why_no_device(cudaErrorInsufficientDriver, 12020, 13000);
  CHECK(contains(old, "supports CUDA 12.2"));
  CHECK(contains(old, "needs 13.0: install driver 580"));
  CHECK(contains(why_no_device(cudaErrorNoDevice, 13000, 13000), "CUDA_VISIBLE_DEVICES"));
  CHECK(contains(why_no_device(cudaErrorMpsConnectionFailed, 13000, 13000), "CUDA_MPS_PIPE_DIRECTORY"));
}

TEST_CASE("CUDA's errors become gable's, with what to do next") {
  const auto error_of = [](cudaError_t code) { return to_error(cuda::CallFailed(code, "cudaCall(x)"), "cuda:0"); };
  CHECK(error_of(cudaErrorMemoryAllocation).code() == ErrorCode::out_of_memory);
  CHECK(error_of(cudaErrorInsufficientDriver).code() == ErrorCode::unavailable);
  CHECK(error_of(cudaErrorNoKernelImageForDevice).code() == ErrorCode::unavailable);
  CHECK(error_of(cudaErrorInvalidValue).code() == ErrorCode::device_failure);
  const Error sticky = error_of(cudaErrorIllegalAddress);
  CHECK(sticky.code() == ErrorCode::device_failure);
  CHECK(contains(sticky.what(), "cudaErrorIllegalAddress"));
  CHECK(contains(sticky.what(), "Start the process again"));
  for (const int lost : {226, 709, 721, 806, 810, 911, 999})
    CHECK(contains(error_of(static_cast<cudaError_t>(lost)).what(), "Start the process again"));
  CHECK_FALSE(contains(error_of(cudaErrorInvalidValue).what(), "Start the process again"));
  const Error taken = error_of(cudaErrorDevicesUnavailable);
  CHECK(taken.code() == ErrorCode::unavailable);
  CHECK(contains(taken.what(), "compute mode"));
  const Error no_mps = error_of(cudaErrorMpsConnectionFailed);
  CHECK(no_mps.code() == ErrorCode::unavailable);
  CHECK(contains(no_mps.what(), "CUDA_MPS_PIPE_DIRECTORY"));
  CHECK(contains(error_of(cudaErrorInitializationError).what(), "fork()"));
}

TEST_CASE("a URI that is wrong is refused by the part that is wrong") {
  CHECK(contains(message_of([] { open("cuda:first"); }, ErrorCode::invalid_argument), "'first'"));
  CHECK(contains(message_of([] { open("cuda:-1"); }, ErrorCode::invalid_argument), "'-1'"));
  CHECK(contains(message_of([] { open("cuda:0?threads=2"); }, ErrorCode::invalid_argument), "threads"));
  const std::string kernel = message_of([] { open("cuda:0?kernel=fastest"); }, ErrorCode::invalid_argument);
  CHECK(contains(kernel, "'fastest'"));
  CHECK(contains(kernel, "naive"));
}

TEST_CASE("an index beyond the GPUs there are is refused with their number") {
  if (is_missing("cuda")) return;
  const std::string message = message_of([] { open("cuda:99"); }, ErrorCode::unavailable);
  CHECK(contains(message, "no GPU 99"));
  CHECK(contains(message, "cuda:0"));
}

TEST_CASE("more memory than the GPU has is refused with the bytes, and the device goes on") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  const std::string message = message_of(
      [&] {
        device.tensor(DType::f32, {1 << 20, 1 << 19});
      },
      ErrorCode::out_of_memory);
  CHECK(contains(message, std::to_string(std::int64_t{1} << 41)));
  CHECK(contains(message, "free"));
  CHECK(device.tensor(DType::f32, {1024}).data() != nullptr);
}

TEST_CASE("a tensor that does not lie where it says is refused by name") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  const Add add{.shape = {64}};
  const Plan plan = device.plan(add);
  const Tensor a = device.tensor(DType::f32, {64});
  const Tensor host(DType::f32, {64});
  CHECK(contains(message_of([&] { plan.run(a, host.view(), a); }, ErrorCode::invalid_argument), "in host memory"));
  TensorView lie = host.view();
  lie.memory = device.info().memory;
  const std::string message = message_of([&] { plan.run(a, lie, a); }, ErrorCode::invalid_argument);
  CHECK(contains(message, "second input"));
  CHECK(contains(message, "no memory that CUDA knows"));
  TensorView other = a.view();
  other.memory = Memory{};
  CHECK(contains(message_of([&] { device.copy(other, host); }, ErrorCode::invalid_argument), "cuda:0 memory"));
  const Device cpu = open("cpu");
  CHECK(contains(message_of([&] { cpu.plan(add).run(a, a, a); }, ErrorCode::invalid_argument), "cuda:0"));
}

TEST_CASE("a misaligned pointer is refused before a kernel can fault on it") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  const Plan plan = device.plan(Add{.shape = {64}});
  const Tensor a = device.tensor(DType::f32, {64}), longer = device.tensor(DType::f32, {65});
  const TensorView shifted(static_cast<char*>(longer.data()) + 2, DType::f32, {64}, Layout::nchw, device.info().memory);
  const std::string message = message_of([&] { plan.run(shifted, a.view(), a.view()); }, ErrorCode::invalid_argument);
  CHECK(contains(message, "the input lies at an address that is 2 beyond a multiple of "));
}

/// Pinned host memory, as an application has it.
class Pinned {
 public:
  explicit Pinned(std::size_t bytes) { GABLE_CUDA_CHECK(cudaMallocHost(&memory_, bytes)); }
  ~Pinned() { cuda::ignore(cudaFreeHost(memory_)); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  float* get() const { return static_cast<float*>(memory_); }

 private:
  void* memory_ = nullptr;
};

TEST_CASE("copies bring back what was sent, pinned and pageable, on a stream and within the device") {
  if (is_missing("cuda")) return;
  constexpr std::int64_t kCount = (1 << 20) + 3;
  const Device device = open("cuda:0");
  const Stream stream = device.stream();
  REQUIRE(stream.native() != nullptr);
  const Tensor first = device.tensor(DType::f32, {kCount}), second = device.tensor(DType::f32, {kCount});
  const Tensor pageable(DType::f32, {kCount});
  const Pinned memory(pageable.bytes());
  const TensorView pinned(memory.get(), DType::f32, {kCount});
  for (const TensorView& host : {pageable.view(), pinned}) {
    auto* values = static_cast<float*>(host.data);
    for (std::int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1021);
    device.copy(host, first, stream);
    device.copy(first, second, stream);
    device.synchronize(stream);
    std::memset(host.data, 0xff, host.bytes());
    device.copy(second, host, stream);
    device.synchronize(stream);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < kCount; ++i) wrong += values[i] == static_cast<float>(i % 1021) ? 0 : 1;
    CHECK(wrong == 0);
  }
}

/// Greatest error against f64.
double error_of(const Device& device, Conv2d conv, Math math, const Operands& operands, const OracleResult& expected) {
  conv.math = math;
  const Plan plan = device.plan(conv);
  conformance::Bench bench(device, plan, operands);
  bench.run();
  const Comparison comparison = compare(bench.outcome().y, expected, plan.error_bound());
  CHECK(comparison.passed);
  return comparison.max_error;
}

bool has_wgmma(const Device& device) {
  const std::vector<std::string>& kernels = device.info().kernels;
  return std::find(kernels.begin(), kernels.end(), "wgmma") != kernels.end();
}

bool refuses_with(const std::string& words, const Device& device, const Conv2d& conv) {
  const std::vector<KernelSupport> answers = device.query(conv);
  return std::any_of(answers.begin(), answers.end(),
                     [&](const KernelSupport& answer) { return contains(answer.reason, words); });
}

TEST_CASE("split6 errs at most twice as much as strict f32, on values of both signs and of one") {
  if (is_missing("cuda")) return;
  const Device any = open("cuda:0");
  const Conv2d conv{.input = {1, 256, 9, 9}, .weights = {64, 256, 3, 3}, .layout = Layout::nhwc};
  if (!has_wgmma(any)) {
    MESSAGE("skipped: ", any.info().name, " has no kernel that multiplies parts");
    return;
  }
  const Device device = open("cuda:0?kernel=wgmma");
  const Operands operands = make_operands(conv);
  for (const bool positive : {false, true}) {
    CAPTURE(positive);
    for (const Tensor& tensor : operands.tensors) {
      auto* values = static_cast<float*>(tensor.data());
      for (std::int64_t i = 0; positive && i < tensor.shape().elements(); ++i) values[i] = std::abs(values[i]);
    }
    const OracleResult expected = oracle(conv, operands.views());
    const double strict = error_of(any, conv, Math::strict, operands, expected);
    const double split6 = error_of(device, conv, Math::split6, operands, expected);
    const double split3 = error_of(device, conv, Math::split3, operands, expected);
    CHECK(split6 <= 2 * strict);
    CHECK(split3 > split6);
  }
}

TEST_CASE("plans of split maths say how x is cut and what workspace that takes; what can't run them says why") {
  if (is_missing("cuda")) return;
  const Device any = open("cuda:0");
  Conv2d conv{.input = {2, 70, 9, 8}, .weights = {40, 70, 3, 3}, .layout = Layout::nhwc, .math = Math::split3};
  if (!has_wgmma(any)) {
    CHECK(refuses_with("exists on 9.0 alone", any, conv));
    return;
  }
  const Device device = open("cuda:0?kernel=wgmma");
  const std::size_t part_bytes = 2 * 9 * 8 * 128 * 2;
  CHECK(contains(device.plan(conv).explain(), "2 bf16 parts"));
  CHECK(device.plan(conv).workspace_bytes() >= 2 * part_bytes);
  conv.math = Math::split6;
  CHECK(contains(device.plan(conv).explain(), "3 bf16 parts"));
  CHECK(device.plan(conv).workspace_bytes() >= 3 * part_bytes);
  conv.weights = {40, 70, 6, 6};
  CHECK(refuses_with("6x6 filter taps in 6 products", device, conv));
}

TEST_CASE("split maths run on the f32 units where that is faster, as strict math does") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  for (const Math math : {Math::split3, Math::split6}) {
    Conv2d conv{.input = {8, 64, 9, 9}, .weights = {16, 64, 1, 1}, .layout = Layout::nhwc, .math = math};
    const Operands operands = make_operands(conv);
    const OracleResult expected = oracle(conv, operands.views());
    CHECK(device.plan(conv).kernel() == "register_tile");
    Conv2d strict = conv;
    strict.math = Math::strict;
    CHECK(device.plan(conv).error_bound().accumulation == device.plan(strict).error_bound().accumulation);
    CHECK(error_of(device, conv, math, operands, expected) == error_of(device, conv, Math::strict, operands, expected));
    conv.groups = 4;
    conv.weights = {16, 16, 3, 3};
    CHECK(device.plan(conv).kernel() != "wgmma");
    conv = {.input = {32, 512, 28, 28}, .weights = {512, 512, 3, 3}, .layout = Layout::nhwc, .math = math};
    if (has_wgmma(device)) CHECK(device.plan(conv).kernel() == "wgmma");
  }
}

class Graph {
 public:
  explicit Graph(cudaGraph_t graph) : graph_(graph) { GABLE_CUDA_CHECK(cudaGraphInstantiate(&executable_, graph_)); }
  ~Graph() {
    cuda::ignore(cudaGraphExecDestroy(executable_));
    cuda::ignore(cudaGraphDestroy(graph_));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { GABLE_CUDA_CHECK(cudaGraphLaunch(executable_, stream)); }

 private:
  cudaGraph_t graph_;
  cudaGraphExec_t executable_ = nullptr;
};

TEST_CASE("every kernel's run can be captured in a CUDA graph, and the graph computes the same") {
  if (is_missing("cuda")) return;
  const Conv2d conv = small_conv();
  const Operands operands = make_operands(conv);
  const OracleResult expected = oracle(conv, operands.views());
  for (const std::string& kernel : first_device("cuda").kernels) {
    const Device device = open("cuda:0?kernel=" + kernel);
    if (!device.query(conv).front().supported) continue;
    INFO(kernel);
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
    GABLE_CUDA_CHECK(cudaStreamEndCapture(native, &captured));
    const Graph graph(captured);
    graph.launch(native);
    device.synchronize(stream);
    CHECK(compare(y.read(), expected, plan.error_bound()).passed);
  }
}

TEST_CASE("an event that was not recorded is refused") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  Event start = device.event(), stop = device.event();
  CHECK(contains(message_of([&] { stop.seconds_since(start); }, ErrorCode::invalid_argument), "not recorded"));
}

/// Seconds of `runs` additions of 800 MB, by events and by the host's clock.
struct BothClocks {
  double events, host;
};

BothClocks time_additions(const Device& device, int runs) {
  constexpr std::int64_t kCount = std::int64_t{1} << 26;
  const Stream stream = device.stream();
  const Plan plan = device.plan(Add{.shape = {kCount}});
  const Tensor a = device.tensor(DType::f32, {kCount}), c = device.tensor(DType::f32, {kCount});
  Event start = device.event(), stop = device.event();
  plan.run(a, a.view(), c, stream);
  device.synchronize(stream);
  const auto begin = std::chrono::steady_clock::now();
  start.record(stream);
  for (int i = 0; i < runs; ++i) plan.run(a, a.view(), c, stream);
  stop.record(stream);
  const double events = stop.seconds_since(start);
  return {events, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

TEST_CASE("events measure the GPU's work between them: less than the host waits for it, and most of that") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  constexpr int kRuns = 200, kAttempts = 10;  // tens of milliseconds each; the host may be interrupted in some
  double most = 0;
  for (int i = 0; i < kAttempts && most < 0.7; ++i) {
    const BothClocks time = time_additions(device, kRuns);
    CAPTURE(time.events);
    CAPTURE(time.host);
    CHECK(time.events <= time.host);
    most = std::max(most, time.events / time.host);
  }
  CHECK(most >= 0.7);
}

TEST_CASE("measured ceilings have names of their own, samples and formulas") {
  if (is_missing("cuda")) return;
  const std::vector<Ceiling> all = device_ceilings(open("cuda:0"), {.quick = true});
  std::set<std::string> names;
  for (const Ceiling& c : all) {
    CAPTURE(c.name);
    REQUIRE_FALSE(c.samples.empty());
    CHECK(*std::min_element(c.samples.begin(), c.samples.end()) > 0);
    CHECK_FALSE(c.formula.empty());
    CHECK(names.insert(c.name).second);
  }
  // bench/gpu_ceilings_check.py compares their values.
  for (const char* name : {"dram read", "l2 read", "shared memory read", "launch, back to back", "launch and wait"})
    CHECK(names.contains(name));
}

TEST_CASE("loops move exactly their bytes, whatever is too little is refused") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  using enum MemoryLoop::Movement;
  for (const auto movement :
       {read, copy, triad, to_shared, pinned_to_device, device_to_pinned, pageable_to_device, device_to_pageable}) {
    for (const std::int64_t bytes : {1 << 14, 1 << 20, (3 << 24) + 12345}) {
      CAPTURE(static_cast<int>(movement));
      const Loop loop = device_loop(device, MemoryLoop{.movement = movement, .bytes = bytes});
      CHECK(loop.details().bytes <= static_cast<double>(bytes));
      CHECK(loop.details().bytes > 0.7 * static_cast<double>(bytes));
      loop.run(3);
      CHECK(loop.result().empty());
    }
  }
  CHECK(contains(message_of([&] { device_loop(device, MemoryLoop{.bytes = 100}); }, ErrorCode::unsupported), "2048"));
  CHECK(contains(message_of([&] { device_loop(device, MemoryLoop{.bytes = 0}); }), "0 bytes"));
  const std::vector<std::int64_t> offsets{0, 1, 2};
  const std::vector<std::int32_t> sources{1, 0}, degrees{1, 1};
  const Loop pagerank = device_loop(device, PagerankLoop{offsets, sources, degrees});
  pagerank.run(5);
  CHECK(pagerank.result() == std::vector<float>{0.5F, 0.5F});
  CHECK(contains(message_of([&] {
                   device_loop(device, PagerankLoop{offsets, sources, sources});
                   pagerank.run(0);
                 }),
                 "0 passes"));
  CHECK(contains(message_of([&] { device_loop(device, PagerankLoop{offsets, degrees, {}}); }), "0 vertices"));
}

TEST_CASE("run() puts its kernel on the stream and nothing else") {
  if (is_missing("cuda")) return;
  const Device device = open("cuda:0");
  const Plan plan = device.plan(Add{.shape = {1024}});
  const Tensor a = device.tensor(DType::f32, {1024}), c = device.tensor(DType::f32, {1024});
  const Stream stream = device.stream();
  const auto native = static_cast<cudaStream_t>(stream.native());
  GABLE_CUDA_CHECK(cudaStreamBeginCapture(native, cudaStreamCaptureModeGlobal));
  plan.run(a.view(), a.view(), c.view(), stream);
  cudaGraph_t graph = nullptr;
  GABLE_CUDA_CHECK(cudaStreamEndCapture(native, &graph));
  std::size_t nodes = 0;
  GABLE_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == 1);
  cuda::ignore(cudaGraphDestroy(graph));
}

}  // namespace
}  // namespace gable
