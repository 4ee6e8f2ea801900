#include <gable/gable.h>

#include <algorithm>
#include <cstdio>

int main() {
  gable::Device device = gable::open("cpu");  // or "auto", "onednn", "cpu:avx2", ...
  gable::Conv2d conv{.input = {1, 64, 56, 56}, .weights = {128, 64, 3, 3}, .padding = {1, 1}};
  conv.epilogue = {.activation = gable::Activation::relu, .max_pool = {2, 2}};
  gable::Plan plan = device.plan(conv);  // validates, chooses a kernel, sizes the workspace
  gable::Tensor x = device.tensor(conv.dtype, conv.input), w = device.tensor(conv.dtype, conv.weights);
  gable::Tensor y = device.tensor(conv.dtype, plan.output_shape());
  std::fill_n(x.as<float>(), x.shape().elements(), 1.0F);
  std::fill_n(w.as<float>(), w.shape().elements(), 1.0F / 64);
  gable::PackedWeights packed = plan.pack(w);  // once, outside the hot loop
  plan.run(x, packed, y);                      // allocates nothing
  std::printf("%s\ny[0] = %g\n", plan.explain().c_str(), y.as<float>()[0]);
}
