// From what a GPU counts to W and Q: which metrics make up a quantity, and what one count of each stands for. A chip
// has some of the metrics under one name and some under another, so each quantity lists all names, and those that a
// chip lacks are left out. Pure arithmetic: what was counted is handed in.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "perfcounters/sources/source.h"

namespace gable::perf {

/// One metric's part in a quantity.
struct GpuTerm {
  const char* metric;  ///< CUPTI's name with its rollup
  double weight;       ///< FLOP or bytes that one count stands for
  const char* part;    ///< what part of the quantity it is: "tensor bf16"
};

/// FLOP: f32, f64 and f16 instructions of threads that were not predicated off, and the matrix units' operations.
std::span<const GpuTerm> gpu_work_terms();

/// Bytes that a level serves. l1: loads and stores of the SMs through L1, TMA's copies, and what goes over the shared
/// memory's data path: loads, stores, and the operands that wgmma reads there. l2: what the SMs exchange with it. dram.
/// Empty for l3, which a GPU does not have.
std::span<const GpuTerm> gpu_traffic_terms(Metric level);

/// What the instruction roofline takes: warp and thread instructions, sectors of each level, wavefronts and bank
/// conflicts of shared memory. Weights are 1.
std::span<const GpuTerm> gpu_instruction_terms();

/// Why warps waited, in warps for each instruction issued; together they are the latency of an instruction.
std::span<const GpuTerm> gpu_stall_terms();

/// Instructions of all warps as hardware counts them, and as instrumented code does: the latter sees nothing in CUDA
/// graphs, and then its other counts are worth nothing.
inline constexpr const char* kHardwareInstructions = "smsp__inst_executed.sum";
inline constexpr const char* kInstrumentedInstructions = "smsp__sass_inst_executed.sum";

/// What was counted in one range, by metric.
using GpuCounts = std::map<std::string, double>;

/// The terms' sum, over those that were counted. Refused where none was, or where one is no number (NaN, below 0).
Quantity weighted_sum(std::span<const GpuTerm> terms, const GpuCounts& counts);

/// W: weighted_sum() of the work terms, unless instrumented code saw nothing. f16 instructions outside the matrix units
/// count where they are most of the work: compilers load constants with HFMA2, which would pass for 4 FLOP a thread (7
/// % of a plain f32 convolution, as measured).
Quantity gpu_work(const GpuCounts& counts);

/// The sum of each part that was counted.
std::map<std::string, double> gpu_parts(std::span<const GpuTerm> terms, const GpuCounts& counts);

/// The metrics of terms, appended to `metrics` once each.
void append_metrics(std::span<const GpuTerm> terms, std::vector<std::string>& metrics);

}  // namespace gable::perf
