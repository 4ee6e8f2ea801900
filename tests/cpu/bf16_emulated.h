// A bf16 unit with AMX's dataflow in plain C++, so that every machine tests the whole path around the tile registers.
#pragma once

#include <array>

#include "cpu/bf16/unit.h"
#include "cpu/planes/tile_unit.h"

namespace gable::cpu::test {

/// The products of bf16 parts a term that units compute for each storage type.
struct PartProducts {
  DType type;
  int products;
};
inline constexpr std::array kPartProducts{PartProducts{DType::bf16, 1}, PartProducts{DType::f16, 3},
                                          PartProducts{DType::f16, 4}, PartProducts{DType::f32, 3},
                                          PartProducts{DType::f32, 6}};

const Bf16Unit& emulated_unit();
/// The same for the planes kernel.
const planes::TileUnit& emulated_planes();

}  // namespace gable::cpu::test
