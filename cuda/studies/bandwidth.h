// Loops that only move memory, for measuring the bandwidth of a level of the hierarchy. The size of the part that each
// block goes over decides which level serves it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

namespace gable::cuda {

enum class MemoryLoop {
  read,          // sum of a
  read_past_l1,  // sum of a, by loads that bypass L1
  copy,          // c = a
  triad,         // c = a + 3 b
  to_shared,     // a into shared memory, without registers in between (sm_80; through registers before)
};

/// Each block goes `passes` times over its own part of `block_bytes`, a multiple of 64 a thread. With `blocks` as
/// many as the GPU has multiprocessors, parts of a few KiB stay in L1, blocks * block_bytes below L2's size in L2.
struct MemorySweep {
  std::int64_t block_bytes = 0;
  int blocks = 1;
  int threads = 1024;  // a multiple of 32, at most 1024
  int passes = 1;
};

/// Bytes read and written by one launch.
std::int64_t bytes_moved(MemoryLoop loop, const MemorySweep& sweep);

/// Arrays of blocks * block_bytes bytes, aligned to 16; `sink` is one float, written by the loops that only read.
/// Throws std::invalid_argument for a sweep or a loop that is none.
void run_memory_loop(MemoryLoop loop, const MemorySweep& sweep, const void* a, const void* b, void* c, float* sink,
                     cudaStream_t stream);

}  // namespace gable::cuda
