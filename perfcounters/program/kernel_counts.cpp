// See kernel_counts.h.
#include "perfcounters/program/kernel_counts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

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
    if (record.most_instructions <= 0) return;
    least_ = most_ > 0 ? std::min(least_, record.least_instructions) : record.least_instructions;
    most_ = std::max(most_, record.most_instructions);
  }

  GpuCounts per_call() const {
    GpuCounts counts;
    for (const auto& [metric, sum] : sums_) counts[metric] = sum.first / static_cast<double>(sum.second);
    return counts;
  }

  /// Most instructions of a call over the least; 1 where they are not known.
  double spread() const { return least_ > 0 ? most_ / least_ : 1; }

  std::int64_t calls() const {
    std::int64_t most = 0;
    for (const auto& [metric, sum] : sums_) most = std::max(most, sum.second);
    return most;
  }

 private:
  std::map<std::string, std::pair<double, std::int64_t>> sums_;
  double least_ = 0, most_ = 0;
};

/// What was counted of a kernel's launches with the same arguments.
struct CountedLaunches {
  Sums sums{};
  std::string reason{};  ///< why some of its launches were not counted
};

/// What was counted of a point, per call.
struct PointCounts {
  GpuCounts counts{};
  std::int64_t calls = 0;
  std::string reason{};
  std::string differ{};  ///< says how its launches differ; empty: they don't
};

using TimesByArguments = std::map<std::uint64_t, std::vector<CallTimes>>;
using CountedByArguments = std::map<std::uint64_t, CountedLaunches>;

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

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
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

void set_counts(const PointCounts& counted, KernelPoint& point) {
  if (counted.counts.empty()) {
    refuse_all(counted.reason.empty()
                   ? "the run that counted launched no such kernel from this region with this grid and block"
                   : counted.reason,
               point);
    return;
  }
  point.counted_calls = counted.calls;
  point.lacks_work = !has_instrumented(counted.counts);
  point.lacks_traffic = !gpu_counted(gpu_traffic_terms(Metric::dram_bytes), counted.counts);
  set_work(counted.counts, point);
  set_traffic(counted.counts, point);
  const auto add_note = [&](const std::string& note) {
    for (auto& [metric, quantity] : point.quantities) quantity.note += (quantity.note.empty() ? "" : "; ") + note;
  };
  if (!counted.reason.empty()) add_note("not of all its launches: " + counted.reason);
  if (!counted.differ.empty()) add_note(counted.differ);
}

// ---- launches of one kernel, grid and block that do different work -------------------------------------------------

constexpr double kSameWork = 0.01, kSameTraffic = 0.05;  // relative
constexpr double kLittleTraffic = 65536;                 // bytes in L2: code and constants come and go
constexpr double kSameInstructions = 0.1;                // waiting loops take some

bool alike(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance * std::max(a, b); }

/// By all that was counted of both.
bool same_work(const GpuCounts& a, const GpuCounts& b) {
  if (has_instrumented(a) && has_instrumented(b)) {
    const double one = gpu_work(a).value.value_or(0), other = gpu_work(b).value.value_or(0);
    if (!alike(one, other, kSameWork)) return false;
  }
  const auto traffic = [](const GpuCounts& counts) {
    return weighted_sum(gpu_traffic_terms(Metric::l2_bytes), counts).value;
  };
  const auto one = traffic(a), other = traffic(b);
  if (one && other && std::abs(*one - *other) > kLittleTraffic && !alike(*one, *other, kSameTraffic)) return false;
  const auto some = a.find(kHardwareInstructions), more = b.find(kHardwareInstructions);
  return some == a.end() || more == b.end() || alike(some->second, more->second, kSameInstructions);
}

std::int64_t calls_of(const std::vector<CallTimes>& records) {
  std::int64_t calls = 0;
  for (const CallTimes& times : records) calls += times.calls;
  return calls;
}

std::int64_t calls_of(const TimesByArguments& times) {
  std::int64_t calls = 0;
  for (const auto& [arguments, records] : times) calls += calls_of(records);
  return calls;
}

/// Launches with these arguments do the same work, as far as it is known.
struct Alike {
  std::vector<std::uint64_t> timed{}, counted{};
};

