// wgmma: implicit-GEMM convolution on Hopper's warpgroup matrix product, persistent and warp-specialised.
// One step, for each filter tap and 128 bytes of input channels: accumulators of 64 output channels x N pixels (N =
// 256, 224, 192, 128 or 64) += W[64][128 B] * X[N][128 B]^T, four m64nNk16. Two consumer warpgroups hold N/2
// accumulators a thread (consumer.cuh, epilogue.cuh); one producer thread loads for both (producer.cuh).
//
// Shared memory (pipeline.cuh): 2 to 8 stages of input boxes, of 8x32 pixels with a 3x3 halo 43.5 KB each. All taps
// read a box at shifted start addresses, which works because the swizzle is a function of the address; or a box holds N
// pixels that the copy engine gathers for one tap. Weights: a ring of 8 KB stages, or all of them where they fit.
// Outputs: 24 KB a consumer, for the tensor stores.
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

/// Barriers, tensor maps and the zeros behind the boxes.
__device__ inline void set_up(const WgmmaArguments& a, const SharedMemory& m) {
  if (threadIdx.x == 0) {
    const int box_readers = a.reduction.schedule == WgmmaSchedule::own_tiles ? 4 : 4 * kConsumers;  // warps
    for (int i = 0; i < a.stages.boxes; ++i) {
      ptx::init_barrier(m.box_full(i), 1);
      ptx::init_barrier(m.box_empty(i), box_readers);
    }
    for (int i = 0; i < a.stages.weights; ++i) {
      ptx::init_barrier(m.weights_full(i), 1);
      ptx::init_barrier(m.weights_empty(i), box_readers);
    }
    for (int i = 0; i < kConsumers; ++i) ptx::init_barrier(m.partials_ready(i), a.reduction.split);
    ptx::fence_barrier_init();
    ptx::prefetch_map(a.x);
    ptx::prefetch_map(a.y);
  }
  // Rows below the last image read the slack behind a box; it must hold zeros.
  for (int i = 0; i < a.stages.boxes; ++i) {
    for (int at = a.stages.box_bytes + 4 * threadIdx.x; at < a.stages.box_stage_bytes; at += 4 * kThreads) {
      ptx::store_word(m.box(i) + at, 0.0f);
    }
  }
  ptx::fence_shared_for_async();
  __syncthreads();
  if (a.reduction.split > 1) ptx::sync_cluster();  // a block must not signal a barrier before its owner has set it up
}

/// `consumer` is what a consumer warpgroup runs: consume<> or consume_promoted<>.
template <typename T, auto consumer, int producer_registers = 56, int consumer_registers = 224>
__global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ WgmmaArguments a) {
  extern __shared__ unsigned char shared[];
  const SharedMemory m{(ptx::shared_address(shared) + 1023) & ~1023u,
                       a.stages.boxes,
                       a.stages.weights,
                       a.stages.box_stage_bytes,
                       a.reduction.schedule == WgmmaSchedule::one_tile ? kConsumers : 1,
                       a.stages.output_bytes};
  set_up(a, m);
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  const int warpgroup =
      __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kWarpgroup, 0);  // uniform in a warp, as the compiler can see
  if (warpgroup == kConsumers) {
    ptx::release_registers<producer_registers>();
    if (threadIdx.x == kConsumers * kWarpgroup) Producer<T>(a, m).run();
  } else {
    ptx::take_registers<consumer_registers>();
    consumer(a, m, warpgroup);
  }
}

}  // namespace gable::cuda::wgmma
