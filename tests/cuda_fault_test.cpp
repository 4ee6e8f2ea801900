// A kernel that faults takes the GPU from the process for good: what is said then, and what goes on working. In a
// program of its own, since no other test could use the GPU afterwards.
#include <doctest/doctest.h>
#include <gable/gable.h>

#include <string>

#include "tests/expect.h"

namespace gable {
namespace {

std::string why_no_gpu() {
  for (const DeviceInfo& info : devices()) {
    if (info.backend == "cuda" && info.available) return "";
    if (info.backend == "cuda") return info.reason;
  }
  return "the plugin was not built";
}

/// A view of far more than the memory behind it, as a wrong external tensor may be.
TensorView beyond(const Tensor& tensor, const Shape& shape) {
  return {tensor.data(), tensor.dtype(), shape, Layout::nchw, tensor.view().memory};
}

template <typename Call>
std::string failure_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::device_failure);
    return error.what();
  }
  return "";
}

TEST_CASE("after a kernel's fault every call says that the GPU is lost, and the CPU goes on") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) {
    MESSAGE("skipped, no GPU: ", reason);
    return;
  }
  const Shape far{1 << 18, 1 << 18};  // more than any GPU has
  const Device device = open("cuda:0");
  const Tensor small = device.tensor(DType::f32, {128});
  const Plan plan = device.plan(Add{.shape = far});
  const std::string first = failure_of([&] {
    plan.run(beyond(small, far), beyond(small, far), beyond(small, far));
    device.synchronize();
  });
  CHECK(contains(first, "cuda:0"));
  CHECK(contains(first, "Start the process again"));
  CHECK(contains(failure_of([&] { device.tensor(DType::f32, {128}); }), "Start the process again"));
  CHECK(contains(failure_of([&] { device.synchronize(); }), "Start the process again"));

  const Device cpu = open("cpu");
  const Tensor a(DType::f32, {4});
  for (int i = 0; i < 4; ++i) a.as<float>()[i] = 1.5f;
  const Tensor c(DType::f32, {4});
  cpu.plan(Add{.shape = {4}}).run(a.view(), a.view(), c.view());
  CHECK(c.as<float>()[3] == 3.0f);
}

}  // namespace
}  // namespace gable
