// See gpu_metrics.h.
#include "perfcounters/sources/gpu_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gable::perf {
namespace {

// A half-precision instruction works on two numbers; so do Blackwell's ffma2, fadd2 and fmul2. The matrix units'
// metrics count multiplications and additions.
constexpr GpuTerm kWork[] = {
    {"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", 2, "f32"},
    {"smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", 1, "f32"},
    {"smsp__sass_thread_inst_executed_op_fmul_pred_on.sum", 1, "f32"},
    {"smsp__sass_thread_inst_executed_op_ffma2_pred_on.sum", 4, "f32"},
    {"smsp__sass_thread_inst_executed_op_fadd2_pred_on.sum", 2, "f32"},
    {"smsp__sass_thread_inst_executed_op_fmul2_pred_on.sum", 2, "f32"},
    {"smsp__sass_thread_inst_executed_op_dfma_pred_on.sum", 2, "f64"},
    {"smsp__sass_thread_inst_executed_op_dadd_pred_on.sum", 1, "f64"},
    {"smsp__sass_thread_inst_executed_op_dmul_pred_on.sum", 1, "f64"},
    {"smsp__sass_thread_inst_executed_op_hfma_pred_on.sum", 4, "f16"},
    {"smsp__sass_thread_inst_executed_op_hadd_pred_on.sum", 2, "f16"},
    {"smsp__sass_thread_inst_executed_op_hmul_pred_on.sum", 2, "f16"},
    {"sm__ops_path_tensor_src_bf16_dst_fp32.sum", 1, "tensor bf16"},
    {"sm__ops_path_tensor_src_fp16.sum", 1, "tensor f16"},
    {"sm__ops_path_tensor_src_fp16_dst_fp16.sum", 1, "tensor f16"},
    {"sm__ops_path_tensor_src_fp16_dst_fp32.sum", 1, "tensor f16"},
    {"sm__ops_path_tensor_src_fp16_bf16_tf32_dst_fp32.sum", 1, "tensor f16"},
    {"sm__ops_path_tensor_src_tf32_dst_fp32.sum", 1, "tensor tf32"},
    {"sm__ops_path_tensor_src_fp64.sum", 1, "tensor f64"},
    {"sm__ops_path_tensor_src_int8.sum", 1, "tensor i8"},
    {"sm__ops_path_tensor_src_fp8.sum", 1, "tensor f8"},
    {"sm__ops_path_tensor_src_fp8_dst_fp16.sum", 1, "tensor f8"},
    {"sm__ops_path_tensor_src_fp8_dst_fp32.sum", 1, "tensor f8"},
    {"sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp16.sum", 1, "tensor f8"},
    {"sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp32.sum", 1, "tensor f8"},
};

constexpr double kSector = 32;      // bytes
constexpr double kWavefront = 128;  // bytes that shared memory serves a cycle

constexpr GpuTerm kDram[] = {
    {"dram__bytes_read.sum", 1, "dram read"},
    {"dram__bytes_write.sum", 1, "dram write"},
};

// Not lts__t_bytes, which also counts what one half of the L2 asks of the other.
constexpr GpuTerm kL2[] = {{"lts__t_sectors_srcunit_tex.sum", kSector, "l2 of SMs"}};

constexpr GpuTerm kL1[] = {
    {"l1tex__t_bytes.sum", 1, "l1 global and local"},
    {"l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum", 1, "l1 TMA loads"},
    {"l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum", 1, "l1 TMA stores"},
    {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", kWavefront, "shared loads"},
    {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", kWavefront, "shared stores"},
    {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum", kWavefront, "shared wgmma operands"},
};

constexpr GpuTerm kInstructions[] = {
    {"smsp__inst_executed.sum", 1, "warp instructions"},
    {"smsp__thread_inst_executed.sum", 1, "thread instructions"},
    {"smsp__thread_inst_executed_pred_on.sum", 1, "thread instructions not predicated off"},
    {"smsp__inst_executed_op_global_ld.sum", 1, "global load instructions"},
    {"smsp__inst_executed_op_global_st.sum", 1, "global store instructions"},
    {"smsp__inst_executed_op_shared_ld.sum", 1, "shared load instructions"},
    {"smsp__inst_executed_op_shared_st.sum", 1, "shared store instructions"},
    {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 1, "l1 global load sectors"},
    {"l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", 1, "l1 global store sectors"},
    {"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", 1, "l1 local load sectors"},
    {"l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", 1, "l1 local store sectors"},
    {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", 1, "shared load wavefronts"},
    {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", 1, "shared store wavefronts"},
    {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", 1, "shared load bank conflicts"},
    {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", 1, "shared store bank conflicts"},
    {"lts__t_sectors_op_read.sum", 1, "l2 read sectors"},
    {"lts__t_sectors_op_write.sum", 1, "l2 write sectors"},
    {"lts__t_sectors_op_atom.sum", 1, "l2 atomic sectors"},
    {"lts__t_sectors_op_red.sum", 1, "l2 reduction sectors"},
    {"dram__sectors_read.sum", 1, "dram read sectors"},
    {"dram__sectors_write.sum", 1, "dram write sectors"},
};

constexpr GpuTerm kActivity[] = {
    {"sm__cycles_active.sum", 1, "multiprocessor cycles with warps"},
    {"sm__cycles_elapsed.sum", 1, "multiprocessor cycles"},
    {"smsp__cycles_active.sum", 1, "scheduler cycles with warps"},
    {"smsp__warps_active.sum", 1, "warp cycles"},
    {"smsp__inst_issued.sum", 1, "issued instructions"},
    {"smsp__sass_data_bytes_mem_global.sum", 1, "global bytes asked for"},
};

constexpr GpuTerm kStalls[] = {
    {"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", 1, "barrier"},
    {"smsp__average_warps_issue_stalled_branch_resolving_per_issue_active.ratio", 1, "branch resolving"},
    {"smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio", 1, "dispatch stall"},
    {"smsp__average_warps_issue_stalled_drain_per_issue_active.ratio", 1, "drain"},
    {"smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio", 1, "wgmma"},
    {"smsp__average_warps_issue_stalled_imc_miss_per_issue_active.ratio", 1, "constant miss"},
    {"smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio", 1, "global throttle"},
    {"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", 1, "long scoreboard"},
    {"smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio", 1, "math pipe throttle"},
    {"smsp__average_warps_issue_stalled_membar_per_issue_active.ratio", 1, "memory barrier"},
    {"smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio", 1, "MIO throttle"},
    {"smsp__average_warps_issue_stalled_misc_per_issue_active.ratio", 1, "misc"},
    {"smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio", 1, "no instruction"},
    {"smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio", 1, "not selected"},
    {"smsp__average_warps_issue_stalled_selected_per_issue_active.ratio", 1, "selected"},
    {"smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio", 1, "short scoreboard"},
    {"smsp__average_warps_issue_stalled_sleeping_per_issue_active.ratio", 1, "sleeping"},
    {"smsp__average_warps_issue_stalled_tex_throttle_per_issue_active.ratio", 1, "texture throttle"},
    {"smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", 1, "wait"},
};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

std::span<const GpuTerm> gpu_work_terms() { return kWork; }

std::span<const GpuTerm> gpu_traffic_terms(Metric level) {
  switch (level) {
    case Metric::l1_bytes:
      return kL1;
    case Metric::l2_bytes:
      return kL2;
    case Metric::dram_bytes:
      return kDram;
    default:
      return {};
  }
}

std::span<const GpuTerm> gpu_instruction_terms() { return kInstructions; }

std::span<const GpuTerm> gpu_activity_terms() { return kActivity; }

std::span<const GpuTerm> gpu_stall_terms() { return kStalls; }

Quantity weighted_sum(std::span<const GpuTerm> terms, const GpuCounts& counts) {
  double sum = 0;
  bool any = false;
  for (const GpuTerm& term : terms) {
    const auto found = counts.find(term.metric);
    if (found == counts.end()) continue;
    if (!std::isfinite(found->second) || found->second < 0) {
      return {.reason = std::string(term.metric) + " read back as " + number(found->second)};
    }
    sum += term.weight * found->second;
    any = true;
  }
  if (!any) return {.reason = "none of its metrics was counted"};
  return {.value = sum, .q1 = sum, .q3 = sum};
}

Quantity gpu_work(const GpuCounts& counts) {
  const auto hardware = counts.find(kHardwareInstructions);
  const auto instrumented = counts.find(kInstrumentedInstructions);
  const bool both = hardware != counts.end() && instrumented != counts.end();
  if (both && hardware->second > 0 && instrumented->second <= 0) {
    return {.reason = "instrumented code counted no instruction where hardware counted " + number(hardware->second) +
                      ": work in a CUDA graph can't be counted so"};
  }
  Quantity work = weighted_sum(gpu_work_terms(), counts);
  if (!work.value) return work;
  const auto parts = gpu_parts(gpu_work_terms(), counts);
  const auto half = parts.find("f16");
  if (half != parts.end() && half->second <= *work.value - half->second) *work.value -= half->second;
  work.q1 = work.q3 = *work.value;
  return work;
}

std::optional<InstructionCounts> gpu_instructions(const GpuCounts& counts) {
  const auto sum = [&](std::initializer_list<const char*> metrics) {
    double total = 0;
    for (const char* metric : metrics) {
      if (const auto found = counts.find(metric); found != counts.end() && std::isfinite(found->second))
        total += found->second;
    }
    return total;
  };
  InstructionCounts found{.warp = sum({kHardwareInstructions}),
                          .thread = sum({"smsp__thread_inst_executed.sum"}),
                          .thread_active = sum({"smsp__thread_inst_executed_pred_on.sum"})};
  if (found.warp <= 0) return std::nullopt;
  const auto add = [&](const char* level, double instructions, double transactions) {
    if (instructions > 0 && transactions > 0) found.levels[level] = {instructions, transactions};
  };
  const auto sectors = [&](Metric level) {
    return weighted_sum(gpu_traffic_terms(level), counts).value.value_or(0) / kSector;
  };
  add("l1", found.warp, sectors(Metric::l1_bytes));
  add("l2", found.warp, sectors(Metric::l2_bytes));
  add("dram", found.warp, sectors(Metric::dram_bytes));
  add("global", sum({"smsp__inst_executed_op_global_ld.sum", "smsp__inst_executed_op_global_st.sum"}),
      sum({"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"}));
  add("shared", sum({"smsp__inst_executed_op_shared_ld.sum", "smsp__inst_executed_op_shared_st.sum"}),
      sum({"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
           "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"}));
  return found;
}

std::map<std::string, double> gpu_parts(std::span<const GpuTerm> terms, const GpuCounts& counts) {
  std::map<std::string, double> parts;
  for (const GpuTerm& term : terms) {
    if (const auto found = counts.find(term.metric); found != counts.end()) {
      parts[term.part] += term.weight * found->second;
    }
  }
  return parts;
}

void append_metrics(std::span<const GpuTerm> terms, std::vector<std::string>& metrics) {
  for (const GpuTerm& term : terms) {
    if (std::find(metrics.begin(), metrics.end(), term.metric) == metrics.end()) metrics.emplace_back(term.metric);
  }
}

}  // namespace gable::perf
