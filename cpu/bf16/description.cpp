// See description.h. The text comes from the same functions that decide in the loops.
#include "cpu/bf16/description.h"

#include "cpu/bf16/work_unit.h"

namespace gable::cpu::bf16 {
namespace {

/// Calls use(work) for the described work units. Returns whether these are all work units.
template <class Use>
bool for_described_work_units(const Blocking& b, const Use& use) {
  return for_described_units(b.work.count, [&](std::int64_t index) { use(work_unit_at(b, index)); });
}

std::string panels_text(const Blocking& b, const Bf16Unit& unit) {
  if (b.work.panels == 1) return "";
  bool flat = true;
  for_described_work_units(b, [&](const WorkUnit& w) { flat &= prefers_flat(b, unit, w.rows, w.columns); });
  if (reads_rows(b) && !flat) return "";
  if (b.weights.chunk == b.work.panels || b.input == InputPath::in_image) {
    return ", all panels of a tile's pixels in turn";
  }
  return b.weights.chunk > 1 ? ", " + text(b.weights.chunk) + " panels of a tile's pixels in turn" : "";
}

std::string input_text(const Blocking& b, const Bf16Unit& unit) {
  if (b.input == InputPath::in_image || b.input == InputPath::in_rows) return "input in place";
  std::int64_t staged = 0, in_place = 0;
  const bool all =
      for_described_work_units(b, [&](const WorkUnit& w) { ++(may_read_in_place(b, unit, w) ? in_place : staged); });
  if (staged == 0) return "input in place";
  if (in_place == 0) return "input staged in L2";
  const std::string counts = all ? text(staged) + " of " + text(b.work.count) : "some";
  return "input in place, staged in L2 for " + counts + " units";
}

/// "bias and relu", or less for a problem without one of them.
std::string steps_text(const Conv2dProblem& p) {
  const std::string activation = p.activation == Activation::relu   ? "relu"
                                 : p.activation == Activation::tanh ? "tanh"
                                                                    : "";
  if (p.bias && !activation.empty()) return "bias and " + activation;
  return p.bias ? "bias" : !activation.empty() ? activation : "conversion";
}

}  // namespace

EpiloguePlaces epilogue_places(const Conv2dProblem& p, const Blocking& b, const Bf16Unit& unit) {
  const bool registers = unit.runs_epilogue_in_registers && b.geometry.pool == 1 && reads_rows(b);
  EpiloguePlaces places;
  places.of_all_units = for_described_work_units(b, [&](const WorkUnit& w) {
    const bool whole_tiles = w.rows == 1 || !prefers_flat(b, unit, w.rows, w.columns);
    const bool here = registers && whole_tiles && unit.takes_epilogue(p.dtype, p.activation);
    (here ? places.in_registers : places.in_l1) += w.end_panel - w.first_panel;
  });
  return places;
}

std::string tile_text(const Blocking& b) {
  return "2x" + text(b.positions) + (b.input == InputPath::by_images ? " images x " : " pixels x ") + text(kLanes) +
         " lanes, " + text(b.terms.products) + (b.terms.products == 1 ? " bf16 product" : " bf16 products") + " a term";
}

std::string blocking_text(const Blocking& b, const Bf16Unit& unit) {
  std::string words = "out panels of " + text(kLanes) + " lanes, " + text(b.work.panels) + " a unit, in blocks of " +
                      text(kChannels) + " channels";
  if (b.terms.fold > 1) words += " of " + text(b.terms.fold) + " columns";
  if (b.terms.gathers_windows()) words += " of whole windows";
  if (b.terms.gathers() && !b.terms.gathers_windows()) words += " of " + text(b.terms.gathered_rows) + " kernel rows";
  words += ", unit " + text(b.work.rows) + "x" + text(b.work.columns) + " outputs, " + text(b.work.count) + " units";
  if (b.input == InputPath::by_images) words += " of " + text(b.work.images) + " images";
  return words + panels_text(b, unit);
}

std::string fusion_text(const Conv2dProblem& p, const Blocking& b, const Bf16Unit& unit) {
  const EpiloguePlaces places = epilogue_places(p, b, unit);
  std::string words = input_text(b, unit) + (b.geometry.pool == 2 ? ", max-pool in an L1 tile" : ", no pool") + ", " +
                      steps_text(p) + (places.in_registers > 0 ? " in registers" : " in an L1 tile");
  if (places.in_registers > 0 && places.in_l1 > 0) {
    const std::string counts =
        places.of_all_units ? text(places.in_l1) + " of " + text(places.in_registers + places.in_l1) : "some";
    words += " or, for " + counts + " panels of units, in an L1 tile";
  }
  return words;
}

}  // namespace gable::cpu::bf16
