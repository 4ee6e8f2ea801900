// The reason that gable reports if the NVIDIA driver is too old for this build's CUDA. ctest puts such a driver
// (old_driver.cpp) on the loader's path, where it hides a real one.
#include <doctest/doctest.h>
#include <gable/gable.h>

#include <cstdlib>
#include <string>

#include "tests/tools/expect.h"

namespace gable {
namespace {

TEST_CASE("a driver that is too old is named with its version and the one that is needed, and the CPU goes on") {
  const char* path = std::getenv("LD_LIBRARY_PATH");
  if (path == nullptr || !contains(path, "old_driver")) {
    MESSAGE("skipped: LD_LIBRARY_PATH does not lead to the old driver; ctest sets it");
    return;
  }
  const DeviceInfo info = first_device("cuda");
  REQUIRE(info.backend == "cuda");
  CHECK_FALSE(info.available);
  CHECK(info.memory.kind == Memory::Kind::cuda);
  CHECK(contains(info.reason, "cudaErrorInsufficientDriver"));
  CHECK(contains(info.reason, "The driver supports CUDA 11.4, this plugin needs "));
  CHECK(contains(info.reason, ": install driver 5"));
  CHECK(contains(message_of([] { open("cuda:0"); }, ErrorCode::unavailable), info.reason));

  const Device device = open("auto");
  CHECK(device.info().memory.kind == Memory::Kind::host);
  const Tensor a(DType::f32, {4}), c(DType::f32, {4});
  for (int i = 0; i < 4; ++i) a.as<float>()[i] = 1.5f;
  device.plan(Add{.shape = {4}}).run(a.view(), a.view(), c.view());
  CHECK(c.as<float>()[3] == 3.0f);
}

}  // namespace
}  // namespace gable
