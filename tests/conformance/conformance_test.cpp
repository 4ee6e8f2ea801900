// One suite for every device there is: each op in each dtype, layout and attribute against the f64 oracle, within the
// bound that the plan itself states; what a device may refuse, and for which reasons, is in requirements.cpp.
// GABLE_TEST_FAST=1 takes a fraction of the cases, GABLE_TEST_BACKEND=cuda one backend's devices.
#include "tests/conformance/conformance_cases.h"
#include "tests/conformance/conformance_run.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/requirements.h"
#include "tests/tools/expect.h"
#include "tests/tools/fast.h"

#include <doctest/doctest.h>
#include <gable/gable.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace gable::conformance {
namespace {

using Clock = std::chrono::steady_clock;

struct Tally {
  int run = 0;
  int refused = 0;
  double worst_ratio = 0;
  std::chrono::duration<double> planning{};
};

/// What ran where: device, then kernel. Refusals of whole ops stand under the kernels that refused them.
using Coverage = std::map<std::string, std::map<std::string, Tally>>;

bool is_one_kernel(const Device& device) { return contains(device.info().uri, "kernel="); }

void check_refused(const Device& device, const Op& op, const std::vector<KernelSupport>& answers, Coverage& coverage) {
  REQUIRE_FALSE(answers.empty());
  INFO(answers.front().kernel, ": ", answers.front().reason);
  // A kernel that was named may refuse ops; how many it must run is checked after all cases.
  if (!is_one_kernel(device)) CHECK_MESSAGE(is_excused(device.info(), op, answers), "it must run this op");
  std::string message;
  try {
    device.plan(op);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unsupported);
    message = error.what();
  }
  for (const KernelSupport& answer : answers) {
    INFO(answer.kernel);
    CHECK_FALSE(answer.reason.empty());
    // The line of a device names the attribute at fault, instead of its kernels' reasons.
    const std::size_t slash = answer.kernel.rfind('/');
    const std::string uri = slash == std::string::npos ? device.info().uri : answer.kernel.substr(0, slash);
    const bool names_attribute = contains(message, "\n  " + uri + ": ");
    CHECK((names_attribute || contains(message, answer.reason)));
    ++coverage[device.info().uri][answer.kernel].refused;
  }
}

/// An op with its operands and expected results: made once for all devices, since the oracle is slow.
struct Case {
  explicit Case(const Op& an_op) : op(an_op), operands(make_operands(op)), expected(oracle(op, operands.views())) {}
  Op op;
  Operands operands;
  OracleResult expected;
};

void check_case(const Device& device, const Case& a_case, Coverage& coverage) {
  INFO(device.info().uri, ": ", describe(a_case.op));
  const Clock::time_point start = Clock::now();
  const std::vector<KernelSupport> answers = device.query(a_case.op);
  for (const KernelSupport& answer : answers) CHECK(answer.supported == answer.reason.empty());
  if (std::none_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.supported; })) {
    check_refused(device, a_case.op, answers, coverage);
    return;
  }
  const Plan plan = device.plan(a_case.op);
  const Clock::time_point planned = Clock::now();
  INFO(plan.explain());
  Bench bench(device, plan, a_case.operands);
  bench.run();
  const Outcome outcome = bench.outcome();
  const Comparison comparison = compare(outcome.y, a_case.expected, plan.error_bound());
  INFO("first mismatch at ", comparison.first_mismatch, ", error at most ", comparison.max_error, ", ",
       comparison.worst_ratio, " of the bound");
  CHECK(comparison.mismatches == 0);
  CHECK(outcome.guards_hold);
  CHECK_FALSE(plan.explain().empty());
  Tally& tally = coverage[device.info().uri][plan.kernel()];
  ++tally.run;
  tally.planning += planned - start;
  tally.worst_ratio = std::max(tally.worst_ratio, comparison.worst_ratio);
}

