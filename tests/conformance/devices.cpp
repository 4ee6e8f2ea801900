#include "tests/conformance/devices.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

namespace gable::conformance {
namespace {

/// What `auto` measured before must not decide here, and nothing is written into the user's cache.
[[maybe_unused]] const int kNoCache = setenv("GABLE_CACHE", "off", 1);

}  // namespace

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

bool takes(const Device& device, const Op& op) {
  const std::vector<KernelSupport> answers = device.query(op);
  return std::any_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.supported; });
}

bool names_kernels(const Device& device) { return device.info().kernels.size() > 1; }

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
          Reorder{.shape = {1, 9, 5, 7}},
          Activate{.shape = {2, 5, 77}, .function = Function::silu},
          Concat{.a = {2, 9, 5, 7}, .b = {2, 4, 5, 7}},
          Upsample{.input = {1, 9, 5, 7}},
          Upsample{.input = {1, 9, 5, 7}, .interpolation = Interpolation::bilinear},
          Multiply{.a = {2, 9, 5, 7}, .b = {2, 9, 1, 1}},
          Softmax{.shape = {5, 77}}};
}

std::vector<Op> one_of_each(const Device& device) {
  std::vector<Op> all = one_of_each();
  std::erase_if(all, [&](const Op& op) { return !takes(device, op); });
  return all;
}

}  // namespace gable::conformance
