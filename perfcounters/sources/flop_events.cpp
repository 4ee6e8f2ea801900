// See flop_events.h.
#include "perfcounters/sources/flop_events.h"

#include <fmt/format.h>

#include <utility>

namespace gable::perf {
namespace {

constexpr const char* kAmxBusy = "exe.amx_busy";

/// f16's events, and AMX's busy cycles, where this CPU has them.
std::vector<FlopEvent> newer_intel_events(const Machine& machine) {
  std::vector<FlopEvent> newer;
  if (machine.cpu.has("avx512_fp16"))
    newer = {{"fp_arith_inst_retired2.scalar_half", 0x01CF, 1, "f16"},
             {"fp_arith_inst_retired2.128b_packed_half", 0x04CF, 8, "f16"},
             {"fp_arith_inst_retired2.256b_packed_half", 0x08CF, 16, "f16"},
             {"fp_arith_inst_retired2.512b_packed_half", 0x10CF, 32, "f16"}};
  if (machine.cpu.has("amx_tile")) newer.push_back({kAmxBusy, 0x02B7, 0});
  return newer;
}

std::vector<std::vector<FlopEvent>> with_newer(std::vector<std::vector<FlopEvent>> groups, const Machine& machine) {
  if (std::vector<FlopEvent> newer = newer_intel_events(machine); !newer.empty()) groups.push_back(std::move(newer));
  return groups;
}

std::vector<std::vector<FlopEvent>> intel_groups(const Machine& machine) {
  // Merged umasks: each sums forms of equal weight, so that five counters see all of f32 and f64.
  return with_newer({{{"fp_arith_inst_retired.scalar", 0x03C7, 1},
                      {"fp_arith_inst_retired.128b_packed_double", 0x04C7, 2},
                      {"fp_arith_inst_retired.4_flops", 0x18C7, 4},
                      {"fp_arith_inst_retired.8_flops", 0x60C7, 8},
                      {"fp_arith_inst_retired.512b_packed_single", 0x80C7, 16}}},
                    machine);
}

std::vector<std::vector<FlopEvent>> intel_groups_by_type(const Machine& machine) {
  return with_newer({{{"fp_arith_inst_retired.scalar_double", 0x01C7, 1, "f64"},
                      {"fp_arith_inst_retired.128b_packed_double", 0x04C7, 2, "f64"},
                      {"fp_arith_inst_retired.256b_packed_double", 0x10C7, 4, "f64"},
                      {"fp_arith_inst_retired.512b_packed_double", 0x40C7, 8, "f64"}},
                     {{"fp_arith_inst_retired.scalar_single", 0x02C7, 1, "f32"},
                      {"fp_arith_inst_retired.128b_packed_single", 0x08C7, 4, "f32"},
                      {"fp_arith_inst_retired.256b_packed_single", 0x20C7, 8, "f32"},
                      {"fp_arith_inst_retired.512b_packed_single", 0x80C7, 16, "f32"}}},
                    machine);
}

// Since Zen 5 the upper bits of the unit mask choose a type, and none chooses all; before, bit 4 was bf16's.
std::vector<std::vector<FlopEvent>> amd_groups(const Machine& machine) {
  constexpr int kZen5Family = 0x1a;
  const bool zen4 = machine.cpu.family < kZen5Family && machine.cpu.has("avx512_bf16");
  return {{{"fp_ret_sse_avx_ops.all", zen4 ? 0x1F03U : 0x0F03U, 1}}};
}

}  // namespace

std::vector<std::vector<FlopEvent>> flop_groups(const Machine& machine, int sve_bits) {
  if (machine.cpu.vendor == "GenuineIntel") return intel_groups(machine);
  if (machine.cpu.vendor == "AuthenticAMD") return amd_groups(machine);
  if (machine.cpu.vendor == kArmImplementer)
    return {{{"fp_scale_ops_spec", 0x80C0, sve_bits / 128.0}, {"fp_fixed_ops_spec", 0x80C1, 1}}};
  return {};
}

std::vector<std::vector<FlopEvent>> flop_groups_by_type(const Machine& machine, int sve_bits) {
  return machine.cpu.vendor == "GenuineIntel" ? intel_groups_by_type(machine) : flop_groups(machine, sve_bits);
}

Quantity flop_from_counts(std::span<const FlopEvent> events, const RawGroup& group) {
  if (std::string reason = group_refusal(group, events.size()); !reason.empty()) return {.reason = std::move(reason)};
  double flop = 0;
  for (std::size_t i = 0; i < events.size(); ++i)
    flop += events[i].flop_per_count * static_cast<double>(group.values[i]);
  return {.value = flop, .q1 = flop, .q3 = flop};
}

Quantity flop_from_counts(std::span<const FlopEvent> events, std::span<const RawGroup> groups) {
  double flop = 0;
  bool any = false;
  for (const RawGroup& group : groups) {
    // A thread that slept the whole time was never scheduled, nor were its counters.
    if (group.time_enabled == 0 && group.time_running == 0 && group.values.size() == events.size()) continue;
    const Quantity one = flop_from_counts(events, group);
    if (!one.value) return one;
    flop += *one.value;
    any = true;
  }
  if (!any) return {.reason = "no thread was counted"};
  return {.value = flop, .q1 = flop, .q3 = flop};
}

void add_extra(std::span<const FlopEvent> events, std::span<const RawGroup> groups,
               std::map<std::string, double>& extra) {
  for (std::size_t i = 0; i < events.size(); ++i)
    for (const RawGroup& group : groups)
      if (events[i].flop_per_count == 0 && i < group.values.size())
        extra[events[i].name] += static_cast<double>(group.values[i]);
}

double amx_cycles(const std::map<std::string, double>& extra) {
  const auto busy = extra.find(kAmxBusy);
  return busy == extra.end() ? 0 : busy->second;
}

Quantity without_amx(Quantity flop, const std::map<std::string, double>& extra) {
  const double cycles = amx_cycles(extra);
  if (cycles == 0) return flop;
  return {.reason = fmt::format("AMX was busy for {:.0f} cycles, and its operations have no event", cycles)};
}

}  // namespace gable::perf
