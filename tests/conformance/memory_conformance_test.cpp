// Allocations of every device: run() makes none, and where one fails, that is reported and the device works on.
#include "backends/kernel_list.h"
#include "tests/conformance/conformance_run.h"
#include "tests/conformance/devices.h"
#include "tests/tools/allocation_counter.h"
#include "tests/tools/out_of_memory.h"

#include <doctest/doctest.h>
#include <gable/gable.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace gable::conformance {
namespace {

constexpr int kCountedRuns = 20;

/// Heap allocations of kCountedRuns runs of the op's plan; -1 if the device refuses the op.
long allocations_of_runs(const Device& device, const Op& op) {
  if (!takes(device, op)) return -1;
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
  few_outputs.weights = {5, 24, 3, 3};
  pointwise.padding = {};
  planes.layout = Layout::nchw;
  groups.weights = {24, 4, 3, 3};
  groups.groups = 6;
  Conv2d half_planes = planes, half_pointwise = pointwise, half_few_outputs = few_outputs, half_groups = groups;
  half_planes.dtype = half_pointwise.dtype = half_few_outputs.dtype = half_groups.dtype = DType::bf16;
  const Conv2d few{.input = {2, 3, 12, 12}, .weights = {16, 3, 3, 3}, .epilogue = {.bias = true}};
  const Conv2d patches{.input = {2, 3, 8, 12}, .weights = {16, 3, 4, 4}, .stride = {4, 4}, .layout = Layout::nhwc};
  Conv2d cropped = dense;
  cropped.input = {1, 24, 2, 2};
  cropped.weights = {40, 24, 7, 7};
  cropped.padding = {3, 3, 3, 3};
  Conv2d deep{.input = {1, 32, 8, 8}, .weights = {32, 1, 3, 3}, .groups = 32, .layout = Layout::nhwc};
  Conv2d deep_planes = deep, pooled = dense;
  deep_planes.layout = Layout::nchw;
  pooled.epilogue = {.bias = true, .activation = Activation::relu, .max_pool = {2, 2}};
  return {dense,       half, pointwise, half_pointwise, few_outputs, half_few_outputs, planes, half_planes, groups,
          half_groups, few,  patches,   cropped,        deep,        deep_planes,      pooled};
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
    const auto taken =
        std::find_if(convs.begin(), convs.end(), [&](const Conv2d& conv) { return takes(device, conv); });
    if (taken != convs.end()) run_out_of_memory(device, *taken);
    const bool has_no_weights =
        std::find(kUnweightedKernels.begin(), kUnweightedKernels.end(), kernel) != kUnweightedKernels.end();
    CHECK((taken != convs.end()) != has_no_weights);
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

}  // namespace
}  // namespace gable::conformance
