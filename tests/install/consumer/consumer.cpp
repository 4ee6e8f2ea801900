// An application outside gable's tree: lists the devices, runs one convolution on each that is named on its command
// line, and fails unless the result is right.
#include <gable/gable.h>

#include <algorithm>
#include <cstdio>
#include <exception>

namespace {

constexpr float kTaps = 4 * 3 * 3;

/// All inputs 1, all weights 1: every output is the number of taps.
bool convolves(const char* uri) {
  const gable::Device device = gable::open(uri);
  const gable::Conv2d conv{.input = {1, 4, 8, 8}, .weights = {8, 4, 3, 3}};
  const gable::Plan plan = device.plan(conv);
  const gable::Tensor x(conv.dtype, conv.input);
  const gable::Tensor w(conv.dtype, conv.weights);
  const gable::Tensor y(conv.dtype, plan.output_shape());
  std::fill_n(x.as<float>(), x.shape().elements(), 1.0F);
  std::fill_n(w.as<float>(), w.shape().elements(), 1.0F);
  plan.run(x, plan.pack(w), y);
  return std::all_of(y.as<float>(), y.as<float>() + y.shape().elements(), [](float value) { return value == kTaps; });
}

}  // namespace

int main(int argc, char** argv) try {
  for (const gable::DeviceInfo& info : gable::devices()) {
    std::printf("device %s: %s\n", info.uri.c_str(), info.available ? "available" : info.reason.c_str());
  }
  for (int i = 1; i < argc; ++i) {
    const bool right = convolves(argv[i]);
    std::printf("conv2d on %s: %s\n", argv[i], right ? "right" : "WRONG");
    if (!right) return 1;
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "consumer: %s\n", error.what());
  return 1;
}
