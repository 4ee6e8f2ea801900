// See judge.h.
#include "bench/measure/judge.h"

#include <algorithm>

#include "bench/measure/insight.h"
#include "perfcounters/roofline/roofline.h"

namespace gable::bench {
namespace {

/// The level in which tensors of `bytes` stay between warm runs. Threads share the work, so their private caches add
/// up.
std::optional<double>& home_of(perf::Traffic& traffic, double bytes, int threads, const perf::Machine& machine) {
  const auto fits = [&](std::size_t cache, int instances) { return bytes <= static_cast<double>(cache) * instances; };
  const int caches = std::min(threads, machine.cores_available);
  if (fits(machine.l1d_bytes, caches)) return traffic.l1;
  if (fits(machine.l2_bytes, caches)) return traffic.l2;
  if (fits(machine.l3_bytes, machine.l3_instances)) return traffic.l3;
  return traffic.dram;
}

/// The traffic of the levels that were counted or simulated; empty for an analytic row.
perf::Traffic measured_traffic(const Row& row) {
  perf::Traffic traffic;
  const auto set = [&](const char* level, std::optional<double>& bytes) {
    const auto found = row.traffic.find(level);
    if (found != row.traffic.end() && !found->second.is_analytic()) bytes = found->second.value;
  };
  set("l1", traffic.l1);
  set("l2", traffic.l2);
  set("l3", traffic.l3);
  set("dram", traffic.dram);
  return traffic;
}

bool is_empty(const perf::Traffic& bytes) { return !bytes.l1 && !bytes.l2 && !bytes.l3 && !bytes.dram; }

/// The row as a point of the roofline, with measured traffic if there is any.
perf::RooflinePoint point_of(const Row& row) {
  const ArithmeticFields& arithmetic = row.place.arithmetic;
  perf::RooflinePoint point;
  point.flop = row.work.value;
  point.bytes = measured_traffic(row);
  point.seconds = row.time.seconds;
  point.products = arithmetic.products;
  point.flop_by_dtype = arithmetic.flop;
  point.dtype = arithmetic.products > 1 || arithmetic.dtype.empty() ? row.identity.dtype : arithmetic.dtype;
  return point;
}

/// Analytic values are what the shapes say. A kernel may do less than they say, and leave data where they were.
perf::RooflineOptions options_for(const Row& row) {
  perf::RooflineOptions options;
  const bool gable_own = row.place.device.starts_with("cpu") || row.place.device.starts_with("cuda");
  if (row.work.is_analytic() && row.identity.op == "conv2d" && !gable_own)
    options.work_doubt = "the library's kernel may multiply less than the definition (Winograd)";
  if (row.traffic.at("dram").is_analytic() && row.place.cache == "warm")
    options.traffic_doubt = "a part of its tensors may stay in a nearer cache";
  return options;
}

perf::Verdict judge_on_cpu(const Row& row, const MachineCeilings& ceilings, const perf::Machine& machine) {
  perf::RooflinePoint point = point_of(row);
  point.threads = row.place.threads.value_or(0);
  if (is_empty(point.bytes)) {
    const double least = row.traffic.at("dram").value;
    const bool warm = row.place.cache == "warm";
    (warm ? home_of(point.bytes, least, point.threads, machine) : point.bytes.dram) = least;
  }
  perf::RooflineOptions options = options_for(row);
  if (const auto overhead = overhead_seconds(row, ceilings)) options.overhead_seconds = *overhead;
  return perf::judge(ceilings.cpu, point, options);
}

/// Applies the rules that need no ceilings.
perf::Verdict judge_on_gpu(const Row& row, const GpuCeilings* gpu) {
  perf::RooflinePoint point = point_of(row);
  if (gpu == nullptr) return perf::judge({}, point);
  if (is_empty(point.bytes)) {
    const double least = row.traffic.at("dram").value;
    const bool in_l2 = row.place.cache == "warm" && least <= gpu->l2_bytes;
    (in_l2 ? point.bytes.l2 : point.bytes.dram) = least;
  }
  perf::RooflineOptions options = options_for(row);
  if (gpu->overhead_seconds > 0) options.overhead_seconds = gpu->overhead_seconds;
  return perf::judge(gpu->roofs, point, options);
}

Verdict verdict_of(const Row& row, const MachineCeilings& ceilings, const perf::Machine& machine) {
  const GpuCeilings* gpu = row.on_gpu() ? ceilings.of_gpu(row.place.gpu) : nullptr;
  const perf::Verdict judged = row.on_gpu() ? judge_on_gpu(row, gpu) : judge_on_cpu(row, ceilings, machine);
  Verdict verdict{.flags = judged.flags};
  const bool has_roof = row.on_gpu() ? gpu != nullptr : !ceilings.cpu.empty();
  if (!has_roof || judged.bound.empty()) return verdict;
  verdict.bound = judged.bound;
  verdict.roof = judged.roof;
  verdict.percent_of_roof = judged.percent_of_roof;
  for (const perf::Limit& limit : judged.limits)
    verdict.limits.push_back({limit.bound, limit.roof, limit.value, 100 * limit.least_seconds / row.time.seconds});
  return verdict;
}

}  // namespace

double judge_rows(std::vector<Row>& rows, const MachineCeilings& ceilings, const perf::Machine& machine) {
  double highest = 0;
  for (Row& row : rows) {
    if (row.identity.only_moves_bytes()) continue;  // a bandwidth is a roof itself
    row.verdict = verdict_of(row, ceilings, machine);
    highest = std::max(highest, row.verdict.percent_of_roof.value_or(0));
  }
  set_insights(rows, ceilings);
  return highest;
}

}  // namespace gable::bench
