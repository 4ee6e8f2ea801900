// The sizes of an op's tensors, for code that copies or fills them.
#pragma once

#include <gable/ops.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace gable {

struct Operands {
  std::array<std::int64_t, 2> inputs{};  ///< elements; 0: none
  std::int64_t weights = 0;
  std::int64_t bias = 0;  ///< elements of f32
  std::int64_t output = 0;
  DType dtype = DType::f32;

  std::size_t bytes(std::int64_t elements) const { return static_cast<std::size_t>(elements) * size_of(dtype); }
  std::size_t bias_bytes() const { return static_cast<std::size_t>(bias) * sizeof(float); }
};

inline Operands operands_of(const Op& op) {
  Operands all{.output = output_shape(op).elements(), .dtype = dtype_of(op)};
  if (const auto* conv = std::get_if<Conv2d>(&op)) {
    all.inputs[0] = conv->input.elements();
    all.weights = conv->weights.elements();
    all.bias = conv->epilogue.bias ? conv->weights[0] : 0;
  } else if (const auto* matmul = std::get_if<Matmul>(&op)) {
    all.inputs[0] = matmul->m * matmul->k;
    all.weights = matmul->k * matmul->n;
    all.bias = matmul->bias ? matmul->n : 0;
  } else if (const auto* pool = std::get_if<MaxPool>(&op)) {
    all.inputs[0] = pool->input.elements();
  } else if (const auto* add = std::get_if<Add>(&op)) {
    all.inputs = {add->shape.elements(), add->shape.elements()};
  } else if (const auto* concat = std::get_if<Concat>(&op)) {
    all.inputs = {concat->a.elements(), concat->b.elements()};
  } else if (const auto* multiply = std::get_if<Multiply>(&op)) {
    all.inputs = {multiply->a.elements(), multiply->b.elements()};
  } else if (const auto* upsample = std::get_if<Upsample>(&op)) {
    all.inputs[0] = upsample->input.elements();
  } else {
    all.inputs[0] = all.output;
  }
  return all;
}

}  // namespace gable
