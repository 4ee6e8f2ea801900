// `gable counted`, a command for gable itself: a process that does one workload, for sources that count around or
// inside a process of their own (perfcounters/sources/counted_region.h). It is not listed in the help.
#pragma once

#include <gable/ops.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/cli/selection.h"
#include "perfcounters/sources/source.h"

namespace CLI {
class App;
}

namespace gable::bench {

struct CountedOptions {
  std::string kernel;  ///< a sweep of perfcounters/sources/known_work.h; else an op:
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
void add_counted_options(CLI::App& app, CountedOptions& options);

/// The words that make counted_op() give this op. Throws Error(unsupported) for an op that has none.
std::vector<std::string> op_arguments(const Op& op);

/// Throws Error(invalid_argument).
Op counted_op(const CountedOptions& options);

/// Does the workload as the task says.
void run_counted_workload(const CountedOptions& options);

}  // namespace gable::bench
