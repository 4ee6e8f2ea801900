// The pipeline between producer and consumers: two rings of stages in shared memory, one of input boxes and one of
// weights, each stage with a full and an empty mbarrier, and the positions of both sides in the rings.
#pragma once

#include "cuda/wgmma/arguments.h"
#include "cuda/wgmma/ptx.cuh"

#include <type_traits>

namespace gable::cuda::wgmma {

/// Named barriers; 0 is __syncthreads'.
constexpr int kTurnBarrier = 1, kEpilogueBarrier = 3;  // of consumer 0; those of consumer 1 follow

/// f32 tensors; x is cut into bf16 parts before the kernel.
struct Parts {};

/// The type of the matrix unit's operands.
template <typename T>
struct OperandOf {
  using Type = T;
};
template <>
struct OperandOf<Parts> {
  using Type = __nv_bfloat16;
};

template <typename T>
constexpr int kBlockChannels = std::is_same_v<T, ptx::Tf32> ? 32 : 64;
template <typename T>
constexpr bool kIs16Bit = sizeof(T) == 2;  // of outputs

/// A stage of a ring and the parity of the ring's current round, which is the phase that its barriers are in.
struct Cursor {
  int slot = 0;
  std::uint32_t round = 0;
  __device__ void advance(int steps, int size) {
    slot += steps;
    while (slot >= size) {
      slot -= size;
      round ^= 1;
    }
  }
  __device__ void advance_one(int size) {
    const bool last = slot + 1 == size;
    slot = last ? 0 : slot + 1;
    round ^= last ? 1 : 0;
  }
};

/// Addresses in shared memory: barriers, then stages of boxes, stages of weights and outputs.
struct SharedMemory {
  static constexpr bool kSplits = true;        // the blocks of a cluster may share an item
  static constexpr bool kStoresWords = false;  // threads may store outputs, see WgmmaWords
  std::uint32_t base;
  int box_stages, weight_stages, box_stage_bytes, slices, output_bytes;

  // Barriers: full ones of boxes and of weights, empty ones of both, partial accumulators.
  __device__ int stages() const { return box_stages + weight_stages; }
  __device__ int barriers() const { return 2 * stages() + kConsumers; }
  __device__ bool is_full(int barrier) const { return barrier < stages(); }
  __device__ bool is_partials(int barrier) const { return barrier >= 2 * stages(); }
  __device__ std::uint32_t barrier(int i) const { return base + 8 * i; }
  __device__ std::uint32_t box_full(int i) const { return barrier(i); }
  __device__ std::uint32_t weights_full(int i) const { return barrier(box_stages + i); }
  __device__ std::uint32_t box_empty(int i) const { return barrier(stages() + i); }
  __device__ std::uint32_t weights_empty(int i) const { return barrier(stages() + box_stages + i); }
  __device__ std::uint32_t partials_ready(int consumer) const { return barrier(2 * stages() + consumer); }
  __device__ std::uint32_t box(int i) const { return base + kWgmmaBarrierBytes + i * box_stage_bytes; }
  __device__ std::uint32_t weights(int i, int slice) const {
    return box(box_stages) + (i * slices + slice) * kWgmmaWeightBytes;
  }
  __device__ std::uint32_t outputs(int consumer) const { return weights(weight_stages, 0) + consumer * output_bytes; }
};

}  // namespace gable::cuda::wgmma
