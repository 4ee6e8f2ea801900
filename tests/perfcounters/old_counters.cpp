// A plugin for GPU counters that says it was built for another version of gable, for gpu_counters_test.
#include "perfcounters/sources/gpu_profiler.h"

extern "C" __attribute__((visibility("default"))) const gable::perf::GpuProfilerEntry* gable_cupti_plugin() {
  static constexpr gable::perf::GpuProfilerEntry entry{"0.0.1", nullptr};
  return &entry;
}
