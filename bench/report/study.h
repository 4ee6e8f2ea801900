// Several studies merged for one report: the record's rows, ceilings and refusals, each with its machine. Everything
// that a report draws or prints comes from here, so each output agrees with the others.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/record/study.h"

namespace gable::bench::report {

struct Machine : MachineEntry {
  std::string tag{};    // "A", "B", … when the merged studies come from several machines; empty for one
  std::string apart{};  // "L1d 32.0 KiB" where another machine's CPU has the same name
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
  std::string label{};  // name, with "+pool" if the study has it with and without a pool, "(mbN)" after --quick, "(L1)"
                        // if it stands at that level's intensity because its data stay in the caches
  std::string series{};  // device, kByAuto, its math unless all are strict, its machine's tag if two have the device

  // A logarithmic plot can't show zero work (transpose, reorder). The points of one addition in many tiles, or of one
  // loop with many working sets, would hide each other. Tables show such rows.
  bool can_be_drawn() const { return work.value > 0 && !identity.tile && !identity.only_moves_bytes(); }
};

// "2x2"; empty for no value.
std::string pair_text(const std::optional<std::array<std::int64_t, 2>>& pair);
// The window of the fused max-pool; empty without one.
std::string max_pool_of(const Row& row);

// What a point's colour stands for: the dtype, or the math that replaces its products (tf32, split3, split6).
std::string precision_of(const Row& row);
// "2.13", or "0.328 (L1)" of a row whose data stay in the caches.
std::string intensity_text(const Row& row);
// How well the place on the axis of intensity is known: the source of Q at the farthest level, mostly DRAM.
const std::string& source_of(const Row& row);

// Whether a series is of a vendor's library, which others are compared with.
bool is_vendor_library(const std::string& series);
inline constexpr std::string_view kByAuto = " (auto)";  // in the series of a device that rows of the study name as well

// A program that is not gable's, with all its parts, points or not.
struct Program : ProgramEntry {
  size_t machine = 0;
};

struct Studies {
  std::vector<Machine> machines;  // one for each study
  std::vector<Ceiling> ceilings;
  std::vector<Measurement> measurements;
  std::vector<Refused> refused;
  std::vector<Rate> rates;
  std::vector<Program> programs;
};

// Validates each study (SchemaError; with several, the message says which) and merges them in order. Two studies of one
// machine share a tag; every entry keeps its machine.
Studies merge(const std::vector<nlohmann::json>& studies);

}  // namespace gable::bench::report
