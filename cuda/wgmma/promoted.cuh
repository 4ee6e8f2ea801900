// A consumer with f32's accuracy. The matrix unit truncates its accumulators towards zero at each addition, so long
// sums drift. Here it sums short chunks, products of first parts apart from the smaller ones, and each chunk is added
// to accumulators in registers, rounded to nearest, while the next chunk is multiplied. A consumer's registers hold
// three times 64 x 128 values. Both consumers read the same stages of weights and half of a tile's pixels each. They do
// not take turns: the products of one keep the matrix unit busy while the other waits.
#pragma once

#include "cuda/wgmma/epilogue.cuh"
#include "cuda/wgmma/pipeline.cuh"
#include "cuda/wgmma/schedule.cuh"

namespace gable::cuda::wgmma {

/// One consumer's chunks and its positions in the rings.
template <typename T, int pixels>
class Chunks {
 public:
  using Sums = float[pixels / 2];

  __device__ Chunks(const WgmmaArguments& a, const SharedMemory& m, int consumer)
      : a_(a), m_(m), half_(consumer * (pixels / 8) * a.stages.group_pitch) {}

  /// Multiplies the chunk that begins at entry `block` into `chunk`, and adds `finished`, the previous chunk, to `sums`
  /// in the meantime. Returns the entry after the chunk.
  __device__ int multiply(int block, const WgmmaShare& share, Sums& chunk, Sums& finished, Sums& sums) {
    WgmmaBox b = enter(block, share);
    step(b.first_tap, 0, chunk);  // and the previous chunk's products have ended
    ptx::fence_sums(finished);
    add(finished, sums);
    int tap = b.first_tap + 1;
    for (;;) {
#pragma unroll 1
      for (; tap < b.first_tap + b.taps; ++tap) step(tap, 1, chunk);
      ++block;
      if (b.last || block == share.end) {
        used_box_ = box_.slot;
        box_.advance_one(a_.stages.boxes);
      }
      if (b.ends_chunk || block == share.end) break;
      b = enter(block, share);
      tap = b.first_tap;
    }
    return block;
  }

  /// Adds the item's last chunk.
  __device__ void finish(Sums& chunk, Sums& sums) {
    ptx::wait_products<0>();
    release();
    ptx::fence_sums(chunk);
    add(chunk, sums);
  }

  __device__ static void add(const Sums& chunk, Sums& sums) {
#pragma unroll
    for (int i = 0; i < pixels / 2; ++i) sums[i] += chunk[i];
  }

 private:
  /// Waits for the box of the entry at `block`.
  __device__ WgmmaBox enter(int block, const WgmmaShare& share) const {
    const WgmmaBox b = a_.boxes[block % a_.reduction.box_count];
    if (b.first || block == share.begin) ptx::wait(m_.box_full(box_.slot), box_.round);
    return b;
  }

  /// Returns when the previous step's products have ended.
  __device__ void step(int tap, int accumulate, Sums& chunk) {
    constexpr int kDescriptorPixel = 128 >> 4, kDescriptorStep = 32 >> 4;  // in the descriptor's units of 16 bytes
    ptx::wait(m_.weights_full(weights_.slot), weights_.round);
    const std::uint64_t left = ptx::operand_descriptor(m_.weights(weights_.slot, 0), 1024);
    const std::uint64_t right =
        ptx::operand_descriptor(m_.box(box_.slot) + half_, a_.stages.group_pitch) + a_.shifts[tap] * kDescriptorPixel;
    ptx::fence_operands();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      ptx::multiply<typename OperandOf<T>::Type, pixels>(chunk, left + k * kDescriptorStep, right + k * kDescriptorStep,
                                                         k == 0 ? accumulate : 1);
    }
    ptx::commit_products();
    ptx::wait_products<1>();
    release();
    used_weights_ = weights_.slot;
    weights_.advance_one(a_.stages.weights);
  }

  __device__ static bool is_elected() { return threadIdx.x % 32 == 0; }  // one lane a warp

  __device__ void release() {
    if (is_elected() && used_weights_ >= 0) ptx::arrive(m_.weights_empty(used_weights_));
    if (is_elected() && used_box_ >= 0) ptx::arrive(m_.box_empty(used_box_));
    used_weights_ = used_box_ = -1;
  }

  const WgmmaArguments& a_;
  const SharedMemory& m_;
  std::uint32_t half_;  // offset of the consumer's pixels in a box
  Cursor box_, weights_;
  int used_box_ = -1, used_weights_ = -1;  // read by products in flight
};

/// `pixels`: of a consumer, half of a tile.
template <typename T, int pixels>
__device__ void consume_promoted(const WgmmaArguments& a, const SharedMemory& m, int consumer) {
  Epilogue<T> epilogue(a, m);
  Chunks<T, pixels> chunks(a, m, consumer);
  const WgmmaShare share = share_of(a);
  float sums[pixels / 2], even[pixels / 2], odd[pixels / 2];
  const Rounds rounds = rounds_of(a);
  for (int item = rounds.begin; item < rounds.end; item += rounds.step) {
    const Tile tile = tile_of(a, item);
    const int channel = first_output(a, tile.channel_tile);
    epilogue.set_bias(channel);
#pragma unroll
    for (int i = 0; i < pixels / 2; ++i) sums[i] = odd[i] = 0.0f;
    for (int block = share.begin;;) {
      block = chunks.multiply(block, share, even, odd, sums);
      if (block == share.end) {
        chunks.finish(even, sums);
        break;
      }
      block = chunks.multiply(block, share, odd, even, sums);
      if (block == share.end) {
        chunks.finish(odd, sums);
        break;
      }
    }
    epilogue.template run<pixels>(sums, tile, channel);
  }
  if (threadIdx.x % kWarpgroup == 0) ptx::wait_stores_read<0>();  // shared memory must outlive them
}

}  // namespace gable::cuda::wgmma
