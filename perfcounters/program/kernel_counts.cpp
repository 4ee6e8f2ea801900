// See kernel_counts.h.
#include "perfcounters/program/kernel_counts.h"

#include <algorithm>

#include "perfcounters/sources/gpu_metrics.h"

namespace gable::perf {
namespace {

constexpr Metric kTraffic[] = {Metric::l1_bytes, Metric::l2_bytes, Metric::dram_bytes};

struct Key {
  std::string gpu_name, name, region;
  std::array<int, 3> grid{}, block{};
  auto operator<=>(const Key&) const = default;
};

Key key_of(const KernelRecord& record) {
  return {record.gpu_name, record.name, record.region, record.grid, record.block};
}

bool by_instrumented_code(const std::string& metric) { return metric.find("__sass_") != std::string::npos; }

bool has_instrumented(const GpuCounts& counts) {
  return std::any_of(counts.begin(), counts.end(), [](const auto& c) { return by_instrumented_code(c.first); });
}

/// Sums of metrics over calls. Each metric has its own number of calls, since not every run counts every metric.
class Sums {
 public:
  void add(const KernelRecord& record) {
    if (record.counted_calls <= 0) return;
    for (const auto& [metric, sum] : record.metrics) {
      auto& [all, calls] = sums_[metric];
      all += sum;
      calls += record.counted_calls;
    }
  }

  GpuCounts per_call() const {
    GpuCounts counts;
    for (const auto& [metric, sum] : sums_) counts[metric] = sum.first / static_cast<double>(sum.second);
    return counts;
  }

  std::int64_t calls() const {
    std::int64_t most = 0;
    for (const auto& [metric, sum] : sums_) most = std::max(most, sum.second);
    return most;
  }

 private:
  std::map<std::string, std::pair<double, std::int64_t>> sums_;
};

/// What was counted of a kernel.
struct Counted {
  Sums sums{};
  std::string reason{};  ///< why some of its launches were not counted
};

constexpr const char* kNotByType =
    "instructions of each type were not counted; of a kernel with 20 launches or fewer only traffic is";
constexpr const char* kUnits = "of the matrix units only: instructions of each type were not counted";

bool gpu_counted(std::span<const GpuTerm> terms, const GpuCounts& counts) {
  return std::any_of(terms.begin(), terms.end(), [&](const GpuTerm& term) { return counts.contains(term.metric); });
}

double matrix_work(const GpuCounts& counts) {
  double sum = 0;
  for (const auto& [part, value] : gpu_parts(gpu_work_terms(), counts)) {
    if (part.starts_with("tensor")) sum += value;
  }
  return sum;
}

std::string dominant(std::map<std::string, double> parts) {
  const auto most =
      std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most != parts.end() && most->second > 0 ? most->first : "";
}

Quantity work_of(const GpuCounts& counts) {
  if (has_instrumented(counts)) return gpu_work(counts);
  if (matrix_work(counts) <= 0) return {.reason = kNotByType};
  Quantity work = gpu_work(counts);
  work.note = kUnits;
  return work;
}

void set_work(const GpuCounts& counts, KernelPoint& point) {
  const Quantity& work = point.quantities[Metric::flop] = work_of(counts);
  if (!work.value) return;
  std::map<std::string, double> parts = gpu_parts(gpu_work_terms(), counts);
  // gpu_work() leaves constants out that were loaded by half-precision instructions.
  double sum = 0;
  for (const auto& [part, value] : parts) sum += value;
  if (const auto half = parts.find("f16"); half != parts.end() && sum - half->second >= half->second) parts.erase(half);
  point.work_type = dominant(parts);
  point.parts.merge(parts);
}

void set_traffic(const GpuCounts& counts, KernelPoint& point) {
  for (const Metric level : kTraffic) {
    point.quantities[level] = weighted_sum(gpu_traffic_terms(level), counts);
    point.parts.merge(gpu_parts(gpu_traffic_terms(level), counts));
  }
  point.parts.merge(gpu_parts(gpu_instruction_terms(), counts));
  point.parts.merge(gpu_parts(gpu_activity_terms(), counts));
  point.stalls = gpu_parts(gpu_stall_terms(), counts);
}

void refuse_all(const std::string& reason, KernelPoint& point) {
  point.quantities[Metric::flop] = {.reason = reason};
  for (const Metric level : kTraffic) point.quantities[level] = {.reason = reason};
}

/// `counted`: null where no record is of this kernel.
void set_counts(const Counted* counted, KernelPoint& point) {
  const GpuCounts counts = counted != nullptr ? counted->sums.per_call() : GpuCounts{};
  if (counts.empty()) {
    refuse_all(counted != nullptr && !counted->reason.empty()
                   ? counted->reason
                   : "the run that counted launched no such kernel from this region with this grid and block",
               point);
    return;
  }
  point.counted_calls = counted->sums.calls();
  point.lacks_work = !has_instrumented(counts);
  point.lacks_traffic = !gpu_counted(gpu_traffic_terms(Metric::dram_bytes), counts);
  set_work(counts, point);
  set_traffic(counts, point);
  if (counted->reason.empty()) return;
  for (auto& [metric, quantity] : point.quantities) {
    quantity.note += (quantity.note.empty() ? "" : "; ") + ("not of all its launches: " + counted->reason);
  }
}

using TimesByKernel = std::map<Key, std::vector<CallTimes>>;

TimesByKernel times_of(const std::vector<KernelRecord>& records) {
  TimesByKernel times;
  for (const KernelRecord& record : records) {
    if (record.times.calls > 0) times[key_of(record)].push_back(record.times);
  }
  return times;
}

/// Calls in CUDA graphs are among `together` only: their sum is made shorter as the median is.
CallTimes shorter(const CallTimes& together, const CallTimes& alone) {
  if (alone.median >= together.median) return together;
  CallTimes times = alone;
  times.calls = together.calls;
  times.seconds = together.seconds * alone.median / together.median;
  return times;
}

std::vector<double> knots_of(const CallTimes& times) {
  return {times.fastest, times.q1, times.median, times.q3, times.slowest};
}

/// The part of the calls that took at most `seconds`, by straight lines between the quartiles.
double part_below(const CallTimes& times, double seconds) {
  const std::vector<double> knots = knots_of(times);
  if (seconds < knots.front()) return 0;
  if (seconds >= knots.back()) return 1;
  double part = 0;
  for (std::size_t i = 0; i + 1 < knots.size(); ++i) {
    if (seconds >= knots[i + 1]) {
      part += 0.25;
    } else if (seconds > knots[i]) {
      part += 0.25 * (seconds - knots[i]) / (knots[i + 1] - knots[i]);
    }
  }
  return part;
}

double quantile_of(const std::vector<CallTimes>& records, const CallTimes& all, double part) {
  double low = all.fastest, high = all.slowest;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    double calls = 0;
    for (const CallTimes& times : records) calls += static_cast<double>(times.calls) * part_below(times, middle);
    (calls < part * static_cast<double>(all.calls) ? low : high) = middle;
  }
  return high;
}

}  // namespace