/// The arguments of a kernel's launches in groups of the same work.
std::vector<Alike> grouped(const TimesByArguments& times, const CountedByArguments& counted) {
  std::vector<Alike> groups;
  std::vector<GpuCounts> firsts;  // of each group
  Alike others;                   // not counted
  for (const auto& [arguments, records] : times) {
    const auto found = counted.find(arguments);
    const GpuCounts counts = found != counted.end() ? found->second.sums.per_call() : GpuCounts{};
    if (counts.empty()) {
      others.timed.push_back(arguments);
      continue;
    }
    const auto same =
        std::find_if(firsts.begin(), firsts.end(), [&](const GpuCounts& first) { return same_work(first, counts); });
    const auto at = static_cast<std::size_t>(same - firsts.begin());
    if (same == firsts.end()) {
      firsts.push_back(counts);
      groups.emplace_back();
    }
    groups[at].timed.push_back(arguments);
    groups[at].counted.push_back(arguments);
  }
  if (others.timed.empty()) return groups;
  if (groups.size() == 1) {
    for (const std::uint64_t arguments : others.timed) {
      groups.front().timed.push_back(arguments);
      if (counted.contains(arguments)) groups.front().counted.push_back(arguments);  // for its reason
    }
    return groups;
  }
  // Whichever of the counted ones they are like.
  for (const auto& [arguments, one] : counted) others.counted.push_back(arguments);
  groups.push_back(others);
  return groups;
}

/// Means over the group's launches.
PointCounts counts_of(const Alike& group, const TimesByArguments& times, const CountedByArguments& counted) {
  PointCounts point;
  GpuCounts sums;
  std::map<std::string, double> weights;
  double least = 0, most = 0, spread = 1;
  for (const std::uint64_t arguments : group.counted) {
    const CountedLaunches& one = counted.at(arguments);
    if (!one.reason.empty()) point.reason = one.reason;
    const GpuCounts counts = one.sums.per_call();
    if (counts.empty()) continue;
    const auto timed = times.find(arguments);
    const double weight = timed != times.end() ? static_cast<double>(calls_of(timed->second)) : 1;
    for (const auto& [metric, value] : counts) {
      sums[metric] += weight * value;
      weights[metric] += weight;
    }
    point.calls += one.sums.calls();
    spread = std::max(spread, one.sums.spread());
    if (const auto found = counts.find(kHardwareInstructions); found != counts.end() && found->second > 0) {
      least = least > 0 ? std::min(least, found->second) : found->second;
      most = std::max(most, found->second);
    }
  }
  for (const auto& [metric, sum] : sums) point.counts[metric] = sum / weights[metric];
  if (least > 0) spread = std::max(spread, most / least);
  if (spread > 1 + 2 * kSameInstructions) {
    point.differ = "its launches differ (the longest counted one executes " + rounded(spread) +
                   " times the instructions of the shortest): T, W and Q are means, W and Q of " +
                   std::to_string(point.calls) + " counted launches";
  }
  return point;
}

using TimesByKernel = std::map<Key, TimesByArguments>;

