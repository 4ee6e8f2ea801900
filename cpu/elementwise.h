// Element-wise kernels over contiguous arrays.
#pragma once

#include <cstdint>

#include "cpu/target.h"
#include "cpu/types.h"

namespace gable::cpu {

/// y[i] = a[i] + b[i] for i in [0, count), added in f32 and rounded to the type. y may be a or b.
void add(const void* a, const void* b, void* y, std::int64_t count, Type type, const Target& target, int threads);

}  // namespace gable::cpu
