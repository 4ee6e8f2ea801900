// The parts of one process's callgrind profile: what was executed, and which events happened, in each region.
#pragma once

#include <map>
#include <string>

#include "perfcounters/sources/callgrind_profile.h"
#include "perfcounters/sources/instruction_flop.h"

namespace gable::perf {

struct SimulatedPart {
  FlopCount flop{};
  std::map<std::string, double> events{};  ///< sums by callgrind's names
  SimulatedPart& operator+=(const SimulatedPart& other);
  SimulatedPart operator*(double factor) const;
};

struct SimulatedParts {
  std::map<std::string, SimulatedPart> regions{};  ///< by path, without the regions below; "": outside of regions
  SimulatedPart residue{};                         ///< the sweep at the end of the process
  bool is_swept = false;                           ///< there was that sweep
};

/// `counter` may be null: no W then.
SimulatedParts parts_of(const CallgrindProfile& profile, FlopCounter* counter);

/// The part of `path` with the regions below it; "": all of the process, without the residue.
SimulatedPart inclusive_part(const SimulatedParts& parts, const std::string& path);

}  // namespace gable::perf
