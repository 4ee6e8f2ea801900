// W and Q of a program's GPU kernels: the times of one session and the counts of others put together. Pure arithmetic
// on records; gpu_metrics.h says what a metric is worth.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "perfcounters/program/session.h"
#include "perfcounters/sources/source.h"

namespace gable::perf {

/// One kernel with one grid and one block from one region, on one kind of GPU, whose launches do the same work: a point
/// of the roofline.
struct KernelPoint {
  std::string gpu_name, name, region;
  std::array<int, 3> grid{}, block{};
  int work = 0;  ///< 1, 2, …: launches with other arguments do other work, and are points of their own; 0: none does
  bool mean = false;  ///< its launches do different work that can't be told apart: T, W and Q are means
  CallTimes times{};
  bool lacks_work = false, lacks_traffic = false;  ///< only the other was counted: it had too few launches for both
  bool instrumented = false;  ///< it ran in CUDA graphs only, and T was measured with CUPTI's instructions in it
  std::int64_t counted_calls = 0;
  /// Per call: Metric::flop, l1_bytes, l2_bytes and dram_bytes, each with its value or the reason why it has none.
  std::map<Metric, Quantity> quantities{};
  std::string work_type{};  ///< the largest part of W: "f32", "tensor bf16"; empty without W
  /// Per call: the parts of W and Q ("tensor bf16", "dram read"), and what `deep` counts.
  std::map<std::string, double> parts{};
  std::map<std::string, double> stalls{};  ///< reason -> stalled warps for each issued instruction
};

struct KernelPoints {
  std::vector<KernelPoint> kernels{};  ///< the longest total time first
  std::vector<std::string> notes{};
};

/// What a session must count for W and Q; `deep`: for the instruction roofline, activity and stall reasons too.
std::vector<std::string> kernel_metrics(bool deep);
/// Parts of them, for a further session: W with Q(l1), Q(dram) with Q(l2).
std::vector<std::string> kernel_work_metrics();
std::vector<std::string> kernel_traffic_metrics();

/// `timed`: the records of a session in mode `time`; `counted`: those of all sessions in mode `counters`, which may
/// have counted different metrics; `alone`: those in mode `alone`. Processes and equal GPUs are put together. T is that
/// of `alone` where it is shorter: instrumentation and neighbours only add to the others. Without counts of the
/// instructions of each type, W is that of the matrix units, or refused where they did nothing. Launches with different
/// arguments are one point if they do the same work.
KernelPoints combine_kernels(const std::vector<KernelRecord>& timed, const std::vector<KernelRecord>& counted,
                             const std::vector<KernelRecord>& alone = {});

/// How many times as long the program's CUDA graphs take with CUPTI's instructions in their kernels as without: from
/// SessionRecords::graphs of sessions in the modes `time` and `alone`. None if a graph is in one of them only, or if
/// other work than kernels shows in it.
struct GraphSlowdown {
  double mean = 0, most = 0;
};
std::optional<GraphSlowdown> graph_slowdown(const std::vector<KernelRecord>& timed,
                                            const std::vector<KernelRecord>& alone);

/// T of instrumented kernels, divided by `slowdown`: then they sum to the graphs' own time. The longest
/// total time is first again. CUPTI's instructions cost each kernel a different share, so one T can still be off by the
/// difference.
void divide_graph_times(double slowdown, std::vector<KernelPoint>& kernels);

/// The times of several records of the same kernel as one; the quartiles of the mixture follow from theirs.
CallTimes merge_times(const std::vector<CallTimes>& records);

}  // namespace gable::perf
