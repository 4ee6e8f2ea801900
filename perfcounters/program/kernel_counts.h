// W and Q of a program's GPU kernels: the times of one session and the counts of others put together. Pure arithmetic
// on records; gpu_metrics.h says what a metric is worth.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "perfcounters/program/session.h"
#include "perfcounters/sources/source.h"

namespace gable::perf {

/// One kernel with one grid and one block from one region, on one kind of GPU: a point of the roofline.
struct KernelPoint {
  std::string gpu_name, name, region;
  std::array<int, 3> grid{}, block{};
  CallTimes times{};
  bool lacks_work = false, lacks_traffic = false;  ///< only the other was counted: it had too few launches for both
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
/// instructions of each type, W is that of the matrix units, or refused where they did nothing.
KernelPoints combine_kernels(const std::vector<KernelRecord>& timed, const std::vector<KernelRecord>& counted,
                             const std::vector<KernelRecord>& alone = {});

/// The times of several records of the same kernel as one; the quartiles of the mixture follow from theirs.
CallTimes merge_times(const std::vector<CallTimes>& records);

}  // namespace gable::perf
