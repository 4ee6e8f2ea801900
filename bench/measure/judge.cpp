// See judge.h.
#include "bench/measure/judge.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "bench/measure/insight.h"
#include "bench/workloads/problem.h"
#include "perfcounters/roofline/roofline.h"

namespace gable::bench {
namespace {

/// The level in which tensors of `bytes` stay between warm runs. Threads share the work, so their private caches add
/// up.
std::optional<double>& home_of(perf::Traffic& traffic, double bytes, int threads, const perf::Machine& machine) {
  const auto fits = [&](std::size_t cache, int instances) { return bytes <= static_cast<double>(cache) * instances; };
  const int caches = std::min(threads, machine.threads.cores);
  if (fits(machine.caches.l1d.bytes, caches)) return traffic.l1;
  if (fits(machine.caches.l2.bytes, caches)) return traffic.l2;
  if (fits(machine.caches.l3.bytes, machine.caches.l3.instances)) return traffic.l3;
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

/// The share of the pairs of an output and a tap of one axis that lie inside the image.
double inside_share(std::int64_t size, std::int64_t outputs, std::int64_t taps, std::int64_t stride,
                    std::int64_t padding, std::int64_t dilation) {
  double inside = 0;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const std::int64_t before = padding - tap * dilation;  // the first output reads at minus this
    const std::int64_t first = before > 0 ? (before + stride - 1) / stride : 0;
    const std::int64_t last = size - 1 + before >= 0 ? std::min(outputs - 1, (size - 1 + before) / stride) : -1;
    inside += static_cast<double>(std::max<std::int64_t>(0, last - first + 1));
  }
  return inside / (static_cast<double>(outputs) * static_cast<double>(taps));
}

/// The share of a convolution's W that are taps in the padding. 0 where the descriptor can't be read.
double padding_share(const Identity& identity) {
  constexpr std::int64_t kMaxTaps = 1024;
  try {
    const Conv2d conv = parse_problem(identity.problem).conv;
    const std::int64_t rows = conv.weights[2], columns = conv.weights[3];
    if (rows > kMaxTaps || columns > kMaxTaps) return 0;
    const Shape output = conv_output_shape(conv);
    return 1 - inside_share(conv.input[2], output[2], rows, conv.stride.h, conv.padding.top, conv.dilation.h) *
                   inside_share(conv.input[3], output[3], columns, conv.stride.w, conv.padding.left, conv.dilation.w);
  } catch (const Error&) {
    return 0;
  }
}

/// What a kernel may leave out of the W that the definition has.
std::string work_doubt_of(const Row& row) {
  constexpr double kMinShare = 0.01;
  if (!row.work.is_analytic() || row.identity.op != "conv2d") return "";
  const double padding = padding_share(row.identity);
  const bool gable_own = row.place.device.starts_with("cpu") || row.place.device.starts_with("cuda");
  std::string doubt;
  if (padding >= kMinShare)
    doubt = fmt::format("{:.0f} % of W are taps in the padding, which kernels may leave out", 100 * padding);
  if (gable_own) return doubt;
  return doubt + (doubt.empty() ? "" : ", or ") +
         "the library's kernel may multiply less than the definition (Winograd)";
}

/// Analytic values are what the shapes say. A kernel may do less than they say, and leave data where they were.
perf::RooflineOptions options_for(const Row& row) {
  perf::RooflineOptions options;
  options.work_doubt = work_doubt_of(row);
  if (row.farthest().is_analytic() && row.place.cache == "warm")
    options.traffic_doubt = "a part of its tensors may stay in a nearer cache";
  return options;
}

/// T below which a row far from every roof is bound by overhead: measured, where the row ran with twice the batch.
std::optional<double> overhead_limit(const Row& row, std::optional<double> of_a_call) {
  constexpr double kMostly = 0.5;
  const auto fixed = row.scaling ? row.scaling->fixed_share() : std::nullopt;
  if (!fixed) return of_a_call;
  return *fixed > kMostly ? std::numeric_limits<double>::infinity() : 0;
}

perf::Verdict judge_on_cpu(const Row& row, const MachineCeilings& ceilings, const perf::Machine& machine) {
  perf::RooflinePoint point = point_of(row);
  point.threads = row.place.running_threads().value_or(0);
  if (is_empty(point.bytes)) {
    const double least = row.farthest().value;
    const bool warm = row.place.cache == "warm";
    (warm ? home_of(point.bytes, least, point.threads, machine) : point.bytes.dram) = least;
  }
  perf::RooflineOptions options = options_for(row);
  if (const auto limit = overhead_limit(row, overhead_seconds(row, ceilings))) options.overhead_seconds = *limit;
  return perf::judge(ceilings.cpu, point, options);
}

/// Applies the rules that need no ceilings.
perf::Verdict judge_on_gpu(const Row& row, const GpuCeilings* gpu) {
  perf::RooflinePoint point = point_of(row);
  if (gpu == nullptr) return perf::judge({}, point);
  if (is_empty(point.bytes)) {
    const double least = row.farthest().value;
    const bool in_l2 = row.place.cache == "warm" && least <= gpu->l2_bytes;
    (in_l2 ? point.bytes.l2 : point.bytes.dram) = least;
  }
  perf::RooflineOptions options = options_for(row);
  const auto of_a_launch = gpu->overhead_seconds > 0 ? std::optional(gpu->overhead_seconds) : std::nullopt;
  if (const auto limit = overhead_limit(row, of_a_launch)) options.overhead_seconds = *limit;
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
