// How `auto` combines several devices: which devices it uses, what it forwards, and which options each device gets. The
// devices are plugins of this test (plugins/fake_gpu.cpp), which come before all real ones.
#include <doctest/doctest.h>
#include <gable/gable.h>
#include <gable/study.h>

#include <cstdlib>
#include <string>

#include "tests/tools/expect.h"

namespace gable {
namespace {

/// Before the first call into gable: the registry reads the path once.
const bool kEnvironmentIsSet = [] {
  unsetenv("GABLE_DEVICE");
  return setenv("GABLE_BACKEND_PATH", GABLE_TEST_PLUGINS "/auto", 1) == 0;
}();

constexpr Memory kFakeMemory{Memory::Kind::cuda, 7};
const Op kAdd = Add{.shape = {3}};
const Op kTranspose = Transpose{.rows = 2, .columns = 3};

TEST_CASE("events, ceilings and loops of auto are its first device's") {
  REQUIRE(kEnvironmentIsSet);
  const Device device = open("auto");
  CHECK(device.info().uri == "auto");
  CHECK(device.info().backend == "fake_gpu");
  CHECK(device.info().memory == kFakeMemory);
  CHECK(device.event().seconds_since(device.event()) == 42);
  REQUIRE(device_ceilings(device).size() == 1);
  CHECK(device_ceilings(device)[0].name == "fake");
  CHECK(device_loop(device, MemoryLoop{.bytes = 8}).details().kernel == "fake loop");
}

TEST_CASE("a plan names the device that auto chose, and its memory") {
  const Device device = open("auto");
  const Plan add = device.plan(kAdd);
  CHECK(add.device_uri() == "fake_gpu");
  CHECK(add.memory() == kFakeMemory);
  CHECK(contains(add.explain(), "auto chose fake_gpu"));
  const Plan transpose = device.plan(kTranspose);
  CHECK(transpose.device_uri() == "fake_peer");
  CHECK(transpose.memory() == kFakeMemory);
  CHECK(contains(transpose.explain(), "auto chose fake_peer"));
  CHECK(contains(transpose.explain(), "passed over fake_gpu; loop: it only adds"));
}

TEST_CASE("devices whose tensors lie in another memory are passed over with that reason") {
  const Device device = open("auto");
  const std::string text = device.plan(kAdd).explain();
  CHECK(contains(text, "passed over cpu: its tensors lie in host memory, those of fake_gpu in cuda:7 memory"));
  CHECK(contains(text, "passed over fake_liar: its tensors lie in host memory"));
  for (const KernelSupport& answer : device.query(kAdd)) CHECK_FALSE(contains(answer.kernel, "cpu/"));
  // The CPU could run it, on tensors that lie elsewhere.
  const std::string refusal = message_of([&] { device.plan(Reorder{.shape = {1, 2, 3, 4}}); }, ErrorCode::unsupported);
  CHECK(contains(refusal, "fake_gpu/loop: it only adds"));
  CHECK(contains(refusal, "fake_peer/loop: it only adds"));
  CHECK(contains(refusal, "passed over cpu: its tensors lie in host memory"));
}

TEST_CASE("an option goes to the devices that have it; the others stay, and explain() says so") {
  const Device device = open("auto?threads=3");
  CHECK(device.info().uri == "auto?threads=3");
  const Plan add = device.plan(kAdd);
  CHECK(add.device_uri() == "fake_gpu");
  CHECK(contains(add.explain(), "fake_gpu has no option 'threads'"));
  const Plan transpose = device.plan(kTranspose);
  CHECK(transpose.device_uri() == "fake_peer");
  CHECK(contains(transpose.explain(), "3 threads"));
  CHECK(contains(open("auto").plan(kTranspose).explain(), "all threads"));
}

TEST_CASE("an option that no device has is refused, a value that a device refuses passes over that device") {
  CHECK(contains(message_of([] { open("auto?speed=9"); }), "unknown option 'speed'; auto has "));
  const Plan plan = open("auto?kernel=quick").plan(kAdd);
  CHECK(plan.device_uri() == "fake_peer");
  CHECK(contains(plan.explain(), "passed over fake_gpu: kernel is 'quick'"));
  CHECK(
      contains(message_of([] { open("auto?only=fake_gpu&kernel=quick"); }), "passed over fake_gpu: kernel is 'quick'"));
}

}  // namespace
}  // namespace gable
