// Which addresses a program accesses, from a run that is stopped at random times and then goes on for some instructions
// one by one (ptrace). It needs no PMU, and takes every instruction set that this CPU has.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gable::perf {

struct SampledAccesses {
  int stops = 0;            ///< of a thread that was running
  double instructions = 0;  ///< that ran one by one after the stops
  double accesses = 0;      ///< of theirs to memory; gathers are left out
  double across_lines = 0;  ///< accesses that begin in one line of 64 bytes and end in the next
};

/// Samples a run whose output is thrown away. This process must have no other children. Empty if the run was killed
/// after `seconds_limit`, was interrupted or ended with another status than `status`; also on architectures other than
/// x86-64, without a disassembler, and if the system forbids ptrace.
std::optional<SampledAccesses> sample_accesses(const std::vector<std::string>& argv, double seconds_limit, int status);

}  // namespace gable::perf
