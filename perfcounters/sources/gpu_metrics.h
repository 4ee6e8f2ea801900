// W and Q from GPU counters: which metrics make up a quantity, and how many FLOP or bytes one count of each is worth.
// Names differ between chips, so each quantity lists all names; names that a chip lacks are skipped. Pure arithmetic:
// the caller passes the counts.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "perfcounters/sources/source.h"

namespace gable::perf {

/// One metric's contribution to a quantity.
struct GpuTerm {
  const char* metric;  ///< CUPTI's name with its rollup
  double weight;       ///< FLOP or bytes per count
  const char* part;    ///< the part of the quantity: "tensor bf16"
};

/// FLOP: f32, f64 and f16 instructions of threads that were not predicated off, and the matrix units' operations, those
/// on int8 too.
std::span<const GpuTerm> gpu_work_terms();

/// Bytes that a level serves. l1: loads and stores of the SMs through L1, TMA copies, and the shared memory's data path
/// (loads, stores, operands of wgmma). l2: traffic between the SMs and the L2. dram: traffic of the device memory.
/// Empty for l3, which a GPU does not have.
std::span<const GpuTerm> gpu_traffic_terms(Metric level);

/// Metrics of the instruction roofline: warp and thread instructions, sectors of each level, wavefronts and bank
/// conflicts of shared memory. Weights are 1.
std::span<const GpuTerm> gpu_instruction_terms();

/// The instruction roofline from those and from the traffic's; nothing if the warps' instructions were not counted.
std::optional<InstructionCounts> gpu_instructions(const std::map<std::string, double>& counts);

/// How busy the multiprocessors and their schedulers were, and the bytes that threads asked global memory for. Weights
/// are 1.
std::span<const GpuTerm> gpu_activity_terms();

/// Stall reasons, in stalled warps per issued instruction; their sum is the latency of an instruction.
std::span<const GpuTerm> gpu_stall_terms();

/// Instructions of all warps, counted by hardware and by instrumented code. Instrumented code counts nothing inside
/// CUDA graphs; its other metrics are then invalid as well.
inline constexpr const char* kHardwareInstructions = "smsp__inst_executed.sum";
inline constexpr const char* kInstrumentedInstructions = "smsp__sass_inst_executed.sum";

/// The counts of one range, by metric.
using GpuCounts = std::map<std::string, double>;

/// The weighted sum of the terms that were counted. Refused if none was counted or one is NaN or negative.
Quantity weighted_sum(std::span<const GpuTerm> terms, const GpuCounts& counts);

/// W: weighted_sum() of the work terms, unless instrumented code counted nothing. f16 instructions outside the matrix
/// units count only where they are most of the work: compilers load constants with HFMA2, which would be counted as 4
/// FLOP per thread (measured: 7 % of a plain f32 convolution).
Quantity gpu_work(const GpuCounts& counts);

/// The sum of each part that was counted.
std::map<std::string, double> gpu_parts(std::span<const GpuTerm> terms, const GpuCounts& counts);

/// The metrics of terms, appended to `metrics` once each.
void append_metrics(std::span<const GpuTerm> terms, std::vector<std::string>& metrics);

}  // namespace gable::perf
