// See core_rates.h.
#include "bench/measure/core_rates.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "bench/workloads/data.h"

namespace gable::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRuns = 8;  // the fastest counts; the first wakes matrix units

Conv2d probe_of(DType dtype) {
  return {.input = {1, 64, 7, 7},
          .weights = {64, 64, 3, 3},
          .padding = {1, 1},
          .dtype = dtype == DType::f32 ? DType::f32 : DType::bf16,
          .layout = Layout::nhwc};
}

}  // namespace

CoreRates::CoreRates(int threads, DType dtype) {
  const Device device = open("cpu?threads=1");
  const Conv2d conv = probe_of(dtype);
  for (int i = 0; i < threads; ++i) {
    OpData data = random_data(conv);
    Plan plan = device.plan(conv);
    PackedWeights weights = plan.pack(data.weights);
    Tensor y = device.tensor(conv.dtype, plan.output_shape(), conv.layout);
    workers_.push_back({std::move(plan), std::move(weights), std::move(data.x), std::move(y)});
  }
}

double CoreRates::slowest() {
  std::vector<double> seconds(workers_.size(), 0);
#pragma omp parallel num_threads(static_cast <int>(workers_.size()))
  {
    const auto at = static_cast<std::size_t>(omp_get_thread_num());
    Worker& one = workers_[at];
    for (int i = 0; i < kRuns; ++i) {
      const Clock::time_point start = Clock::now();
      one.plan.run(one.x, one.weights, one.y);
      const double took = std::chrono::duration<double>(Clock::now() - start).count();
      seconds[at] = i == 0 ? took : std::min(seconds[at], took);
    }
  }
  return 1 / std::max(1e-9, *std::max_element(seconds.begin(), seconds.end()));
}

}  // namespace gable::bench