int runs_of(const Coverage& coverage, const std::string& uri) {
  int runs = 0;
  if (const auto device = coverage.find(uri); device != coverage.end()) {
    for (const auto& [kernel, tally] : device->second) runs += tally.run;
  }
  return runs;
}

/// Cases that a device's plans ran with this kernel; what follows a blank in a plan's kernel is the target it was
/// compiled for.
int runs_of_kernel(const Coverage& coverage, const std::string& uri, const std::string& kernel) {
  int runs = 0;
  for (const auto& [name, tally] : coverage.at(uri)) {
    if (name == kernel || name.starts_with(kernel + " ")) runs += tally.run;
  }
  return runs;
}

std::string summary(const Coverage& coverage) {
  std::string text = "device, kernel: cases run, refused, greatest error as a share of the bound";
  for (const auto& [uri, kernels] : coverage) {
    for (const auto& [kernel, tally] : kernels) {
      text += "\n  " + uri + ", " + kernel + ": " + std::to_string(tally.run) + ", " + std::to_string(tally.refused) +
              ", " + std::to_string(tally.worst_ratio);
    }
  }
  return text;
}

/// A device that compiles for each plan (cuDNN: up to a second) would take ten minutes for all of them.
constexpr std::chrono::seconds kMaxPlanning{60};

std::chrono::duration<double> planning_of(const Device& device, const Coverage& coverage) {
  std::chrono::duration<double> sum{};
  if (const auto found = coverage.find(device.info().uri); found != coverage.end()) {
    for (const auto& [kernel, tally] : found->second) sum += tally.planning;
  }
  return sum;
}

/// All cases, or as many as a device plans within kMaxPlanning, every sixteenth first: how many. Says what was left
/// out.
std::size_t check_cases(const Device& device, const std::vector<Case>& every, Coverage& coverage) {
  const std::size_t step = 16;
  std::size_t done = 0;
  for (std::size_t first = 0; first < step; ++first) {
    for (std::size_t i = first; i < every.size(); i += step) {
      if (planning_of(device, coverage) > kMaxPlanning) {
        MESSAGE(device.info().uri, ": ", every.size() - done, " of ", every.size(),
                " cases were left out: planning the others took ", kMaxPlanning.count(), " s");
        return done;
      }
      check_case(device, every[i], coverage);
      ++done;
    }
  }
  return done;
}

/// For a kernel that takes none of the fast cases: the first case of the full suite that it takes.
void check_any_case(const Device& device, Coverage& coverage) {
  for (const Op& op : cases(false)) {
    if (runs_of(coverage, device.info().uri) > 0) return;
    check_case(device, Case(op), coverage);
  }
}

/// Whether this machine lacks what the kernel is made of, as its refusal of a plain convolution says.
bool lacks_hardware(const Device& named) {
  const std::vector<KernelSupport> answers = named.query(
      Conv2d{.input = {1, 16, 12, 12}, .weights = {16, 16, 3, 3}, .padding = {1, 1}, .layout = Layout::nhwc});
  return contains(answers.front().reason, "needs AVX-512");
}

/// Each kernel must run its least number of cases: chosen by the device, or else opened by its name. The fast run has a
/// seventh of the cases and may have none of a kernel's, so there it is one case.
void check_kernel(const Device& device, const std::string& kernel, const std::vector<Case>& every, Coverage& coverage) {
  const int full = least_cases(device.info().backend, kernel);
  INFO(device.info().uri, ", kernel ", kernel);
  CHECK_MESSAGE(full > 0, "requirements.cpp does not say how many cases this kernel must run");
  const int least = is_fast() ? 1 : full;
  if (runs_of_kernel(coverage, device.info().uri, kernel) >= least) return;
  const Device named = open(device.info().uri + "?kernel=" + kernel);
  if (lacks_hardware(named)) return;
  const std::size_t done = check_cases(named, every, coverage);
  if (is_fast()) check_any_case(named, coverage);
  CHECK(runs_of(coverage, named.info().uri) >= (done < every.size() ? 1 : least));
}

