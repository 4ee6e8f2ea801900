// A bf16 unit with AMX's dataflow in plain C++, so that every machine tests the whole path around the tile registers.
#pragma once

#include "cpu/bf16/unit.h"
#include "cpu/planes/tile_unit.h"

namespace gable::cpu::test {

const Bf16Unit& emulated_unit();
/// The same for the planes kernel.
const planes::TileUnit& emulated_planes();

}  // namespace gable::cpu::test
