// `gable counted`: one workload in a process of its own, for sources that count whole processes
// (perfcounters/sources/counted_region.h). gable starts this command itself; the help does not list it.
#pragma once

#include <gable/ops.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/workloads/selection.h"
#include "perfcounters/sources/source.h"

namespace CLI {
class App;
}

namespace gable::bench {

struct WorkloadOptions {
  std::string kernel;  ///< a sweep of perfcounters/sources/known_work.h; empty: the op below
  std::size_t elements = 0;
  std::int64_t passes = 1;

  std::string op;                   ///< conv2d, matmul, add or transpose
  std::vector<std::int64_t> sizes;  ///< matmul: m, n, k; add: the shape; transpose: rows, columns
  std::vector<std::int64_t> tile;   ///< of an add
  SelectionOptions problem;         ///< one problem (conv2d), one dtype, one math, attributes
  std::string device;

  perf::ChildTask task;
};

/// The command's options; `options` must outlive the parse.
void add_workload_options(CLI::App& app, WorkloadOptions& options);

/// The command line from which op_of() makes this op. Throws Error(unsupported) for an op without one.
std::vector<std::string> op_arguments(const Op& op);

/// Throws Error(invalid_argument).
Op op_of(const WorkloadOptions& options);

/// Runs the workload as the task requires.
void run_workload(const WorkloadOptions& options);

}  // namespace gable::bench
