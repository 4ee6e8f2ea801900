// What a plan on a bf16 unit does, in words: explain() prints them.
#pragma once

#include "cpu/bf16/blocking.h"
#include "cpu/bf16/unit.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"

namespace gable::cpu::bf16 {

/// Described work units whose epilogues run in registers and in an L1 tile, counted in panels of work units.
struct EpiloguePlaces {
  std::int64_t in_registers = 0, in_l1 = 0;
  bool of_all_units = true;
};
EpiloguePlaces epilogue_places(const Conv2dProblem& problem, const Blocking& blocking, const Bf16Unit& unit);

std::string tile_text(const Blocking& blocking);
std::string blocking_text(const Blocking& blocking, const Bf16Unit& unit);
std::string fusion_text(const Conv2dProblem& problem, const Blocking& blocking, const Bf16Unit& unit);

}  // namespace gable::cpu::bf16
