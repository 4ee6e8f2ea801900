// See record.h. W and Q are analytic at first: exact FLOP from the shapes, and the least bytes that any implementation
// moves. counting.h puts what was counted in their place.
#include "bench/record.h"

#include <fmt/format.h>
#include <gable/version.h>

#include <algorithm>

#include "bench/problem.h"
#include "bench/report/schema.h"
#include "bench/report/study.h"
#include "perfcounters/roofline.h"

namespace gable::bench {
namespace {

using nlohmann::json;

json positive_or_null(double value) { return value > 0 ? json(value) : json(nullptr); }

json versions_record() {
  json versions{{"gable", GABLE_VERSION_STRING}};
  for (const DeviceInfo& info : devices()) {
    if (info.available && !info.library.empty()) versions[info.backend] = info.name;
  }
  return versions;
}

json pool_record(const PoolWindow& pool) { return pool ? json::array({pool.window.h, pool.window.w}) : json(nullptr); }

json epilogue_record(const Epilogue& epilogue) {
  const PoolWindow& pool = epilogue.max_pool;
  json record{{"bias", epilogue.bias}, {"activation", to_string(epilogue.activation)}, {"max_pool", pool_record(pool)}};
  if (pool && pool.stride != pool.window) record["max_pool_stride"] = {pool.stride.h, pool.stride.w};
  return record;
}

/// The name says it all: "avx2 fma f32" of dtype f32 is the unit "avx2 fma".
std::string unit_of(const perf::Ceiling& ceiling) {
  const std::string suffix = " " + ceiling.dtype;
  return ceiling.name.ends_with(suffix) ? ceiling.name.substr(0, ceiling.name.size() - suffix.size())
                                        : ceiling.isa_or_level;
}

json ceiling_record(const perf::Ceiling& ceiling) {
  const bool compute = ceiling.kind == "compute";
  json record{{"device", "cpu"},
              {"name", fmt::format("{}, {} thread{}", ceiling.name, ceiling.threads, ceiling.threads == 1 ? "" : "s")},
              {"kind", ceiling.kind},
              {"dtype", ceiling.dtype},
              {"threads", ceiling.threads},
              {"value", ceiling.value},
              {"q1", ceiling.q1},
              {"q3", ceiling.q3},
              {"runs", ceiling.runs},
              {"theoretical", positive_or_null(ceiling.theoretical)},
              {"formula", ceiling.formula}};
  record[compute ? "isa" : "level"] = compute ? unit_of(ceiling) : ceiling.isa_or_level;
  if (!ceiling.note.empty()) record["note"] = ceiling.note;
  if (ceiling.working_set_bytes > 0) record["working_set_bytes"] = ceiling.working_set_bytes;
  return record;
}

/// The level that tensors of `bytes` stay in between warm runs. Threads share the work, so their own caches add up.
std::optional<double>& home_of(perf::Traffic& traffic, double bytes, int threads, const perf::Machine& machine) {
  const auto fits = [&](std::size_t cache, int instances) { return bytes <= static_cast<double>(cache) * instances; };
  const int caches = std::min(threads, machine.cores_available);
  if (fits(machine.l1d_bytes, caches)) return traffic.l1;
  if (fits(machine.l2_bytes, caches)) return traffic.l2;
  if (fits(machine.l3_bytes, machine.l3_instances)) return traffic.l3;
  return traffic.dram;
}

/// The levels that were counted or simulated; none of an analytic row.
perf::Traffic measured_traffic(const json& levels) {
  perf::Traffic traffic;
  const auto set = [&](const char* level, std::optional<double>& bytes) {
    const auto entry = levels.find(level);
    if (entry != levels.end() && (*entry)["source"] != "analytic") bytes = (*entry)["bytes"].get<double>();
  };
  set("l1", traffic.l1);
  set("l2", traffic.l2);
  set("l3", traffic.l3);
  set("dram", traffic.dram);
  return traffic;
}

perf::RooflinePoint point_of(const json& measurement, const perf::Machine& machine) {
  perf::RooflinePoint point;
  point.flop = measurement["W"]["flop"];
  point.bytes = measured_traffic(measurement["Q"]);
  const perf::Traffic& bytes = point.bytes;
  if (!bytes.dram && !bytes.l3 && !bytes.l2 && !bytes.l1) {
    const double least = measurement["Q"]["dram"]["bytes"];
    const bool warm = measurement["cache"] == "warm";
    (warm ? home_of(point.bytes, least, measurement["threads"], machine) : point.bytes.dram) = least;
  }
  point.seconds = measurement["T"]["seconds"];
  point.dtype = measurement["dtype"];
  point.threads = measurement["threads"];
  return point;
}

/// For the rules that need no ceiling.
perf::RooflinePoint gpu_point_of(const json& measurement) {
  perf::RooflinePoint point;
  point.flop = measurement["W"]["flop"];
  point.bytes = measured_traffic(measurement["Q"]);
  point.seconds = measurement["T"]["seconds"];
  return point;
}

}  // namespace

json machine_record(const perf::Machine& machine, const std::string& command) {
  json caches = json::object();
  if (machine.l1d_bytes > 0) caches["l1d"] = machine.l1d_bytes;
  if (machine.l2_bytes > 0) caches["l2"] = machine.l2_bytes;
  if (machine.l3_bytes > 0) caches["l3"] = machine.l3_bytes;
  json record{{"cpu", machine.cpu_model},
              {"vendor", machine.vendor},
              {"architecture", machine.architecture},
              {"cores", machine.cores_available},
              {"threads", machine.threads_available},
              {"threads_online", machine.threads_online},
              {"caches", caches},
              {"simd", machine.simd},
              {"clock_hz", machine.clock_hz},
              {"memory_bytes", machine.memory_bytes},
              {"compiler", machine.compiler},
              {"os", machine.os},
              {"kernel", machine.kernel},
              {"date", machine.date},
              {"command", command},
              {"versions", versions_record()}};
  if (machine.virtual_machine) record["hypervisor"] = machine.hypervisor;
  if (!machine.notes.empty()) record["notes"] = machine.notes;
  for (const DeviceInfo& info : devices()) {
    if (info.available && info.memory.kind == Memory::Kind::cuda && !record.contains("gpu")) record["gpu"] = info.name;
  }
  return record;
}

json ceilings_record(const std::vector<perf::Ceiling>& ceilings) {
  json list = json::array();
  for (const perf::Ceiling& ceiling : ceilings) list.push_back(ceiling_record(ceiling));
  return list;
}

json case_record(const Case& one) {
  json record{{"suite", one.suite},
              {"name", one.name},
              {"op", name(one.op)},
              {"problem", descriptor(one.op)},
              {"dtype", to_string(dtype_of(one.op))}};
  if (has_math(one.op)) record["math"] = to_string(math_of(one.op));
  if (const auto* conv = std::get_if<Conv2d>(&one.op)) {
    record["layout"] = to_string(conv->layout);
    record["epilogue"] = epilogue_record(conv->epilogue);
  }
  if (const auto* pool = std::get_if<MaxPool>(&one.op)) record["layout"] = to_string(pool->layout);
  if (const auto* add = std::get_if<Add>(&one.op); add != nullptr && add->tile) {
    record["tile"] = {add->tile.row_chunk, add->tile.free_dim};
  }
  return record;
}

json refusal_record(const Refusal& refusal) {
  json record{{"suite", refusal.suite}, {"name", refusal.name},     {"problem", refusal.problem},
              {"dtype", refusal.dtype}, {"device", refusal.device}, {"reason", refusal.reason}};
  if (!refusal.math.empty()) record["math"] = refusal.math;
  return record;
}

json measurement_record(const Case& one, const OpRunner& runner, const perf::Timing& timing, perf::Cache cache) {
  const Work least = runner.plan().work();
  json record = case_record(one);
  record["device"] = runner.device().uri;
  record["device_name"] = runner.device().device.info().name;
  record["kernel"] = runner.plan().kernel();
  record["fused"] = runner.plan().fused();
  record["cache"] = cache == perf::Cache::warm ? "warm" : "cold";
  record["threads"] = runner.device().gpu ? json(nullptr) : json(runner.device().threads);
  record["T"] = {{"source", runner.time_source()},
                 {"seconds", timing.seconds},
                 {"q1", timing.q1},
                 {"q3", timing.q3},
                 {"fastest", timing.fastest},
                 {"runs", timing.runs},
                 {"calls_per_run", timing.calls_per_run}};
  record["W"] = {{"source", "analytic"}, {"flop", least.flop}, {"analytic", least.flop}};
  record["Q"] = {{"dram", {{"source", "analytic"}, {"bytes", least.bytes()}, {"analytic", least.bytes()}}}};
  record["intensity"] = least.flop / least.bytes();
  record["gflops"] = least.flop / timing.seconds / 1e9;
  record["bound"] = nullptr;
  record["percent_of_roof"] = nullptr;
  record["max_error"] = nullptr;
  record["error_bound"] = nullptr;
  return record;
}

double judge_measurements(json& measurements, const std::vector<perf::Ceiling>& ceilings,
                          const perf::Machine& machine) {
  double highest = 0;
  for (json& record : measurements) {
    const bool gpu = report::is_gpu(record["device"]);
    const perf::Verdict verdict = perf::judge(gpu ? std::vector<perf::Ceiling>{} : ceilings,
                                              gpu ? gpu_point_of(record) : point_of(record, machine));
    record.erase("flags");
    if (!verdict.flags.empty()) record["flags"] = verdict.flags;
    if (gpu || ceilings.empty() || verdict.bound.empty()) continue;
    record["bound"] = verdict.bound;
    record["percent_of_roof"] = verdict.percent_of_roof;
    record["roof"] = verdict.roof;
    highest = std::max(highest, verdict.percent_of_roof);
  }
  return highest;
}

json study_record(json machine, json ceilings, json measurements, const std::vector<Refusal>& refused) {
  json list = json::array();
  for (const Refusal& refusal : refused) list.push_back(refusal_record(refusal));
  return {{"schema_version", report::kSchemaVersion},
          {"machine", std::move(machine)},
          {"ceilings", std::move(ceilings)},
          {"measurements", std::move(measurements)},
          {"refused", std::move(list)}};
}

}  // namespace gable::bench
