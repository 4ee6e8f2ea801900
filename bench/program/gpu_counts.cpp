// See gpu_counts.h.
#include "bench/program/gpu_counts.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/common/text.h"
#include "perfcounters/program/kernel_counts.h"
#include "perfcounters/program/launch.h"

namespace gable::bench {
namespace {

using perf::Metric;

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

MeasuredPart part_of(const perf::KernelPoint& kernel, int gpu, double seconds_of_all) {
  MeasuredPart part{.kind = "kernel",
                    .name = name_of(kernel.name),
                    .kernel = kernel.name,
                    .shape = fmt::format("grid {} block {}", extent_text(kernel.grid), extent_text(kernel.block)),
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

}  // namespace

GpuParts count_gpu(const perf::SessionRecords& timed, const GpuCountRequest& request,
                   const std::function<void(const std::string& what)>& progress) {
  GpuParts gpu;
  perf::SessionRecords counted;
  if (request.counts) {
    progress("counting GPU kernels");
    const perf::LaunchEnd end =
        perf::launch({.argv = request.argv,
                      .environment = perf::session_environment(request.folder, perf::SessionMode::counters,
                                                               perf::kernel_metrics(request.deep)),
                      .own_streams = false});
    counted = perf::read_session(request.folder);
    gpu.notes = counted.notes;
    if (end.status() != request.exit_status) {
      gpu.notes.push_back(fmt::format("under the GPU's counters the program ended with {} instead of {}", end.status(),
                                      request.exit_status));
    }
  }
  perf::KernelPoints points = perf::combine_kernels(timed.kernels, counted.kernels);
  gpu.notes.insert(gpu.notes.end(), points.notes.begin(), points.notes.end());
  double all = 0;
  for (const perf::KernelPoint& kernel : points.kernels) all += kernel.times.seconds;
  for (const perf::KernelPoint& kernel : points.kernels) {
    MeasuredPart part = part_of(kernel, gpu_of(timed, kernel), all);
    if (!request.counts) part.counted.reason = "the GPU's counters were not asked for";
    gpu.parts.push_back(std::move(part));
  }
  return gpu;
}

}  // namespace gable::bench
