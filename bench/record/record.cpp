// See record.h. W and Q are analytic at first: exact FLOP from the shapes, and the least bytes that any implementation
// moves. counting.h puts what was counted in their place.
#include "bench/record/record.h"

#include <fmt/format.h>
#include <gable/version.h>

#include <algorithm>

#include "bench/report/schema.h"
#include "bench/report/study.h"
#include "bench/report/text.h"
#include "bench/workloads/problem.h"
#include "perfcounters/roofline/roofline.h"

namespace gable::bench {
namespace {

using nlohmann::json;

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

void add_device(json& record, const OpenDevice& device, int threads) {
  record["device"] = device.uri;
  record["device_name"] = device.device.info().name;
  record["threads"] = device.gpu ? json(nullptr) : json(threads);
}

/// T, W and Q; nothing is known about roofs and errors yet.
void add_numbers(json& record, const perf::Timing& timing, const char* time_source, double flop, double bytes) {
  record["T"] = {{"source", time_source},
                 {"seconds", timing.seconds},
                 {"q1", timing.q1},
                 {"q3", timing.q3},
                 {"fastest", timing.fastest},
                 {"runs", timing.runs},
                 {"calls_per_run", timing.calls_per_run}};
  record["W"] = {{"source", "analytic"}, {"flop", flop}, {"analytic", flop}};
  record["Q"] = {{"dram", {{"source", "analytic"}, {"bytes", bytes}, {"analytic", bytes}}}};
  record["intensity"] = flop / bytes;
  record["gflops"] = flop / timing.seconds / 1e9;
  for (const char* unknown : {"bound", "percent_of_roof", "max_error", "error_bound"}) record[unknown] = nullptr;
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

bool is_empty(const perf::Traffic& bytes) { return !bytes.l1 && !bytes.l2 && !bytes.l3 && !bytes.dram; }

/// The products of bf16 parts that stand for one of the dtype's. f16 on AMX is always made of parts, of three products
/// where that is exact enough and else of four.
int products_of(const json& measurement, const std::string& math) {
  if (math == "split3") return 3;
  if (math == "split6") return 6;
  return measurement["dtype"] == "f16" && measurement.value("kernel", "") == "amx" ? 3 : 1;
}

/// With the traffic that was measured, if any was.
perf::RooflinePoint point_of(const json& measurement) {
  const std::string math = measurement.value("math", "strict");
  perf::RooflinePoint point;
  point.flop = measurement["W"]["flop"];
  point.bytes = measured_traffic(measurement["Q"]);
  point.seconds = measurement["T"]["seconds"];
  point.dtype = math == "tf32" ? math : measurement["dtype"].get<std::string>();
  point.products = products_of(measurement, math);
  return point;
}

perf::Verdict judge_on_cpu(const json& measurement, const std::vector<perf::Ceiling>& ceilings,
                           const perf::Machine& machine) {
  perf::RooflinePoint point = point_of(measurement);
  point.threads = measurement["threads"];
  if (is_empty(point.bytes)) {
    const double least = measurement["Q"]["dram"]["bytes"];
    const bool warm = measurement["cache"] == "warm";
    (warm ? home_of(point.bytes, least, point.threads, machine) : point.bytes.dram) = least;
  }
  return perf::judge(ceilings, point);
}

/// Without ceilings: the rules that need none.
perf::Verdict judge_on_gpu(const json& measurement, const GpuCeilings* gpu) {
  perf::RooflinePoint point = point_of(measurement);
  if (gpu == nullptr) return perf::judge({}, point);
  if (is_empty(point.bytes)) {
    const double least = measurement["Q"]["dram"]["bytes"];
    const bool in_l2 = measurement["cache"] == "warm" && least <= gpu->l2_bytes;
    (in_l2 ? point.bytes.l2 : point.bytes.dram) = least;
  }
  perf::RooflineOptions options;
  if (gpu->overhead_seconds > 0) options.overhead_seconds = gpu->overhead_seconds;
  return perf::judge(gpu->roofs, point, options);
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
  add_device(record, runner.device(), runner.device().threads);
  record["kernel"] = runner.plan().kernel();
  record["fused"] = runner.plan().fused();
  record["cache"] = cache == perf::Cache::warm ? "warm" : "cold";
  add_numbers(record, timing, runner.time_source(), least.flop, least.bytes());
  return record;
}

json bandwidth_record(const MeasuredBandwidth& measured) {
  const BandwidthCase& one = *measured.one;
  const Mover& mover = *measured.mover;
  json record{{"suite", one.suite},
              {"name", one.name},
              {"op", to_string(one.movement)},
              {"problem", report::bytes_text(static_cast<double>(one.bytes))},
              {"dtype", "f32"},
              {"working_set_bytes", one.bytes}};
  add_device(record, *measured.device, mover.threads);
  record["kernel"] = mover.kernel;
  record["fused"] = false;
  record["cache"] = "warm";
  add_numbers(record, measured.timing, mover.time_source, mover.flop, mover.bytes);
  return record;
}

json graph_record(const MeasuredGraph& measured) {
  const GraphCase& one = *measured.one;
  json record{{"suite", one.suite}, {"name", one.name}, {"op", "pagerank"}, {"problem", problem_of(one)},
              {"dtype", "f32"},     {"fused", false},   {"cache", "warm"},  {"kernel", measured.details.kernel}};
  add_device(record, *measured.device, measured.device->threads);
  add_numbers(record, measured.timing, "event", measured.details.flop, measured.details.bytes);
  record["edges_per_second"] = static_cast<double>(one.edges) / measured.timing.seconds;
  record["max_error"] = measured.max_error;
  record["error_bound"] = measured.error_bound;
  return record;
}

double judge_measurements(json& measurements, const MachineCeilings& ceilings, const perf::Machine& machine) {
  double highest = 0;
  for (json& record : measurements) {
    if (record.contains("working_set_bytes")) continue;  // bandwidths are roofs themselves
    const std::string device = record["device"];
    const bool on_gpu = report::is_gpu(device);
    const GpuCeilings* gpu = on_gpu ? ceilings.of_gpu(device) : nullptr;
    const perf::Verdict verdict = on_gpu ? judge_on_gpu(record, gpu) : judge_on_cpu(record, ceilings.cpu, machine);
    record.erase("flags");
    if (!verdict.flags.empty()) record["flags"] = verdict.flags;
    const bool has_roof = on_gpu ? gpu != nullptr : !ceilings.cpu.empty();
    if (!has_roof || verdict.bound.empty()) continue;
    record["bound"] = verdict.bound;
    record["percent_of_roof"] = verdict.percent_of_roof;
    record["roof"] = verdict.roof;
    highest = std::max(highest, verdict.percent_of_roof);
  }
  return highest;
}

json study_record(json machine, const MachineCeilings& ceilings, json measurements,
                  const std::vector<Refusal>& refused) {
  json list = json::array();
  for (const Refusal& refusal : refused) list.push_back(refusal_record(refusal));
  json record{{"schema_version", report::kSchemaVersion},
              {"machine", std::move(machine)},
              {"ceilings", ceilings_record(ceilings)},
              {"measurements", std::move(measurements)},
              {"refused", std::move(list)}};
  json rates = rates_record(ceilings);
  if (!rates.empty()) record["rates"] = std::move(rates);
  return record;
}

}  // namespace gable::bench
