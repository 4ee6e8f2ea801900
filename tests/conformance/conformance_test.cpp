// One suite for every device there is: each op in each dtype, layout and attribute against the f64 oracle, within the
// bound that the plan itself states; what a device may refuse, and for which reasons, is in requirements.cpp; run()
// allocates nothing.
// GABLE_TEST_FAST=1 takes a fraction of the cases, GABLE_TEST_BACKEND=cuda one backend's devices.
#include "tests/conformance/conformance_cases.h"
#include "tests/conformance/conformance_run.h"
#include "tests/conformance/requirements.h"
#include "tests/tools/allocation_counter.h"
#include "tests/tools/expect.h"
#include "tests/tools/fast.h"
#include "tests/tools/out_of_memory.h"

#include <doctest/doctest.h>
#include <gable/gable.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gable::conformance {
namespace {

using Clock = std::chrono::steady_clock;

/// What `auto` measured before must not decide here, and nothing is written into the user's cache.
[[maybe_unused]] const int kNoCache = setenv("GABLE_CACHE", "off", 1);

std::vector<Device> available_devices() {
  const char* only = std::getenv("GABLE_TEST_BACKEND");
  std::vector<Device> found;
  for (const DeviceInfo& info : devices()) {
    if (only != nullptr && info.backend != only) continue;
    if (info.available) found.push_back(open(info.uri));
    if (!info.available) MESSAGE("not run, not available: ", info.uri, ": ", info.reason);
  }
  return found;
}

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
    CHECK(contains(message, answer.reason));
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

/// The reference has one kernel and no option that names it.
bool names_kernels(const Device& device) { return device.info().kernels.size() > 1; }

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

Conv2d small_conv() {
  return {.input = {2, 18, 11, 13},
          .weights = {34, 18, 3, 3},
          .padding = {1, 1},
          .layout = Layout::nhwc,
          .epilogue = {.bias = true, .activation = Activation::relu, .max_pool = {2, 2}}};
}

std::vector<Op> one_of_each() {
  return {small_conv(),
          Matmul{.m = 17, .n = 33, .k = 19, .bias = true},
          MaxPool{.input = {1, 8, 9, 9}},
          Add{.shape = {3, 77}},
          Transpose{.rows = 13, .columns = 40},
          Reorder{.shape = {1, 9, 5, 7}}};
}

/// The ops of the list that the device runs; it may refuse the others with a reason.
std::vector<Op> one_of_each(const Device& device) {
  std::vector<Op> all = one_of_each();
  std::erase_if(all, [&](const Op& op) {
    const std::vector<KernelSupport> answers = device.query(op);
    return std::none_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.supported; });
  });
  return all;
}

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

constexpr int kCountedRuns = 20;

/// Heap allocations of kCountedRuns runs of the op's plan; -1 if the device refuses the op.
long allocations_of_runs(const Device& device, const Op& op) {
  const std::vector<KernelSupport> answers = device.query(op);
  if (std::none_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.supported; })) return -1;
  const Plan plan = device.plan(op);
  const Bench bench(device, plan, make_operands(op));
  for (int i = 0; i < 3; ++i) bench.run();  // OpenMP makes its threads
  const long start = allocations();
  for (int i = 0; i < kCountedRuns; ++i) bench.run();
  return allocations() - start;
}

/// The small convolution in each layout and 16-bit type, so that units for 16-bit products run as well.
std::vector<Op> in_every_type(const Op& op) {
  const auto* conv = std::get_if<Conv2d>(&op);
  if (conv == nullptr) return {op};
  std::vector<Op> all;
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      Conv2d typed = *conv;
      typed.dtype = dtype;
      typed.layout = layout;
      all.emplace_back(typed);
    }
  }
  return all;
}

/// The device, the device with one thread, and with each of its kernels named.
std::vector<std::string> ways_to_open(const Device& device) {
  const std::string& uri = device.info().uri;
  std::vector<std::string> uris{uri};
  if (device.info().memory.kind == Memory::Kind::host) uris.push_back(uri + "?threads=1");
  if (names_kernels(device)) {
    for (const std::string& kernel : device.info().kernels) uris.push_back(uri + "?kernel=" + kernel);
  }
  return uris;
}

/// Vendor libraries may allocate, and the test reports it; gable's own kernels must not.
TEST_CASE("run() allocates nothing") {
  if (!can_count_allocations()) {
    MESSAGE("skipped: the sanitizer's allocator can't be counted");
    return;
  }
  const long before = allocations();
  CHECK(std::make_unique<int>(1) != nullptr);
  REQUIRE(allocations() > before);  // the counter counts
  const std::vector<Device> devices = available_devices();
  // The CUDA driver allocates now and then, on threads of its own too, whatever device is used meanwhile; a run that
  // allocates would do so each time.
  const bool has_driver = std::any_of(devices.begin(), devices.end(), [](const Device& device) {
    return device.info().memory.kind != Memory::Kind::host;
  });
  const long most = has_driver ? kCountedRuns - 1 : 0;
  for (const Device& device : devices) {
    const bool is_gables_own = device.info().backend != "onednn" && device.info().backend != "cudnn";
    for (const std::string& uri : ways_to_open(device)) {
      const Device one = open(uri);
      for (const Op& op : one_of_each()) {
        for (const Op& typed : in_every_type(op)) {
          const long made = allocations_of_runs(one, typed);
          INFO(uri, ": ", describe(typed));
          if (is_gables_own) CHECK(made <= most);
          if (!is_gables_own && made > 0) MESSAGE(uri, " allocates inside its own library: ", describe(typed));
        }
      }
    }
  }
}