TimesByKernel times_of(const std::vector<KernelRecord>& records) {
  TimesByKernel times;
  for (const KernelRecord& record : records) {
    if (record.times.calls > 0) times[key_of(record)][record.arguments].push_back(record.times);
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

/// The times alone of launches with these arguments; those of nodes of a graph may not be known. Null: none.
const std::vector<CallTimes>* alone_of(std::uint64_t arguments, const TimesByArguments& alone) {
  if (const auto found = alone.find(arguments); found != alone.end()) return &found->second;
  return arguments == 0 && alone.size() == 1 ? &alone.begin()->second : nullptr;
}

/// T of a group: each record's, or that of the same launches alone.
CallTimes times_of(const Alike& group, const TimesByArguments& together, const TimesByArguments& alone) {
  std::vector<CallTimes> all;
  for (const std::uint64_t arguments : group.timed) {
    const CallTimes times = merge_times(together.at(arguments));
    const std::vector<CallTimes>* one = alone_of(arguments, alone);
    all.push_back(one != nullptr ? shorter(times, merge_times(*one)) : times);
  }
  return merge_times(all);
}

void sort_by_total_time(std::vector<KernelPoint>& points) {
  std::stable_sort(points.begin(), points.end(),
                   [](const KernelPoint& a, const KernelPoint& b) { return a.times.seconds > b.times.seconds; });
}

/// Tells points of one kernel, grid and block apart: the longest total time is 1.
void number(std::vector<KernelPoint>& points) {
  if (points.size() < 2) return;
  sort_by_total_time(points);
  for (std::size_t i = 0; i < points.size(); ++i) points[i].work = static_cast<int>(i) + 1;
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
  std::map<Key, std::int64_t> graph_calls;
  for (const KernelRecord& record : timed) graph_calls[key_of(record)] += record.graph_calls;
  std::map<Key, CountedByArguments> counts;
  for (const KernelRecord& record : counted) {
    CountedLaunches& kernel = counts[key_of(record)][record.arguments];
    kernel.sums.add(record);
    if (!record.reason.empty()) kernel.reason = record.reason;
  }
  const auto untimed =
      std::count_if(counts.begin(), counts.end(), [&](const auto& c) { return !times.contains(c.first); });
  KernelPoints points;
  for (const auto& [key, by_arguments] : times) {
    const auto found = counts.find(key);
    const CountedByArguments& counted_ones = found != counts.end() ? found->second : CountedByArguments{};
    const auto one_alone = times_alone.find(key);
    const TimesByArguments& alone_ones = one_alone != times_alone.end() ? one_alone->second : TimesByArguments{};
    std::vector<KernelPoint> of_key;
    for (const Alike& group : grouped(by_arguments, counted_ones)) {
      KernelPoint point{
          .gpu_name = key.gpu_name, .name = key.name, .region = key.region, .grid = key.grid, .block = key.block};
      point.times = times_of(group, by_arguments, alone_ones);
      const bool are_alone = std::all_of(group.timed.begin(), group.timed.end(), [&](std::uint64_t arguments) {
        return alone_of(arguments, alone_ones) != nullptr;
      });
      point.instrumented = graph_calls[key] == calls_of(by_arguments) && !are_alone;
      const PointCounts of_group = counts_of(group, by_arguments, counted_ones);
      set_counts(of_group, point);
      if (!of_group.differ.empty()) {
        point.mean = true;
        point.times.median = point.times.seconds / static_cast<double>(point.times.calls);
      }
      of_key.push_back(std::move(point));
    }
    number(of_key);
    std::move(of_key.begin(), of_key.end(), std::back_inserter(points.kernels));
  }
  sort_by_total_time(points.kernels);
  if (untimed > 0) {
    points.notes.push_back(std::to_string(untimed) +
                           " kernels (or grids or regions of them) ran only where they were counted, not where they "
                           "were timed, and were left out");
  }
  return points;
}

std::optional<GraphSlowdown> graph_slowdown(const std::vector<KernelRecord>& timed,
                                            const std::vector<KernelRecord>& alone) {
  const auto by_graph = [](const std::vector<KernelRecord>& records) {
    std::map<std::pair<std::string, std::uint64_t>, std::vector<CallTimes>> graphs;
    for (const KernelRecord& record : records) graphs[{record.gpu_name, record.graph}].push_back(record.times);
    return graphs;
  };
  const auto graphs = by_graph(timed), graphs_alone = by_graph(alone);
  GraphSlowdown slowdown;
  double seconds = 0, seconds_alone = 0;
  for (const auto& [graph, records] : graphs) {
    const auto found = graphs_alone.find(graph);
    if (found == graphs_alone.end()) return std::nullopt;
    const CallTimes times = merge_times(records);
    const double one = times.median, other = merge_times(found->second).median;
    if (!(one > 0) || !(other > 0)) return std::nullopt;
    seconds += static_cast<double>(times.calls) * one;
    seconds_alone += static_cast<double>(times.calls) * other;
    slowdown.most = std::max(slowdown.most, one / other);
  }
  if (seconds_alone <= 0 || seconds < seconds_alone) return std::nullopt;
  slowdown.mean = seconds / seconds_alone;
  return slowdown;
}

void divide_graph_times(double slowdown, std::vector<KernelPoint>& kernels) {
  for (KernelPoint& kernel : kernels) {
    if (!kernel.instrumented) continue;
    CallTimes& times = kernel.times;
    for (double* seconds : {&times.seconds, &times.fastest, &times.q1, &times.median, &times.q3, &times.slowest}) {
      *seconds /= slowdown;
    }
  }
  sort_by_total_time(kernels);
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
