// See gpu_counts.h.
#include "bench/program/gpu_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "bench/common/text.h"
#include "perfcounters/program/kernel_counts.h"
#include "perfcounters/program/launch.h"
#include "perfcounters/program/time_limit.h"

namespace gable::bench {
namespace {

using perf::Metric;

// Longest run of the kernels one after the other: times the run under the clock, and seconds on top.
constexpr double kSlowerAlone = 3, kSecondsAlone = 10;
constexpr double kLittle = 0.01;  // of the kernels' time: no run for that, and no word

std::string extent_text(const std::array<int, 3>& extent) {
  std::string text = std::to_string(extent[0]);
  if (extent[1] > 1 || extent[2] > 1) text += fmt::format("x{}", extent[1]);
  if (extent[2] > 1) text += fmt::format("x{}", extent[2]);
  return text;
}

/// "tensor bf16" -> "bf16": the record's types.
std::string dtype_of(const std::string& work_type) {
  const auto blank = work_type.rfind(' ');
  const std::string type = blank == std::string::npos ? work_type : work_type.substr(blank + 1);
  if (type == "int8") return "i8";
  for (const char* known : {"f64", "f32", "tf32", "f16", "bf16", "i8"}) {
    if (type == known) return type;
  }
  return "f32";
}

CountedWork work_of(const perf::KernelPoint& kernel) {
  CountedWork work{.source = "counter", .by = "cupti"};
  const auto set = [&](Metric metric, const char* level) {
    const perf::Quantity& quantity = kernel.quantities.at(metric);
    if (quantity.value) {
      work.bytes[level] = *quantity.value;
    } else if (metric == Metric::dram_bytes) {
      work.reason = "Q(dram): " + quantity.reason;
    }
  };
  set(Metric::dram_bytes, "dram");
  set(Metric::l2_bytes, "l2");
  set(Metric::l1_bytes, "l1");
  const perf::Quantity& flop = kernel.quantities.at(Metric::flop);
  if (flop.value) {
    work.flop[dtype_of(kernel.work_type)] = *flop.value;
    work.note = flop.note;
  } else {
    work.reason = "W: " + flop.reason;
  }
  return work;
}

/// A kernel's name without template arguments, which fill lines in libraries; the whole name stays in `kernel`.
std::string name_of(const std::string& demangled) {
  const std::string name = short_kernel_name(demangled);
  const std::string bare = name.substr(0, name.find('<'));
  return bare.empty() ? name : bare;
}

int gpu_of(const perf::SessionRecords& timed, const perf::KernelPoint& kernel) {
  for (const perf::KernelRecord& record : timed.kernels) {
    if (record.gpu_name == kernel.gpu_name && record.name == kernel.name) return record.gpu;
  }
  return 0;
}

std::string shape_of(const perf::KernelPoint& kernel) {
  std::string shape = fmt::format("grid {} block {}", extent_text(kernel.grid), extent_text(kernel.block));
  if (kernel.work > 0) shape += fmt::format(" work {}", kernel.work);
  return shape;
}

MeasuredPart part_of(const perf::KernelPoint& kernel, int gpu, double seconds_of_all) {
  MeasuredPart part{.kind = "kernel",
                    .name = name_of(kernel.name),
                    .kernel = kernel.name,
                    .shape = shape_of(kernel),
                    .times = kernel.times,
                    .gpu = gpu,
                    .device_name = kernel.gpu_name,
                    .counted = work_of(kernel),
                    .counts = kernel.parts,
                    .stalls = kernel.stalls};
  part.called = {.calls = kernel.times.calls,
                 .seconds = kernel.times.seconds,
                 .share = seconds_of_all > 0 ? std::optional(kernel.times.seconds / seconds_of_all) : std::nullopt,
                 .region = kernel.region};
  return part;
}

/// The program again and again: its kernels one after the other, then counted.
class FurtherRuns {
 public:
  FurtherRuns(const perf::SessionRecords& timed, const GpuCountRequest& request,
              const std::function<void(const std::string& what)>& progress)
      : timed_(timed), request_(request), progress_(progress) {}

  perf::KernelPoints points() {
    if (timed_.lacks_kernels) complete();
    if (request_.runs_again && !interrupted_) time_alone();
    if (request_.runs_again && request_.counts && !interrupted_ && !waits_) count();
    return combined();
  }
  const std::vector<std::string>& notes() const { return notes_; }
  /// All kernels with their times.
  const perf::SessionRecords& timed() const { return timed_; }
  std::optional<perf::GraphSlowdown> graph_slowdown() const {
    return perf::graph_slowdown(timed_.graphs, alone_graphs_);
  }
  /// Why no kernel has counts; empty: it was tried.
  std::string uncounted() const {
    if (has_counted_) return "";
    if (waits_) return "its GPU kernels wait for each other, so they can't be counted one after the other";
    return interrupted_ ? "the program was interrupted before it was counted" : "the GPU's counters were not asked for";
  }

 private:
  perf::KernelPoints combined() const { return perf::combine_kernels(timed_.kernels, counted_, alone_); }

  /// The run under the clock has the first launches only.
  void complete() {
    perf::SessionRecords all;
    if (request_.completes) {
      progress_("timing GPU kernels");
      const perf::LaunchEnd end = run(perf::SessionMode::kernels, {}, {}, all);
      if (end.status() == request_.exit_status && !all.kernels.empty()) {
        timed_ = std::move(all);
        return;
      }
    }
    add_note(
        "its kernels are so short that recording all of them would have slowed the program, and it was not run again "
        "for that: its GPU kernels are those of the first launches");
  }

