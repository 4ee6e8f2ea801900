// The wgmma kernel for filters of which each step has a box of its own (1x1, and those gathered by tap) where there are
// no more items than multiprocessors: each block has one item, so its consumers take no turns, walk no list of items
// and store once. One consumer multiplies 64 output channels x N pixels, two side by side 128 x N. Operands and steps
// are those of kernel.cuh.
//
// Such a launch takes 4 to 10 us, of which products are the smaller part: what counts is the time to the first product
// and that enough copies are in flight. Outputs take the place of stages, which no product reads any more, so that a
// block has nine stages of 24 KB (128 pixels, one consumer) instead of seven. Blocks have 192 or 320 threads, and
// barriers that two rings would need are left out.
#pragma once

#include "cuda/wgmma/epilogue.cuh"
#include "cuda/wgmma/pipeline.cuh"
#include "cuda/wgmma/schedule.cuh"

namespace gable::cuda::wgmma {

/// The common stages of boxes and weights; outputs lie in their place.
struct ItemMemory : SharedMemory {
  static constexpr bool kSplits = false;
  static constexpr bool kStoresWords = true;

  __device__ std::uint32_t outputs(int consumer) const { return box(0) + consumer * output_bytes; }
};

__device__ inline int steps_of_item(const WgmmaArguments& a) {
  return a.reduction.channel_blocks * a.reduction.tap_count;
}

/// The first lane of consumer warps: the barriers by which stages are released.
template <int consumers>
__device__ void set_up_empty_barriers(const ItemMemory& m, int warp) {
  if (threadIdx.x % 32 != 0) return;
  for (int i = warp; i < m.box_stages; i += 4 * consumers) ptx::init_barrier(m.box_empty(i), 4 * consumers);
  ptx::fence_barrier_init();
}

/// Calls load(slot) for each step from `first` on, once the slot is free. Lanes agree on which of them loads.
template <typename Load>
__device__ void for_each_step(const ItemMemory& m, int first, int steps, Load load) {
  const bool elected = ptx::is_elected();
  Cursor at;
  at.advance(first, m.box_stages);
  for (int step = first; step < steps; ++step) {
    ptx::wait(m.box_empty(at.slot), at.round ^ 1);
    if (elected) load(at.slot);
    __syncwarp();
    at.advance_one(m.box_stages);
  }
}

template <typename T>
__device__ void load_item_boxes(const WgmmaArguments& a, const ItemMemory& m, const Tile& tile) {
  const int bytes = a.stages.box_bytes;
  const bool by_tap = a.tiles.by_tap;
  const int boxes = a.reduction.box_count;
  const Tile origin = origin_of(a, tile);
  int channel = first_input(a, channel_slice(a, tile, 0)), index = 0;
  ptx::wait_for_previous_kernel();
  for_each_step(m, 0, steps_of_item(a), [&](int slot) {
    const WgmmaBox b = a.boxes[index];
    const std::uint32_t to = m.box(slot), full = m.box_full(slot);
    ptx::arrive_expect_bytes(full, bytes);
    if (by_tap) {
      ptx::load_pixels_of_tap(to, a.x, channel, origin.x, origin.y, origin.n, b.dx, b.dy, full);
    } else {
      ptx::load_box(to, a.x, channel, origin.x + b.dx, origin.y + b.dy, origin.n, full);
    }
    const bool last = ++index == boxes;
    index = last ? 0 : index;
    channel += last ? kBlockChannels<T> : 0;
  });
}

/// The producer of weights, and of the barriers that copies complete. The first stages are loaded as soon as their
/// barriers are there and while the kernel before this one may still run, because no such kernel writes packed weights
/// (pack.h).
template <int consumers>
class ItemWeights {
 public:
  __device__ ItemWeights(const WgmmaArguments& a, const ItemMemory& m, const Tile& tile)
      : m_(m),
        steps_(steps_of_item(a)),
        first_(min(steps_, m.box_stages)),
        slice_bytes_(std::int64_t{steps_} * kWgmmaWeightBytes),
        from_(a.weights + channel_slice(a, tile, 0) * slice_bytes_) {}

  __device__ void load_first() {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < m_.box_stages; ++i) ptx::init_barrier(m_.box_full(i), 2);  // the producers
      ptx::fence_barrier_init();
    }
    __syncwarp();
    if (ptx::is_elected()) {
      for (int i = 0; i < first_; ++i) load(i, i);
    }
    __syncwarp();
  }

  __device__ void load_others() {
    int step = first_;
    for_each_step(m_, first_, steps_, [&](int slot) { load(slot, step++); });
  }

 private:
  __device__ void load(int slot, int step) const {
    const std::uint32_t full = m_.box_full(slot);
    ptx::arrive_expect_bytes(full, consumers * kWgmmaWeightBytes);
    const unsigned char* const from = from_ + std::int64_t{step} * kWgmmaWeightBytes;
#pragma unroll
    for (int i = 0; i < consumers; ++i) {
      ptx::load_bulk(m_.weights(slot, i), from + i * slice_bytes_, kWgmmaWeightBytes, full);
    }
  }

  const ItemMemory& m_;
  int steps_, first_;
  std::int64_t slice_bytes_;
  const unsigned char* from_;
};

