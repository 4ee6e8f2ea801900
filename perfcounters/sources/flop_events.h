// The events of a core that count floating-point operations, and W from their counts.
//   Intel   FP_ARITH_INST_RETIRED (0xC7), with AVX512-FP16 also FP_ARITH_INST_RETIRED2 (0xCF): an FMA counts twice. AMX
//           and VDPBF16PS have no event: W of such work is refused, and AMX's busy cycles are an extra value
//   AMD     fp_ret_sse_avx_ops.all (0x03), which counts FLOP
//   Arm     FP_SCALE_OPS_SPEC (0x80C0, per 128 bits of vector length) and FP_FIXED_OPS_SPEC (0x80C1), both speculative
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "perfcounters/machine.h"
#include "perfcounters/sources/perf_system.h"
#include "perfcounters/sources/source.h"

namespace gable::perf {

/// The vendor of Arm's own cores in Machine.
constexpr const char* kArmImplementer = "0x41";

/// One event of a core: the raw perf configuration and the FLOP per count.
struct FlopEvent {
  std::string name;
  std::uint64_t config = 0;
  double flop_per_count = 0;  ///< 0: an extra value, not part of W
  std::string type{};         ///< "f64", "f32", "f16"; empty: it counts several
};

/// Groups of events that together count all FLOP of this CPU. Each group fits the counters of one run, so the work runs
/// once per group. Empty for a CPU whose events gable does not know. `sve_bits`: Arm's vector length.
std::vector<std::vector<FlopEvent>> flop_groups(const Machine& machine, int sve_bits = 128);

/// The same with an event for each type of operand, for work whose types are not known: more runs, of four events each.
/// AMD's and Arm's events do not tell types.
std::vector<std::vector<FlopEvent>> flop_groups_by_type(const Machine& machine, int sve_bits = 128);

/// W of one group, or why its values are no counts.
Quantity flop_from_counts(std::span<const FlopEvent> events, const RawGroup& group);

/// W of several threads' groups: their sum, or the first refusal.
Quantity flop_from_counts(std::span<const FlopEvent> events, std::span<const RawGroup> groups);

/// Adds the values of events that are no part of W (weight 0), by their names.
void add_extra(std::span<const FlopEvent> events, std::span<const RawGroup> groups,
               std::map<std::string, double>& extra);

/// AMX's busy cycles among them; 0: none, or not counted.
double amx_cycles(const std::map<std::string, double>& extra);
/// W, or its refusal where AMX was busy: its operations have no event.
Quantity without_amx(Quantity flop, const std::map<std::string, double>& extra);

}  // namespace gable::perf
