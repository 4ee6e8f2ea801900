// wgmma: implicit-GEMM convolution on Hopper's warpgroup matrix product, persistent and warp-specialised.
// One step, for each filter tap and 128 bytes of input channels: accumulators of 64 output channels x N pixels (N =
// 256, 224, 192, 128 or 64, with a box for each step 160, 112 or 96 too) += W[64][128 B] * X[N][128 B]^T, four
// m64nNk16. Two consumer warpgroups hold N/2 accumulators a thread (consumer.cuh, epilogue.cuh); two producer warps
// load for both (producer.cuh).
//
// Shared memory (pipeline.cuh): 2 to 8 stages of input boxes, of 8x32 pixels with a 3x3 halo 43.5 KB each. All taps
// read a box at shifted start addresses, which works because the swizzle is a function of the address; or a box holds N
// pixels that the copy engine gathers for one tap. Weights: a ring of 8 KB stages, or all of them where they fit. Where
// each step has its own box (1x1, gathered), both may have one ring: a wait and a release for each step, not two.
// Outputs: 16 KB a consumer or more, for the tensor stores (wgmma_output_bytes()).
//
// Schedules. The consumers take turns on the matrix unit, each with its own tile, so that the epilogue of one overlaps
// with the products of the other. Or they multiply side by side, 64 channels of the same tile each, which reads less
// from L2: 48 KB instead of 80 KB in 1024 cycles of 1x1. promoted.cuh has a third one.
//
// Clusters. The blocks of a cluster split the reduction of one item and write partial accumulators into one another's
// shared memory, in the place of outputs.
#pragma once

#include "cuda/wgmma/pipeline.cuh"
#include "cuda/wgmma/producer.cuh"

namespace gable::cuda::wgmma {

/// Uniform in a warp, as the compiler can see.
__device__ inline int warp_of_block() { return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0); }

/// Barriers, tensor maps and the zeros behind the boxes, shared out to the warps: all of it by one thread takes longer
/// than the first loads.
template <bool common>
__device__ void set_up(const WgmmaArguments& a, const SharedMemory& m) {
  constexpr int kWarps = kThreads / 32;
  const int warp = warp_of_block();
  const int lane = threadIdx.x % 32;
  if (lane == 0) {
    if (warp == kWarps - 1) ptx::prefetch_map(a.x);
    if (warp == kWarps - 2) ptx::prefetch_map(a.y);
    const int writers = common ? 2 : 1;
    const int readers = a.reduction.schedule == WgmmaSchedule::own_tiles ? 4 : 4 * kConsumers;  // warps
    for (int i = warp; i < m.barriers(); i += kWarps) {
      ptx::init_barrier(m.barrier(i), m.is_partials(i) ? 1 : m.is_full(i) ? writers : readers);
    }
    ptx::fence_barrier_init();
  }
  // Rows below the last image read the slack behind a box; it must hold zeros.
  const int slack = a.stages.box_stage_bytes - a.stages.box_bytes;
  for (int i = warp; slack > 0 && i < m.box_stages; i += kWarps) {
    const std::uint32_t behind = m.box(i) + a.stages.box_bytes;
    for (int at = 4 * lane; at < slack; at += 4 * 32) ptx::store_word(behind + at, 0.0f);
  }
  ptx::fence_shared_for_async();
  __syncthreads();
  if (a.reduction.split > 1) ptx::sync_cluster();  // a block must not signal a barrier before its owner has set it up
}

/// `consumer` is what a consumer warpgroup runs: consume<> or consume_promoted<>; `common`:
/// WgmmaPipeline::common. `blocks` fit into a multiprocessor's registers.
template <typename T, bool common, auto consumer, int blocks = 1, int producer_registers = 56,
          int consumer_registers = 224>
__global__ void __launch_bounds__(kThreads, blocks) kernel(const __grid_constant__ WgmmaArguments a) {
  extern __shared__ unsigned char shared[];
  const SharedMemory m{(ptx::shared_address(shared) + 1023) & ~1023u,
                       a.stages.boxes,
                       a.stages.weights,
                       a.stages.box_stage_bytes,
                       a.reduction.schedule == WgmmaSchedule::one_tile ? kConsumers : 1,
                       a.stages.output_bytes};
  set_up<common>(a, m);
  ptx::allow_next_kernel();
  const int warpgroup = warp_of_block() / 4;
  if (warpgroup == kConsumers) {
    ptx::release_registers<producer_registers>();
    const int producer = warp_of_block() - 4 * kConsumers;
    if constexpr (common) {
      if (producer == 0) load_boxes_of_steps<T>(a, m);
      if (producer == 1) load_weights_of_boxes(a, m);
    } else {
      if (producer == 0) load_boxes<T>(a, m);
      if (producer == 1) load_weights(a, m);
    }
  } else {
    ptx::take_registers<consumer_registers>();
    ptx::wait_for_previous_kernel();
    consumer(a, m, warpgroup);
  }
}

}  // namespace gable::cuda::wgmma