std::vector<std::string> kernel_metrics(bool deep) {
  std::vector<std::string> metrics;
  for (const Metric level : kTraffic) append_metrics(gpu_traffic_terms(level), metrics);
  append_metrics(gpu_work_terms(), metrics);
  metrics.emplace_back(kHardwareInstructions);
  metrics.emplace_back(kInstrumentedInstructions);
  if (deep) {
    append_metrics(gpu_instruction_terms(), metrics);
    append_metrics(gpu_activity_terms(), metrics);
    append_metrics(gpu_stall_terms(), metrics);
  }
  return metrics;
}

std::vector<std::string> kernel_work_metrics() {
  std::vector<std::string> metrics;
  append_metrics(gpu_traffic_terms(Metric::l1_bytes), metrics);
  append_metrics(gpu_work_terms(), metrics);
  metrics.emplace_back(kInstrumentedInstructions);
  return metrics;
}

std::vector<std::string> kernel_traffic_metrics() {
  std::vector<std::string> metrics;
  append_metrics(gpu_traffic_terms(Metric::l2_bytes), metrics);
  append_metrics(gpu_traffic_terms(Metric::dram_bytes), metrics);
  metrics.emplace_back(kHardwareInstructions);
  return metrics;
}

KernelPoints combine_kernels(const std::vector<KernelRecord>& timed, const std::vector<KernelRecord>& counted,
                             const std::vector<KernelRecord>& alone) {
  const TimesByKernel times = times_of(timed), times_alone = times_of(alone);
  std::map<Key, Counted> counts;
  for (const KernelRecord& record : counted) {
    Counted& kernel = counts[key_of(record)];
    kernel.sums.add(record);
    if (!record.reason.empty()) kernel.reason = record.reason;
  }
  const auto untimed =
      std::count_if(counts.begin(), counts.end(), [&](const auto& c) { return !times.contains(c.first); });
  KernelPoints points;
  for (const auto& [key, records] : times) {
    KernelPoint point{
        .gpu_name = key.gpu_name, .name = key.name, .region = key.region, .grid = key.grid, .block = key.block};
    point.times = merge_times(records);
    if (const auto one = times_alone.find(key); one != times_alone.end())
      point.times = shorter(point.times, merge_times(one->second));
    const auto found = counts.find(key);
    set_counts(found != counts.end() ? &found->second : nullptr, point);
    points.kernels.push_back(std::move(point));
  }
  std::stable_sort(points.kernels.begin(), points.kernels.end(),
                   [](const KernelPoint& a, const KernelPoint& b) { return a.times.seconds > b.times.seconds; });
  if (untimed > 0) {
    points.notes.push_back(std::to_string(untimed) +
                           " kernels (or grids or regions of them) ran only where they were counted, not where they "
                           "were timed, and were left out");
  }
  return points;
}

CallTimes merge_times(const std::vector<CallTimes>& records) {
  std::vector<CallTimes> used;
  std::copy_if(records.begin(), records.end(), std::back_inserter(used),
               [](const CallTimes& t) { return t.calls > 0; });
  if (used.empty()) return {};
  if (used.size() == 1) return used.front();
  CallTimes all = used.front();
  for (std::size_t i = 1; i < used.size(); ++i) {
    all.calls += used[i].calls;
    all.seconds += used[i].seconds;
    all.fastest = std::min(all.fastest, used[i].fastest);
    all.slowest = std::max(all.slowest, used[i].slowest);
  }
  const CallTimes extremes = all;
  all.q1 = quantile_of(used, extremes, 0.25);
  all.median = quantile_of(used, extremes, 0.5);
  all.q3 = quantile_of(used, extremes, 0.75);
  return all;
}

}  // namespace gable::perf
