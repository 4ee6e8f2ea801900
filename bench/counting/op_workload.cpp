// See op_workload.h.
#include "bench/counting/op_workload.h"

#include <gable/backend.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/counting/workload_process.h"
#include "perfcounters/sources/counted_region.h"
#include "perfcounters/timing.h"

namespace gable::bench {
namespace {

/// The device for a simulation: one thread, the same kernel, only instructions that valgrind knows.
std::string one_thread_device(const Placement& place) {
  DeviceUri uri = parse_device_uri(place.device);
  if (uri.backend == "cpu" || uri.backend == "onednn") uri.options["threads"] = "1";
  if (uri.backend == "cpu") {
    uri.options["kernel"] = place.kernel;
    if (uri.selector.empty() || uri.selector.starts_with("avx512")) uri.selector = "avx2";
  }
  return to_string(uri);
}

}  // namespace

perf::Workload workload_of(const Measured& measured, const std::string& helper) {
  const OpRunner& runner = *measured.runner;
  const Row& row = measured.row;
  perf::Workload workload;
  workload.run = [&runner] { runner.run(); };
  workload.gpu = row.place.gpu.value_or(-1);
  workload.flop = row.work.analytic.value_or(0);
  workload.dtype = row.place.arithmetic.products > 1 ? row.place.arithmetic.dtype : row.identity.dtype;
  workload.seconds = row.time.seconds * std::max(1, row.place.threads.value_or(1));
  if (row.place.cache == "cold") {
    workload.flush = runner.subject().flush;
    if (!workload.flush) {
      workload.flush = perf::sweep_caches();
    }
  }
  if (row.on_gpu()) return workload;
  workload.child = [&measured, helper](const perf::ChildTask& task) {
    std::vector<std::string> argv{helper, "counted", "--device", one_thread_device(measured.row.place)};
    for (std::string& word : op_arguments(measured.one->op)) argv.push_back(std::move(word));
    for (std::string& word : perf::task_arguments(task)) argv.push_back(std::move(word));
    return argv;
  };
  return workload;
}

}  // namespace gable::bench
