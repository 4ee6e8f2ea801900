// See timed_kernels.h.
#include "perfcounters/cupti/injection/timed_kernels.h"

#include <algorithm>

#include "perfcounters/cupti/demangle.h"

namespace gable::cupti {
namespace {

constexpr std::size_t kMaxSpans = 1 << 14;  // launches of graphs that are timed as a whole

const char* name_of(const CUpti_ActivityKernel9& record) { return record.name != nullptr ? record.name : "?"; }

std::array<int, 3> grid_of(const CUpti_ActivityKernel9& record) { return {record.gridX, record.gridY, record.gridZ}; }

std::array<int, 3> block_of(const CUpti_ActivityKernel9& record) {
  return {record.blockX, record.blockY, record.blockZ};
}

}  // namespace

int Names::number_of(std::string_view text) {
  const auto found = numbers_.find(std::string(text));
  if (found != numbers_.end()) return found->second;
  texts_.emplace_back(text);
  numbers_.emplace(texts_.back(), static_cast<int>(texts_.size()) - 1);
  return static_cast<int>(texts_.size()) - 1;
}

TimedKernels::TimedKernels(bool whole_graphs) : whole_graphs_(whole_graphs) {}

void TimedKernels::add(const CUpti_ActivityKernel9& record) {
  const std::lock_guard lock(mutex_);
  const Launch launch = launches_.get(record.correlationId);
  const bool is_timed = record.end > record.start;
  if (launch.graph != 0 && whole_graphs_) {
    // The record of its first kernel has the time of the whole graph, those of the others have none.
    if (is_timed) extend(record, launch);
    return;
  }
  if (!is_timed) {  // CUPTI gives 0 for kernels whose time it could not read
    ++untimed_;
    return;
  }
  Group group{.kernel = kernels_.number_of(name_of(record)),
              .region = regions_.number_of(launch.region != nullptr ? launch.region : ""),
              .gpu = static_cast<int>(record.deviceId),
              .grid = grid_of(record),
              .block = block_of(record)};
  group.arguments = first_arguments_.limited(group, arguments_of(record, launch));
  Times& times = times_[group];
  times.all.add(static_cast<double>(record.end - record.start) * 1e-9);
  if (launch.graph == 0) return;
  ++times.graph_calls;
  extend(record, launch);
}

void TimedKernels::lose(std::size_t records) {
  const std::lock_guard lock(mutex_);
  lost_ += records;
}

void TimedKernels::note_launch(std::uint32_t correlation, const char* region, std::uint64_t arguments) {
  if (*region != '\0' || arguments != 0) launches_.put(correlation, {region, arguments, 0});
}

void TimedKernels::note_unrolled_launch(std::uint32_t correlation, const char* region, KernelShape shape) {
  const std::lock_guard lock(mutex_);
  launches_.put(correlation, {region, 0, 0});
  unrolled_launches_[correlation].push_back(std::move(shape));
}

void TimedKernels::note_graph_launch(const CUpti_CallbackData& data, const char* region) {
  const std::lock_guard lock(mutex_);
  launches_.put(data.correlationId, {region, 0, graphs_.number(data)});
}

void TimedKernels::note_gpu(int gpu, const std::string& name) {
  const std::lock_guard lock(mutex_);
  gpus_[gpu] = name;
}

std::uint64_t TimedKernels::graph_number(const CUpti_CallbackData& data) const {
  const std::lock_guard lock(mutex_);
  return graphs_.number(data);
}

Launched TimedKernels::launched(const CUpti_CallbackData& data) const {
  const std::lock_guard lock(mutex_);
  return graphs_.launched(data);
}

std::vector<perf::KernelRecord> TimedKernels::records() const {
  const std::lock_guard lock(mutex_);
  std::vector<perf::KernelRecord> records;
  for (const auto& [group, times] : times_) records.push_back(record_of(group, times));
  append_graphs(records);
  return records;
}

std::vector<std::string> TimedKernels::losses() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> losses;
  if (lost_ > 0)
    losses.push_back("CUPTI lost " + std::to_string(lost_) + " records of kernels: their times are missing");
  if (untimed_ > 0)
    losses.push_back("CUPTI could not read the time of " + std::to_string(untimed_) +
                     " kernels: their GPU may have failed");
  return losses;
}

std::uint64_t TimedKernels::arguments_of(const CUpti_ActivityKernel9& record, const Launch& launch) {
  if (launch.graph != 0) return graphs_.arguments(record.graphNodeId);
  const auto unrolled = unrolled_launches_.find(record.correlationId);
  if (unrolled == unrolled_launches_.end()) return launch.arguments;
  const std::uint64_t arguments = take_unrolled(record, unrolled->second);
  if (unrolled->second.empty()) unrolled_launches_.erase(unrolled);
  return arguments;
}

/// The arguments of the first launch of the record's kernel among `shapes`, and takes it out of them.
std::uint64_t TimedKernels::take_unrolled(const CUpti_ActivityKernel9& record, std::vector<KernelShape>& shapes) {
  const auto found = std::find_if(shapes.begin(), shapes.end(), [&](const KernelShape& shape) {
    return shape.name == name_of(record) && shape.grid == grid_of(record) && shape.block == block_of(record);
  });
  if (found == shapes.end()) return 0;
  const std::uint64_t arguments = found->arguments;
  shapes.erase(found);
  return arguments;
}

void TimedKernels::extend(const CUpti_ActivityKernel9& record, const Launch& launch) {
  if (spans_.size() >= kMaxSpans && !spans_.contains(record.correlationId)) return;
  const Span first{launch.graph, record.start, record.end, static_cast<int>(record.deviceId)};
  Span& span = spans_.try_emplace(record.correlationId, first).first->second;
  span.begin = std::min<std::uint64_t>(span.begin, record.start);
  span.end = std::max<std::uint64_t>(span.end, record.end);
}

void TimedKernels::append_graphs(std::vector<perf::KernelRecord>& records) const {
  std::map<std::pair<std::uint64_t, int>, Reservoir> graphs;
  for (const auto& [correlation, span] : spans_)
    graphs[{span.graph, span.gpu}].add(static_cast<double>(span.end - span.begin) * 1e-9);
  for (const auto& [graph, times] : graphs) {
    perf::KernelRecord record;
    record.gpu = graph.second;
    record.gpu_name = gpu_name(graph.second);
    record.graph = graph.first;
    record.times = times.times();
    records.push_back(record);
  }
}

perf::KernelRecord TimedKernels::record_of(const Group& group, const Times& times) const {
  perf::KernelRecord record;
  record.gpu = group.gpu;
  record.gpu_name = gpu_name(group.gpu);
  record.name = demangled(kernels_.text_of(group.kernel).c_str());
  record.region = regions_.text_of(group.region);
  record.grid = group.grid;
  record.block = group.block;
  record.arguments = group.arguments;
  record.times = times.all.times();
  record.graph_calls = times.graph_calls;
  return record;
}

std::string TimedKernels::gpu_name(int gpu) const {
  const auto found = gpus_.find(gpu);
  return found != gpus_.end() ? found->second : "";
}

}  // namespace gable::cupti
