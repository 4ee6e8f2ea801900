// The onednn device itself: its options and the explanations of its plans. conformance_test checks results.
#include <doctest/doctest.h>
#include <gable/gable.h>

#include <omp.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "tests/tools/expect.h"

namespace gable {
namespace {

/// Why there is no such device here; empty if there is.
std::string missing() {
  for (const DeviceInfo& info : devices()) {
    if (info.backend == "onednn") return info.available ? "" : info.reason;
  }
  return "the plugin was not built";
}

Conv2d conv(Layout layout) {
  return {.input = {1, 16, 12, 12},
          .weights = {32, 16, 3, 3},
          .padding = {1, 1},
          .layout = layout,
          .epilogue = {.bias = true, .activation = Activation::relu, .max_pool = {2, 2}}};
}

/// Runs first: the limit has to come before oneDNN's first use in the process.
TEST_CASE("the instruction set can be limited once, and a later change is refused with the reason") {
  if (const std::string reason = missing(); !reason.empty()) {
    MESSAGE("skipped, no onednn: ", reason);
    return;
  }
  const std::string wide = message_of([] { open("onednn?isa=avx512_amx_of_the_future"); }, ErrorCode::invalid_argument);
  CHECK(contains(wide, "avx512_amx_of_the_future"));
  CHECK(contains(wide, "avx2, "));
  CHECK(contains(open("onednn?isa=sse41").info().name, "sse41"));
  CHECK(contains(open("onednn?isa=sse41&threads=1").info().name, "sse41"));
  CHECK(contains(open("onednn").info().name, "sse41"));
  CHECK(contains(message_of([] { open("onednn?isa=avx2"); }, ErrorCode::unavailable), "at most sse41"));
  const Plan plan = open("onednn").plan(conv(Layout::nhwc));
  CHECK(contains(plan.explain(), "sse41"));
}

TEST_CASE("options are checked and named") {
  if (!missing().empty()) return;
  const auto refusal = [](const char* uri) { return message_of([&] { open(uri); }, ErrorCode::invalid_argument); };
  CHECK(contains(refusal("onednn:0"), "'0'"));
  CHECK(contains(refusal("onednn?thread=2"), "'thread'"));
  CHECK(contains(refusal("onednn?threads=0"), "'0'"));
  CHECK(contains(refusal("onednn?kernel=fft"), "'fft'"));
  CHECK(contains(refusal("onednn?kernel=fft"), "direct"));
}

TEST_CASE("a kernel asked for by name refuses the ops of others") {
  if (!missing().empty()) return;
  const std::vector<KernelSupport> answers = open("onednn?kernel=matmul").query(Add{.shape = {4}});
  REQUIRE(answers.size() == 1);
  CHECK_FALSE(answers[0].supported);
  CHECK(contains(answers[0].reason, "does not compute add"));
}

TEST_CASE("?threads= holds inside run() alone, and explain() says it") {
  if (!missing().empty()) return;
  const Conv2d op = conv(Layout::nhwc);
  const Plan plan = open("onednn?threads=1").plan(op);
  CHECK(contains(plan.explain(), "1 thread"));
  const Tensor x(op.dtype, op.input, op.layout);
  const Tensor w(op.dtype, op.weights);
  const Tensor bias(DType::f32, {op.weights[0]});
  const Tensor y(op.dtype, plan.output_shape(), op.layout);
  for (const Tensor* tensor : {&x, &w, &bias}) {
    std::fill_n(tensor->as<float>(), tensor->shape().elements(), 0.5f);
  }
  omp_set_num_threads(3);
  plan.run(x, plan.pack(w), bias, y);
  CHECK(omp_get_max_threads() == 3);
  CHECK(y.as<float>()[0] == 16 * 9 * 0.25f + 0.5f);  // the pool's window reaches a tap grid without padding
}

TEST_CASE("explain() names implementation, formats and what is not fused") {
  if (!missing().empty()) return;
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const Plan plan = open("onednn").plan(conv(layout));
    CHECK_FALSE(plan.fused());
    CHECK(plan.workspace_bytes() >= 32 * 12 * 12 * sizeof(float));
    for (const std::string word : {"implementation ", "weights ", "bias and relu fused", "max-pool not fused"}) {
      CAPTURE(word);
      CHECK_MESSAGE(contains(plan.explain(), word), plan.explain());
    }
    CHECK(contains(plan.explain(), std::string(to_string(layout)) + " given"));
  }
  Conv2d without_pool = conv(Layout::nhwc);
  without_pool.epilogue.max_pool = {};
  CHECK(open("onednn").plan(without_pool).fused());
}

TEST_CASE("layers that oneDNN's brgemm gets wrong, or crashes on, are left to its other kernels") {
  if (!missing().empty()) return;
  const Device device = open("onednn?threads=1");
  const auto avoids = [&](Conv2d conv) {
    conv.layout = Layout::nhwc;
    return contains(device.plan(conv).explain(), "no brgemm");
  };
  const Conv2d plain{.input = {1, 16, 9, 9}, .weights = {16, 16, 3, 3}};
  CHECK_FALSE(avoids(plain));
  Conv2d column_of_padding = plain, one_column = plain, jumps = plain;
  column_of_padding.padding = {0, 3, 0, 0};
  CHECK(avoids(column_of_padding));
  one_column.input[3] = 3;
  CHECK_FALSE(avoids(one_column));
  one_column.stride.w = 2;
  CHECK(avoids(one_column));
  jumps.stride = {3, 3};
  CHECK_FALSE(avoids(jumps));
  jumps.stride.h = 4;
  CHECK(avoids(jumps));
  jumps.weights = {16, 16, 1, 1};
  CHECK_FALSE(avoids(jumps));
}

TEST_CASE("windows of 9x9 on 63 channels in bf16, which end the process in oneDNN 2.6.3, are computed") {
  if (!missing().empty()) return;
  Conv2d conv{.input = {1, 63, 6, 6}, .weights = {64, 63, 9, 9}, .padding = {4, 4}, .dtype = DType::bf16};
  conv.layout = Layout::nhwc;
  const Device device = open("onednn?threads=1");
  std::optional<Plan> plan;
  try {
    plan.emplace(device.plan(conv));
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unsupported);  // a CPU without bf16
    return;
  }
  const Tensor x(DType::bf16, conv.input, Layout::nhwc), w(DType::bf16, conv.weights);
  const Tensor y(DType::bf16, plan->output_shape(), Layout::nhwc);
  for (const Tensor* const ones : {&x, &w})
    std::fill_n(ones->as<std::uint16_t>(), ones->shape().elements(), bf16_from_float(1));
  plan->run(x, plan->pack(w), y);
  CHECK(y.as<std::uint16_t>()[0] == bf16_from_float(63 * 5 * 5));  // a corner, then a window around the image
  CHECK(y.as<std::uint16_t>()[(2 * 6 + 3) * 64 + 63] == bf16_from_float(63 * 6 * 6));
}

