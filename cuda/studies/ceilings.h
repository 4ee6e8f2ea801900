// Loops that reach one limit of a GPU each and use nothing else: arithmetic out of registers (tensor cores of Hopper:
// out of shared memory), reads of shared memory, issue slots. Loops over memory are bandwidth.h's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace gable::cuda {

enum class CeilingLoop {
  fma_f32,      ///< counts FLOP, as do the next ten; of bytes, integer operations
  fma_f64,      //
  mma_f64,      ///< mma.sync, 16x8x16 (before sm_90 as products of 8x8x4), out of registers
  mma_i8,       ///< mma.sync, 16x8x32, sums in 32 bits
  wgmma_i8,     ///< wgmma, 64x256x32, sums in 32 bits
  mma_f16,      ///< mma.sync, 16x8x16, out of registers
  mma_bf16,     //
  mma_tf32,     ///< 16x8x8
  wgmma_f16,    ///< wgmma, 64x256x16, two warpgroups out of shared memory
  wgmma_bf16,   //
  wgmma_tf32,   ///< 64x256x8
  issue,        ///< counts instructions of warps: multiply-adds and integer ones in turn, as two pipes take them
  shared_read,  ///< counts bytes: 16 a thread and load, without bank conflicts
};

/// What a loop leaves on the device: the cycles that its first block took, which tell the clock that it ran at.
struct CeilingSink {
  long long cycles;
  float value;
};

/// Whether this GPU can run the loop. This and the next two throw std::invalid_argument for a value that is no loop.
bool has_ceiling_loop(CeilingLoop loop, const cudaDeviceProp& device);

/// What a launch counts on this GPU.
double ceiling_units(CeilingLoop loop, const cudaDeviceProp& device, int iterations);

/// One launch that fills every multiprocessor. Asynchronous on `stream`. Throws std::invalid_argument for a loop that
/// this GPU can't run.
void run_ceiling_loop(CeilingLoop loop, const cudaDeviceProp& device, int iterations, CeilingSink* sink,
                      cudaStream_t stream);

/// Numbers in [-1, 1) that look random.
void fill_with_noise(float* to, std::size_t count, cudaStream_t stream);

/// One block that does nothing, for what a launch costs.
void run_empty_kernel(cudaStream_t stream);

}  // namespace gable::cuda