TEST_CASE("every kernel of every device computes every op within its error bound, or says why not") {
  const std::vector<Device> all = available_devices();
  REQUIRE_FALSE(all.empty());
  std::vector<Case> every;
  for (const Op& op : cases(is_fast())) every.emplace_back(op);
  Coverage coverage;
  for (const Device& device : all) {
    check_cases(device, every, coverage);
    INFO(device.info().uri);
    CHECK_MESSAGE(runs_of(coverage, device.info().uri) > 0, "the device refused every op");
    if (!names_kernels(device)) continue;
    for (const std::string& kernel : device.info().kernels) check_kernel(device, kernel, every, coverage);
  }
  MESSAGE(summary(coverage));
}

KernelSupport refusal_by(const std::string& kernel, const std::string& reason) {
  return {.kernel = kernel, .supported = false, .reason = reason};
}

TEST_CASE("a depthwise layer of more taps than the tables of the depthwise kernels hold is left to direct") {
  const Conv2d conv{.input = {1, 2, 1025, 1026}, .weights = {2, 1, 1025, 1025}, .groups = 2, .layout = Layout::nhwc};
  const Device device = open("cpu?threads=2");
  Coverage coverage;
  check_case(device, Case(conv), coverage);
  CHECK(runs_of_kernel(coverage, device.info().uri, "direct") == 1);
}

TEST_CASE("a short op runs on one thread, and on all threads of a kernel that is asked for by its name") {
  const Conv2d conv{
      .input = {1, 32, 12, 12}, .weights = {32, 1, 3, 3}, .padding = {1, 1}, .groups = 32, .layout = Layout::nhwc};
  const auto threads_of = [&](const char* uri) {
    const Device device = open(uri);
    Coverage coverage;
    check_case(device, Case(conv), coverage);
    const Plan plan = device.plan(conv);
    CHECK(plan.explain().find(std::to_string(plan.threads()) + " thread") != std::string::npos);
    return plan.threads();
  };
  CHECK(threads_of("cpu?threads=2") == 1);
  CHECK(threads_of("cpu?kernel=depthwise&threads=2") == 2);
}

TEST_CASE("windows that tile a row are folded into channels, for each kernel that may compute them") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int threads : {1, 2}) {
      const Device device = open("cpu?kernel=folded&threads=" + std::to_string(threads));
      Coverage coverage;
      for (const std::int64_t rows : {1, 2, 16}) {
        for (const std::int64_t outputs : {5, 40}) {
          const Conv2d conv{.input = {2, 3, 3 * rows + 1, 80},
                            .weights = {outputs, 3, rows, 16},
                            .stride = {rows, 16},
                            .dtype = dtype,
                            .layout = Layout::nhwc,
                            .epilogue = {.bias = rows > 1, .activation = Activation::relu}};
          check_case(device, Case(conv), coverage);
        }
      }
      CHECK(runs_of_kernel(coverage, device.info().uri, "folded") == 6);
    }
  }
}

TEST_CASE("windows larger than the image are cropped to the taps that read it, for each dtype and layout") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
      const Device device = open("cpu?kernel=cropped&threads=2");
      Coverage coverage;
      for (const std::int64_t groups : {1, 3, 24}) {
        const Conv2d conv{.input = {2, 24, 3, 4},
                          .weights = {48, 24 / groups, 9, 5},
                          .stride = {1, 2},
                          .padding = {4, 9, 7, 5},
                          .dilation = {1, 2},
                          .groups = groups,
                          .dtype = dtype,
                          .layout = layout,
                          .epilogue = {.bias = groups > 1, .activation = Activation::relu}};
        check_case(device, Case(conv), coverage);
      }
      CHECK(runs_of_kernel(coverage, device.info().uri, "cropped") == 3);
    }
  }
}