  /// A program whose kernels wait for each other on several streams never ends so.
  void time_alone() {
    progress_("timing GPU kernels one after the other");
    const double seconds = kSlowerAlone * request_.seconds + kSecondsAlone;
    std::optional<perf::TimeLimit> limit;
    perf::SessionRecords alone;
    const perf::LaunchEnd end = run(
        perf::SessionMode::alone, {}, [&](int pid) { limit.emplace(pid, seconds); }, alone);
    waits_ = limit && limit->stop();
    if (waits_) {
      notes_.emplace_back(
          "its GPU kernels wait for each other, so they can't run one after the other: times are those of kernels with "
          "CUPTI's instructions in them, up to 10 % longer");
    } else if (end.status() == request_.exit_status) {
      alone_ = std::move(alone.kernels);
      alone_graphs_ = std::move(alone.graphs);
    }
  }

  void count() {
    count("counting GPU kernels", perf::kernel_metrics(request_.deep));
    // Kernels with few launches are counted for Q only, or for W only.
    if (!interrupted_ && much_lacks(&perf::KernelPoint::lacks_work))
      count("counting the work of GPU kernels with few launches", perf::kernel_work_metrics());
    if (!interrupted_ && much_lacks(&perf::KernelPoint::lacks_traffic))
      count("counting the traffic of GPU kernels with few launches", perf::kernel_traffic_metrics());
  }

  void count(const char* what, const std::vector<std::string>& metrics) {
    progress_(what);
    has_counted_ = true;
    std::optional<perf::TimeLimit> limit;
    perf::SessionRecords counted;
    const perf::LaunchEnd end = run(
        perf::SessionMode::counters, metrics, [&](int pid) { limit.emplace(pid, request_.counter_seconds); }, counted);
    for (const std::string& note : counted.notes) add_note(note);
    if (limit && limit->stop()) {
      add_note(
          fmt::format("counting its GPU kernels took longer than --counter-seconds {:g}, and was ended: kernels that "
                      "had not run by then have no W or Q",
                      request_.counter_seconds));
    } else if (end.status() != request_.exit_status) {
      add_note(fmt::format("under the GPU's counters the program ended with {} instead of {}", end.status(),
                           request_.exit_status));
    }
    std::move(counted.kernels.begin(), counted.kernels.end(), std::back_inserter(counted_));
  }

  bool much_lacks(bool perf::KernelPoint::*lacks) const {
    double lacking = 0, all = 0;
    for (const perf::KernelPoint& kernel : combined().kernels) {
      all += kernel.times.seconds;
      if (kernel.*lacks) lacking += kernel.times.seconds;
    }
    return lacking > kLittle * all;
  }

  perf::LaunchEnd run(perf::SessionMode mode, const std::vector<std::string>& metrics, std::function<void(int)> attach,
                      perf::SessionRecords& records) {
    const std::filesystem::path folder = std::filesystem::path(request_.folder) / std::to_string(runs_++);
    std::filesystem::create_directory(folder);
    const perf::LaunchEnd end = perf::launch({.argv = request_.argv,
                                              .environment = perf::session_environment(folder.string(), mode, metrics),
                                              .own_streams = false,
                                              .attach = std::move(attach)});
    records = perf::read_session(folder.string());
    interrupted_ = interrupted_ || end.interrupted;
    return end;
  }

  void add_note(const std::string& note) {
    if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
  }

  perf::SessionRecords timed_;
  const GpuCountRequest& request_;
  const std::function<void(const std::string& what)>& progress_;
  std::vector<perf::KernelRecord> alone_{}, alone_graphs_{}, counted_{};
  std::vector<std::string> notes_{};
  int runs_ = 0;
  bool interrupted_ = false, has_counted_ = false;
  bool waits_ = false;  ///< did not end with its kernels one after the other
};

}  // namespace

std::vector<std::string> flags_of_time(const perf::KernelPoint& kernel,
                                       const std::optional<perf::GraphSlowdown>& graphs) {
  std::vector<std::string> flags;
  if (kernel.mean) flags.emplace_back("its launches do different work: T, W and Q are means");
  if (!kernel.instrumented) return flags;
  const std::string why = "T is of launches in CUDA graphs with CUPTI's instructions in the kernel";
  if (!graphs) {
    flags.push_back(why + ", which make it longer");
  } else if (graphs->mean > 1 + kLittle) {
    flags.push_back(
        fmt::format("{}, divided by {:.3f}: the graphs took that much longer with them", why, graphs->mean));
  }
  return flags;
}

GpuParts count_gpu(const perf::SessionRecords& timed, const GpuCountRequest& request,
                   const std::function<void(const std::string& what)>& progress) {
  GpuParts gpu;
  FurtherRuns runs(timed, request, progress);
  perf::KernelPoints points = runs.points();
  gpu.notes = runs.notes();
  gpu.notes.insert(gpu.notes.end(), points.notes.begin(), points.notes.end());
  const std::optional<perf::GraphSlowdown> slowdown = runs.graph_slowdown();
  if (slowdown) perf::divide_graph_times(slowdown->mean, points.kernels);
  double all = 0;
  for (const perf::KernelPoint& kernel : points.kernels) all += kernel.times.seconds;
  for (const perf::KernelPoint& kernel : points.kernels) {
    MeasuredPart part = part_of(kernel, gpu_of(runs.timed(), kernel), all);
    if (const std::string reason = runs.uncounted(); !reason.empty()) part.counted.reason = reason;
    part.flags = flags_of_time(kernel, slowdown);
    gpu.parts.push_back(std::move(part));
  }
  return gpu;
}

}  // namespace gable::bench
