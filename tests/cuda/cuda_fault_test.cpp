// A kernel that faults makes its GPU unusable for the rest of the process. These tests check the errors that follow and
// what still works. They are a program of their own, since no other test could use the GPU afterwards. Tests of two
// GPUs come first and leave the first GPU intact.
#include <doctest/doctest.h>
#include <gable/gable.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "tests/tools/expect.h"

namespace gable {
namespace {

/// The number of GPUs before any fault.
int gpus() {
  static const auto count = [] {
    const std::vector<DeviceInfo> all = devices();
    return std::count_if(all.begin(), all.end(),
                         [](const DeviceInfo& info) { return info.backend == "cuda" && info.available; });
  }();
  return static_cast<int>(count);
}

bool has_two_gpus() {
  const int count = gpus();
  if (count < 2) MESSAGE("skipped, two GPUs are needed: there are ", count);
  return count >= 2;
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

/// The text of the fault that an addition far beyond its tensors' memory is.
std::string fault(const Device& device) {
  const Shape far{1 << 18, 1 << 18};  // more than any GPU has
  const Tensor small = device.tensor(DType::f32, {128});
  const Plan plan = device.plan(Add{.shape = far});
  return failure_of([&] {
    plan.run(beyond(small, far), beyond(small, far), beyond(small, far));
    device.synchronize();
  });
}

void check_lost(const Device& device) {
  CHECK(contains(failure_of([&] { device.tensor(DType::f32, {128}); }), "Start the process again"));
  CHECK(contains(failure_of([&] { device.synchronize(); }), "Start the process again"));
}

/// 1.5 + 1.5, with tensors that are made now.
float three(const Device& device) {
  const Tensor host(DType::f32, {4});
  for (int i = 0; i < 4; ++i) host.as<float>()[i] = 1.5f;
  const Tensor a = device.tensor(DType::f32, {4}), c = device.tensor(DType::f32, {4});
  device.copy(host, a);
  device.plan(Add{.shape = {4}}).run(a.view(), a.view(), c.view());
  device.copy(c, host);
  device.synchronize();
  return host.as<float>()[3];
}

TEST_CASE("a tensor of another GPU is refused by both their names, and a copy brings it over") {
  if (!has_two_gpus()) return;
  const Device first = open("cuda:0"), second = open("cuda:1");
  CHECK(three(first) == 3.0f);
  CHECK(three(second) == 3.0f);
  const Tensor here = first.tensor(DType::f32, {64}), there = second.tensor(DType::f32, {64});
  const Plan plan = first.plan(Add{.shape = {64}});
  const std::string message = message_of([&] { plan.run(here, there.view(), here); });
  CHECK(contains(message, "cuda:1"));
  CHECK(contains(message, "cuda:0"));
  TensorView lie = there.view();
  lie.memory = here.view().memory;
  CHECK(contains(message_of([&] { plan.run(here, lie, here); }), "its pointer lies in cuda:1 memory"));

  const Tensor sent(DType::f32, {64}), received(DType::f32, {64});
  for (int i = 0; i < 64; ++i) sent.as<float>()[i] = static_cast<float>(i);
  first.copy(sent, here);
  first.copy(here, there);
  first.synchronize();
  second.copy(there, received);
  second.synchronize();
  for (int i = 0; i < 64; ++i) CHECK(received.as<float>()[i] == sent.as<float>()[i]);
}

/// Checks that a GPU without a fault still computes right, or that every call reports it as lost too. CUDA decides
/// which (driver 580 takes all GPUs from the process); a mixture of both would be gable's fault.
void check_whole_or_lost(const Device& device, const std::function<void()>& check_whole) {
  std::string failure;
  try {
    device.synchronize();
    check_whole();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::device_failure);
    failure = error.what();
  }
  if (failure.empty()) return;
  CHECK(contains(failure, "Start the process again"));
  check_lost(device);
}

TEST_CASE("after a kernel's fault on one GPU the other goes on with what it had, or says that it is lost too") {
  if (!has_two_gpus()) return;
  const Device first = open("cuda:0"), second = open("cuda:1");
  const Tensor kept(DType::f32, {64}), back(DType::f32, {64});
  for (int i = 0; i < 64; ++i) kept.as<float>()[i] = static_cast<float>(i);
  const Tensor before = first.tensor(DType::f32, {64});
  first.copy(kept, before);
  const Plan plan = first.plan(Add{.shape = {64}});

  const std::string text = fault(second);
  CHECK(contains(text, "cuda:1"));
  CHECK(contains(text, "Start the process again"));
  check_lost(second);

  check_whole_or_lost(first, [&] {
    plan.run(before.view(), before.view(), before.view());
    first.copy(before, back);
    first.synchronize();
    CHECK(back.as<float>()[63] == 126.0f);
    CHECK(three(first) == 3.0f);
  });
  check_lost(second);
  CHECK(three(open("cpu")) == 3.0f);
}

TEST_CASE("a child that was forked after the GPU was used is told that CUDA does not survive it, and the CPU goes on") {
  if (is_missing("cuda")) return;
  if (gpus() >= 2) return;  // a fault was before
  const Device device = open("cuda:0");
  CHECK(three(device) == 3.0f);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string message;
    try {
      device.tensor(DType::f32, {128});
    } catch (const Error& error) {
      message = error.what();
    }
    const bool said = contains(message, "fork()") && three(open("cpu?threads=1")) == 3.0f;
    if (!said) std::fprintf(stderr, "in the child: '%s'\n", message.c_str());
    ::_exit(said ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(three(device) == 3.0f);
}

TEST_CASE("with next to no memory left plans and tensors are refused with the bytes, and all is well after a release") {
  if (is_missing("cuda")) return;
  if (gpus() >= 2) return;
  const Device device = open("cuda:0");
  const Conv2d conv{.input = {8, 64, 56, 56},
                    .weights = {64, 64, 3, 3},
                    .padding = {1, 1},
                    .layout = Layout::nhwc,
                    .math = Math::split3};
  std::vector<Tensor> all;
  for (std::int64_t elements = std::int64_t{1} << 32; elements >= 1024; elements /= 2) {
    try {
      while (true) all.push_back(device.tensor(DType::f32, {elements / 1024, 1024}));
    } catch (const Error& error) {
      REQUIRE(error.code() == ErrorCode::out_of_memory);
    }
  }
  const std::string message = message_of([&] { device.tensor(conv.dtype, conv.input); }, ErrorCode::out_of_memory);
  CHECK(contains(message, std::to_string(std::int64_t{8} * 64 * 56 * 56 * 4) + " bytes"));
  try {
    device.plan(conv);  // a kernel without workspace may be planned
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::out_of_memory);
  }
  all.clear();
  CHECK(three(device) == 3.0f);
  CHECK(device.plan(conv).output_shape() == conv.input);
}

TEST_CASE("after a kernel's fault every call says that the GPU is lost, and the CPU goes on") {
  if (is_missing("cuda")) return;
  if (gpus() >= 2) return;  // the case above has said it of both
  const Device device = open("cuda:0");
  const std::string first = fault(device);
  CHECK(contains(first, "cuda:0"));
  CHECK(contains(first, "Start the process again"));
  check_lost(device);
  CHECK(three(open("cpu")) == 3.0f);
  const Device other = open("auto");  // what is opened now passes the GPU over, and says so
  CHECK(other.info().memory.kind == Memory::Kind::host);
  CHECK(three(other) == 3.0f);
  CHECK(contains(other.plan(Add{.shape = {4}}).explain(), "Start the process again"));
}

}  // namespace
}  // namespace gable