TEST_CASE("plans that crop one window to different taps do not share packed weights") {
  const Device device = open("cpu?kernel=cropped&threads=1");
  const auto key = [&](const Padding& padding) {
    return device.plan(Conv2d{.input = {1, 16, 1, 8}, .weights = {16, 16, 3, 3}, .padding = padding}).packing();
  };
  CHECK(key({0, 1, 2, 1}) != key({2, 1, 0, 1}));
}

TEST_CASE("images of nchw that the caches do not keep together are reordered one at a time") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int threads : {1, 2}) {
      const Conv2d conv{
          .input = {5, 96, 131, 131}, .weights = {8, 96, 1, 1}, .dtype = dtype, .epilogue = {.bias = true}};
      const Device device = open("cpu?kernel=reordered&threads=" + std::to_string(threads));
      CHECK(device.plan(conv).explain().find("1 image at a time") != std::string::npos);
      Coverage coverage;
      check_case(device, Case(conv), coverage);
      CHECK(runs_of_kernel(coverage, device.info().uri, "reordered") == 1);
    }
  }
}

TEST_CASE("groups of nchw that caches do not keep together are reordered some at a time, the last ones fewer") {
  struct Groups {
    std::int64_t count, in, out;
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    // Whole passes, a last pass of one group, of some, several outputs a channel, and several channels.
    for (const Groups& g : {Groups{64, 1, 1}, {65, 1, 1}, {37, 1, 1}, {39, 1, 2}, {35, 3, 2}, {21, 8, 8}}) {
      const Conv2d conv{.input = {2, g.count * g.in, 75, 77},
                        .weights = {g.count * g.out, g.in, 3, 3},
                        .stride = {2, 2},
                        .padding = {1, 1},
                        .groups = g.count,
                        .dtype = dtype,
                        .epilogue = {.bias = g.count != 37, .activation = Activation::relu}};
      const Device device = open("cpu?kernel=reordered&threads=1");
      Coverage coverage;
      check_case(device, Case(conv), coverage);
      CHECK(runs_of_kernel(coverage, device.info().uri, "reordered") == 1);
    }
  }
}

TEST_CASE("a refusal that no requirement excuses fails, whatever its reason") {
  const Conv2d f32{.input = {1, 16, 9, 9}, .weights = {16, 16, 3, 3}};
  Conv2d f16 = f32, bf16 = f32, split = f32;
  f16.dtype = DType::f16;
  bf16.dtype = DType::bf16;
  split.math = Math::split3;
  const std::vector<KernelSupport> refused{refusal_by("direct", "f16 and bf16: it does not feel like it")};
  for (const char* backend : {"cpu", "cuda", "onednn", "reference", "a new one"}) {
    for (const Conv2d& op : {f32, f16, bf16}) {
      INFO(backend, ": ", describe(op));
      CHECK_FALSE(is_excused({.backend = backend}, op, refused));
    }
  }
  CHECK_FALSE(is_excused({.backend = "cudnn"}, f32, {refusal_by("convolution", "cuDNN 9.1.0: no engine")}));

  const std::string unimplemented = " conv2d in oneDNN 2.6.3 (avx512_core): oneDNN's status is 'unimplemented'";
  CHECK(is_excused({.backend = "onednn"}, f16, {refusal_by("direct", "f16" + unimplemented)}));
  CHECK_FALSE(is_excused({.backend = "onednn"}, bf16, {refusal_by("direct", "bf16" + unimplemented)}));
  CHECK(is_excused({.backend = "cpu"}, split, {refusal_by("direct", "math split3: its arithmetic is strict")}));
  CHECK_FALSE(is_excused({.backend = "cpu", .kernels = {"amx", "direct"}}, split,
                         {refusal_by("direct", "math split3: its arithmetic is strict")}));
  CHECK_FALSE(is_excused({.backend = "cuda", .kernels = {"wgmma", "naive"}}, split,
                         {refusal_by("naive", "its arithmetic is strict")}));
}

}  // namespace
}  // namespace gable::conformance
