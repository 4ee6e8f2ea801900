// Conversions of runs of elements, compiled once for each target.
#pragma once

#include <cstdint>

#include <gable/problem.h>
#include "cpu/common/target.h"

namespace gable::cpu {

/// f16 or bf16 to f32 and back, `count` elements.
using WidenFunction = void (*)(const void* x, float* y, std::int64_t count);
using NarrowFunction = void (*)(const float* x, void* y, std::int64_t count);

struct WidenedKernels {
  WidenFunction widen_f16, widen_bf16;
  NarrowFunction narrow_f16, narrow_bf16;

  WidenFunction widen(DType type) const { return type == DType::f16 ? widen_f16 : widen_bf16; }
  NarrowFunction narrow(DType type) const { return type == DType::f16 ? narrow_f16 : narrow_bf16; }
};

const WidenedKernels& widened_kernels(const Target& target);

}  // namespace gable::cpu
