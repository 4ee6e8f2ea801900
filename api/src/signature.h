// What an op's tensors are: by this a plan checks those that it is given.
#pragma once

#include <gable/ops.h>

namespace gable {

/// What a plan expects of one tensor.
struct Expected {
  const char* name = "";
  DType dtype = DType::f32;
  Shape shape{};
  Layout layout = Layout::nchw;
};

struct Signature {
  Expected inputs[2]{};
  int input_count = 1;
  Expected weights{};
  Expected bias{};
  bool has_weights = false;
  Expected output{};
};

Signature signature(const Op& op);

}  // namespace gable
