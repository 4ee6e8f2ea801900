// Several studies merged for one report: the record's rows, ceilings and refusals, each with its machine. Everything
// that a report draws or prints comes from here, so each output agrees with the others.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/record/study.h"

namespace gable::bench::report {

struct Machine : MachineEntry {
  std::string tag{};  // "A", "B", … when the merged studies come from several machines; empty for one
};

struct Ceiling : CeilingEntry {
  size_t machine = 0;
};

struct Rate : RateEntry {
  size_t machine = 0;
};

struct Refused : Refusal {
  size_t machine = 0;
};

// A row with its place in the merged studies.
struct Measurement : Row {
  size_t machine = 0;
  std::string label{};   // name, with "+pool" where the study has it with and without
  std::string series{};  // device, with its math where others than strict are, and its machine's tag where two have it

  // A logarithmic plot has no place for work of zero (transpose, reorder), and the points of one addition in many tiles
  // would hide each other, as those of one loop over many working sets: tables show those.
  bool can_be_drawn() const { return work.value > 0 && !identity.tile && !identity.only_moves_bytes(); }
};

// "2x2"; empty without a pair.
std::string pair_text(const std::optional<std::array<std::int64_t, 2>>& pair);
// The window of the fused max-pool; empty without one.
std::string max_pool_of(const Row& row);

struct Studies {
  std::vector<Machine> machines;  // one a study
  std::vector<Ceiling> ceilings;
  std::vector<Measurement> measurements;
  std::vector<Refused> refused;
  std::vector<Rate> rates;
};

// Validates each study (SchemaError; with several, the message says which) and merges them in order. Two studies of one
// machine share a tag; every entry keeps its machine.
Studies merge(const std::vector<nlohmann::json>& studies);

// The ceilings that a panel's roof is made of: of one kind of device, at the thread count of its measurements (else
// the most threads measured); the best bandwidth a level, every compute ceiling. Best first, one machine after another.
std::vector<const Ceiling*> roof_of(const Studies& studies, DeviceKind kind);

}  // namespace gable::bench::report