TEST_CASE("what is left to a gemm is predicted to be slow") {
  if (!missing().empty()) return;
  const auto predicted = [](const Conv2d& conv) { return choose(open("onednn"), conv).first()->predicted.value(); };
  Conv2d alone{.input = {1, 200, 5, 5}, .weights = {10, 200, 5, 5}, .stride = {4, 4}, .layout = Layout::nhwc};
  const double jit = predicted(alone);
  alone.input = {1, 200, 3, 3};
  alone.padding = {2, 2};  // wider than the one column of outputs
  CHECK(predicted(alone) > 2 * jit);

  Conv2d groups{.input = {1, 32, 8, 8}, .weights = {32, 8, 1, 3}, .stride = {1, 4}, .groups = 4};
  const double fours = predicted(groups);
  groups.input[1] = 24, groups.weights = {24, 6, 1, 3};
  CHECK(predicted(groups) > 2 * fours);
  groups.layout = Layout::nhwc;
  CHECK(predicted(groups) < 2 * fours);
}

TEST_CASE("a result of 8 MB that is reordered is predicted to take longer than a smaller one") {
  if (!missing().empty()) return;
  const auto predicted = [](std::int64_t side, Layout layout) {
    const Conv2d conv{.input = {1, 8, side, side}, .weights = {16, 8, 1, 1}, .layout = layout};
    return choose(open("onednn"), conv).first()->predicted.value();
  };
  CHECK(predicted(354, Layout::nchw) > 1.4 * predicted(353, Layout::nchw));
  CHECK(predicted(354, Layout::nhwc) < 1.1 * predicted(353, Layout::nhwc));
}

TEST_CASE("auto's quick answer, which asks oneDNN once for a kind of op, is the answer of oneDNN") {
  const Device device = open("onednn?threads=1"), automatic = open("auto?only=onednn&threads=1");
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t channels : {16, 24, 32}) {
      for (const bool depthwise : {false, true}) {
        Conv2d conv{.input = {1, channels, 9, 9}, .weights = {channels, depthwise ? 1 : channels, 3, 3}};
        conv.padding = {1, 1, 1, 1};
        conv.groups = depthwise ? channels : 1;
        conv.dtype = dtype;
        conv.layout = Layout::nhwc;
        CAPTURE(describe(conv));
        const Ranking asked = choose(device, conv), quick = choose(automatic, conv);
        REQUIRE((asked.first() == nullptr) == (quick.first() == nullptr));
        if (asked.first() == nullptr) continue;
        CHECK(asked.first()->kernel == quick.first()->kernel);
        CHECK(automatic.plan(conv).kernel() == asked.first()->kernel);
      }
    }
  }
}

TEST_CASE("an open device names the plugin it came from") {
  CHECK(open("onednn").info().library.ends_with("/libgable_onednn.so"));
}

}  // namespace
}  // namespace gable
