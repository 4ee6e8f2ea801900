// Element-wise kernels over contiguous arrays.
#pragma once

#include <cstdint>

#include <gable/problem.h>
#include "cpu/common/target.h"

namespace gable::cpu {

/// y[i] = activation(a[i] + b[i]) for i in [0, count), added in f32 and rounded to the type.
struct Addition {
  std::int64_t count = 0;
  DType type = DType::f32;
  Activation activation = Activation::none;  // or relu
};

/// y may be a or b.
void add(const Addition& addition, const void* a, const void* b, void* y, const Target& target, int threads);

/// The shape of a piece of work, for studies of what it costs.
struct AddTile {
  std::int64_t lanes = 128;  // elements added at once: part of a vector, or as many vectors as they fill
  std::int64_t steps = 1;    // one after another
};

/// The same in tiles of lanes x steps neighbouring elements; a tile is one unit of work.
void add_in_tiles(const Addition& addition, const AddTile& tile, const void* a, const void* b, void* y,
                  const Target& target, int threads);

}  // namespace gable::cpu