/// Stages that no later step is loaded into are not released.
template <typename T, int pixels>
__device__ void multiply_steps(const WgmmaArguments& a, const ItemMemory& m, int consumer, float (&sums)[pixels / 2]) {
  constexpr int kDescriptorStep = 32 >> 4, kPitch = 1024;
  const int steps = steps_of_item(a), released_steps = steps - m.box_stages;
  Cursor at;
  int accumulate = 0, before = 0;  // `before`: the stage of the step before
  for (int step = 0; step < steps; ++step) {
    ptx::wait(m.box_full(at.slot), at.round);
    const std::uint64_t left = ptx::operand_descriptor(m.weights(at.slot, consumer), kPitch);
    const std::uint64_t right = ptx::operand_descriptor(m.box(at.slot), kPitch);
    ptx::fence_operands();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      ptx::multiply<T, pixels>(sums, left + k * kDescriptorStep, right + k * kDescriptorStep, k == 0 ? accumulate : 1);
    }
    accumulate = 1;
    ptx::commit_products();
    ptx::wait_products<1>();
    if (step > 0 && step <= released_steps && threadIdx.x % 32 == 0) ptx::arrive(m.box_empty(before));
    before = at.slot;
    at.advance_one(m.box_stages);
  }
  ptx::wait_products<0>();
  ptx::fence_sums(sums);
}

template <typename T, int pixels>
__device__ void consume_item(const WgmmaArguments& a, const ItemMemory& m, const Tile& tile, int consumer) {
  const int channel = first_output(a, channel_slice(a, tile, consumer));
  ptx::wait_for_previous_kernel();
  Epilogue<T, ItemMemory> epilogue(a, m);
  epilogue.set_bias(channel);
  float sums[pixels / 2];
  multiply_steps<T, pixels>(a, m, consumer, sums);
  ptx::named_sync(kTurnBarrier, m.slices * kWarpgroup);  // no product reads a stage any more
  epilogue.template run<pixels>(sums, tile, channel);
  if (threadIdx.x % kWarpgroup == 0) ptx::wait_stores_read<0>();  // shared memory must outlive them
}

template <typename T, int pixels, int consumers>
__global__ void __launch_bounds__(item_threads(consumers), 1) item_kernel(const __grid_constant__ WgmmaArguments a) {
  extern __shared__ unsigned char shared[];
  const ItemMemory m{{(ptx::shared_address(shared) + 1023) & ~1023u, a.stages.boxes, a.stages.boxes,
                      a.stages.box_stage_bytes, consumers, a.stages.output_bytes}};
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);  // uniform, as the compiler can see
  constexpr int kBoxes = 4 * consumers, kWeights = kBoxes + 1;               // the producers' warps
  const Tile tile = tile_of(a, static_cast<int>(blockIdx.x));
  ItemWeights<consumers> weights(a, m, tile);
  if (warp == kWeights) {
    weights.load_first();
  } else if (warp == kBoxes) {
    if (threadIdx.x % 32 == 0) ptx::prefetch_map(a.x);
  } else {
    if (threadIdx.x == 0) ptx::prefetch_map(a.y);
    set_up_empty_barriers<consumers>(m, warp);
  }
  __syncthreads();
  ptx::allow_next_kernel();
  if (warp == kWeights) {
    weights.load_others();
  } else if (warp == kBoxes) {
    load_item_boxes<T>(a, m, tile);
  } else {
    consume_item<T, pixels>(a, m, tile, warp / 4);
  }
}

template <typename T, int pixels>
const void* item_kernel_of(int consumers) {
  return consumers == 1 ? reinterpret_cast<const void*>(item_kernel<T, pixels, 1>)
                        : reinterpret_cast<const void*>(item_kernel<T, pixels, 2>);
}

/// Null if no kernel has this many pixels.
template <typename T>
const void* item_kernel_of(int pixels, int consumers) {
  switch (pixels) {
    case 64:
      return item_kernel_of<T, 64>(consumers);
    case 96:
      return item_kernel_of<T, 96>(consumers);
    case 112:
      return item_kernel_of<T, 112>(consumers);
    case 128:
      return item_kernel_of<T, 128>(consumers);
    case 160:
      return item_kernel_of<T, 160>(consumers);
    case 192:
      return item_kernel_of<T, 192>(consumers);
    case 224:
      return item_kernel_of<T, 224>(consumers);
    case 256:
      return item_kernel_of<T, 256>(consumers);
    default:
      return nullptr;
  }
}

}  // namespace gable::cuda::wgmma