/// Small convolutions, of which each kernel of the CPU takes at least one.
std::vector<Conv2d> one_for_each_family() {
  Conv2d dense{.input = {1, 24, 9, 9}, .weights = {40, 24, 3, 3}, .padding = {1, 1, 1, 1}, .layout = Layout::nhwc};
  Conv2d half = dense, pointwise = dense, few_outputs = dense, planes = dense, groups = dense;
  half.dtype = DType::bf16;
  pointwise.weights = {40, 24, 1, 1};
  few_outputs.weights = {5, 24, 1, 1};
  pointwise.padding = few_outputs.padding = {};
  planes.layout = Layout::nchw;
  groups.weights = {24, 4, 3, 3};
  groups.groups = 6;
  Conv2d half_planes = planes, half_pointwise = pointwise, half_groups = groups;
  half_planes.dtype = half_pointwise.dtype = half_groups.dtype = DType::bf16;
  const Conv2d few{.input = {2, 3, 12, 12}, .weights = {16, 3, 3, 3}, .epilogue = {.bias = true}};
  Conv2d deep{.input = {1, 32, 8, 8}, .weights = {32, 1, 3, 3}, .groups = 32, .layout = Layout::nhwc};
  Conv2d deep_planes = deep, pooled = dense;
  deep_planes.layout = Layout::nchw;
  pooled.epilogue = {.bias = true, .activation = Activation::relu, .max_pool = {2, 2}};
  return {dense,  half,        pointwise, half_pointwise, few_outputs, planes, half_planes,
          groups, half_groups, few,       deep,           deep_planes, pooled};
}

bool runs(const Device& device, const Op& op) {
  const std::vector<KernelSupport> answers = device.query(op);
  return std::any_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.supported; });
}

/// The op's plan, packed weights and first run, each of whose allocations fails once; after that, the device still
/// plans and an earlier plan still gives the right numbers.
void run_out_of_memory(const Device& device, const Op& op) {
  const Operands operands = make_operands(op);
  const Plan before = device.plan(op);
  Bench ran(device, before, operands);
  const OracleResult expected = oracle(op, operands.views());
  const auto all = [&] {
    const Plan plan = device.plan(op);
    Bench(device, plan, operands).run();
  };
  const auto works_after = [&] {
    ran.output().poison();
    ran.run();
    return compare(ran.outcome().y, expected, before.error_bound()).passed;
  };
  CHECK(out_of_memory_everywhere(all, works_after) > 3);
  CHECK(works_after());
  const Plan after = device.plan(op);
  Bench again(device, after, operands);
  again.run();
  CHECK(compare(again.outcome().y, expected, after.error_bound()).passed);
}

TEST_CASE("where any allocation of open, query, plan, pack and run fails, that is reported, and the device works on") {
  if (!can_count_allocations()) {
    MESSAGE("skipped: a sanitizer has the allocations");
    return;
  }
  for (const char* uri : {"cpu?threads=1", "reference?threads=1", "auto?only=cpu+reference&threads=1"}) {
    CAPTURE(uri);
    CHECK(out_of_memory_everywhere([&] { open(uri); }) > 3);
    const Device device = open(uri);
    CHECK(out_of_memory_everywhere([&] { device.query(small_conv()); }) > 3);
    CHECK(out_of_memory_everywhere([&] { device.tensor(DType::f32, small_conv().input); }) > 1);
    for (const Op& op : one_of_each()) {
      CAPTURE(describe(op));
      run_out_of_memory(device, op);
    }
  }
  const Device cpu = open("cpu");
  for (const std::string& kernel : cpu.info().kernels) {
    CAPTURE(kernel);
    const Device device = open("cpu?threads=1&kernel=" + kernel);
    std::vector<Conv2d> convs = one_for_each_family();
    const auto taken = std::find_if(convs.begin(), convs.end(), [&](const Conv2d& conv) { return runs(device, conv); });
    if (taken != convs.end()) run_out_of_memory(device, *taken);
    const bool only_moves = kernel == "max_pool" || kernel == "add" || kernel == "transpose" || kernel == "reorder";
    CHECK((taken != convs.end()) != only_moves);
  }
}

TEST_CASE("a search for the fastest that runs out of memory is reported, and the device plans on") {
  if (!can_count_allocations()) return;
  const Device device = open("auto?only=cpu+reference&threads=1");
  const Op op = one_for_each_family().front();
  const auto works_after = [&] { return device.plan(op).explain().starts_with("auto chose"); };
  const auto search = [&] {
    try {
      tune(device, op, 1e-4);
    } catch (const Error& error) {  // on a busy machine the limit may be over before the first run
      if (std::string_view(error.what()).find(": the limit is 0.0001 s") == std::string_view::npos) throw;
    }
  };
  CHECK(out_of_memory_everywhere(search, works_after) > 3);
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

TEST_CASE("add may write over one of its inputs") {
  for (const Device& device : available_devices()) {
    for (const std::int64_t elements : {1003, 1 << 20}) {
      const Add add{.shape = {elements}};
      const Operands operands = make_operands(add);
      const OracleResult expected = oracle(add, operands.views());
      const std::vector<KernelSupport> answers = device.query(add);
      if (std::none_of(answers.begin(), answers.end(), [](const auto& a) { return a.supported; })) continue;
      INFO(device.info().uri, ": ", describe(add));
      const Plan plan = device.plan(add);
      for (const bool over_first : {true, false}) {
        const Placed a(device, operands.tensors[0]);
        const Placed b(device, operands.tensors[1]);
        const Placed& y = over_first ? a : b;
        plan.run(a.view(), b.view(), y.view());
        device.synchronize();
        CHECK(compare(y.read(), expected, plan.error_bound()).passed);
      }
    }
  }
}

}  // namespace
}  // namespace gable::conformance
