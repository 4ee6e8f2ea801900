// The producers of the wgmma kernel: two warps that issue all bulk and tensor copies into the pipeline's stages. A warp
// takes some 300 cycles for a copy, so one loads boxes and one weights. All lanes run the loops and one issues: where
// a single lane runs them, the compiler (13.0) takes the consumers' loop out of uniform registers, and the matrix unit
// idles between steps, for 8 % of a 3x3 layer's time.
#pragma once

#include "cuda/wgmma/pipeline.cuh"
#include "cuda/wgmma/schedule.cuh"

namespace gable::cuda::wgmma {

/// Calls load(tile) for all tiles of this block, in the order in which the consumers read their operands.
template <typename Load>
__device__ void for_each_tile(const WgmmaArguments& a, Load load) {
  const Rounds rounds = rounds_of(a);
  const int tiles = a.reduction.schedule == WgmmaSchedule::own_tiles ? kConsumers : 1;
  for (int first = rounds.begin; first < rounds.end; first += rounds.step) {
    for (int consumer = 0; consumer < tiles; ++consumer) {
      const int item = first + consumer * rounds.partner;
      if (item < rounds.end) load(tile_of(a, item));
    }
  }
}

/// Loads the weights of all items. It begins while the kernel before this one may still run, because no such kernel
/// writes packed weights (pack.h).
__device__ inline void load_weights(const WgmmaArguments& a, const SharedMemory& m) {
  const WgmmaShare share = share_of(a);
  const std::int64_t slice_bytes = std::int64_t{a.reduction.channel_blocks} * a.reduction.tap_count * kWgmmaWeightBytes;
  const int stages = m.weight_stages, slices = m.slices;
  const bool resident = a.stages.resident_weights;
  Cursor at;
  bool loaded = false;
  for_each_tile(a, [&](const Tile& tile) {
    if (loaded && resident) return;
    loaded = true;
    const unsigned char* from =
        a.weights + channel_slice(a, tile, 0) * slice_bytes + std::int64_t{share.first_step} * kWgmmaWeightBytes;
    for (int left = share.steps; left > 0; --left, from += kWgmmaWeightBytes) {
      const std::uint32_t full = m.weights_full(at.slot), to = m.weights(at.slot, 0);
      if (!resident) ptx::wait(m.weights_empty(at.slot), at.round ^ 1);
      if (ptx::is_elected()) {
        ptx::arrive_expect_bytes(full, slices * kWgmmaWeightBytes);
        ptx::load_bulk(to, from, kWgmmaWeightBytes, full);
        if (slices > 1) ptx::load_bulk(to + kWgmmaWeightBytes, from + slice_bytes, kWgmmaWeightBytes, full);
      }
      __syncwarp();
      at.advance_one(stages);
    }
  });
}

/// Loads the input boxes of all items, once the kernels before this one have ended.
template <typename T>
__device__ void load_boxes(const WgmmaArguments& a, const SharedMemory& m) {
  const WgmmaShare share = share_of(a);
  const int boxes = a.reduction.box_count, stages = m.box_stages, bytes = a.stages.box_bytes;
  const bool by_tap = a.tiles.by_tap;
  Cursor at;
  bool waited = false;
  for_each_tile(a, [&](const Tile& tile) {
    const Tile origin = origin_of(a, tile);
    const int first_channel = first_input(a, channel_slice(a, tile, 0)) * a.reduction.parts;
    int channel_block = share.channel_block, index = share.index;
    if (!waited) ptx::wait_for_previous_kernel();
    waited = true;
    for (int block = share.begin; block < share.end; ++block) {
      const WgmmaBox b = a.boxes[index];
      if (b.first || block == share.begin) {
        const std::uint32_t full = m.box_full(at.slot), to = m.box(at.slot);
        const int channel = first_channel + (channel_block * a.reduction.parts + b.part) * kBlockChannels<T>;
        ptx::wait(m.box_empty(at.slot), at.round ^ 1);
        if (ptx::is_elected()) {
          ptx::arrive_expect_bytes(full, bytes);
          if (by_tap) {
            ptx::load_pixels_of_tap(to, a.x, channel, origin.x, origin.y, origin.n, b.dx, b.dy, full);
          } else {
            ptx::load_box(to, a.x, channel, origin.x + b.dx, origin.y + b.dy, origin.n, full);
          }
        }
        __syncwarp();
        at.advance_one(stages);
      }
      if (++index == boxes) {
        index = 0;
        ++channel_block;
      }
    }
  });
}

/// Where boxes and weights have common stages: loads the weights of all items, as load_weights().
__device__ inline void load_weights_of_boxes(const WgmmaArguments& a, const SharedMemory& m) {
  const WgmmaShare share = share_of(a);
  const std::int64_t slice_bytes = std::int64_t{a.reduction.channel_blocks} * a.reduction.tap_count * kWgmmaWeightBytes;
  const int stages = m.box_stages, slices = m.slices;
  const bool elected = ptx::is_elected();
  Cursor at;
  for_each_tile(a, [&](const Tile& tile) {
    const unsigned char* from =
        a.weights + channel_slice(a, tile, 0) * slice_bytes + std::int64_t{share.first_step} * kWgmmaWeightBytes;
    for (int left = share.steps; left > 0; --left, from += kWgmmaWeightBytes) {
      const std::uint32_t full = m.box_full(at.slot), to = m.weights(at.slot, 0);
      ptx::wait(m.box_empty(at.slot), at.round ^ 1);
      if (elected) {
        ptx::arrive_expect_bytes(full, slices * kWgmmaWeightBytes);
        ptx::load_bulk(to, from, kWgmmaWeightBytes, full);
        if (slices > 1) ptx::load_bulk(to + kWgmmaWeightBytes, from + slice_bytes, kWgmmaWeightBytes, full);
      }
      __syncwarp();
      at.advance_one(stages);
    }
  });
}

/// Where boxes and weights have common stages: loads the boxes of all items, as load_boxes().
template <typename T>
__device__ void load_boxes_of_steps(const WgmmaArguments& a, const SharedMemory& m) {
  const WgmmaShare share = share_of(a);
  const int boxes = a.reduction.box_count, stages = m.box_stages, bytes = a.stages.box_bytes;
  const bool by_tap = a.tiles.by_tap, elected = ptx::is_elected();
  Cursor at;
  bool waited = false;
  for_each_tile(a, [&](const Tile& tile) {
    const Tile origin = origin_of(a, tile);
    int channel = first_input(a, channel_slice(a, tile, 0)) + share.channel_block * kBlockChannels<T>;
    int index = share.index;
    if (!waited) ptx::wait_for_previous_kernel();
    waited = true;
    for (int left = share.steps; left > 0; --left) {
      const WgmmaBox b = a.boxes[index];
      const std::uint32_t full = m.box_full(at.slot), to = m.box(at.slot);
      ptx::wait(m.box_empty(at.slot), at.round ^ 1);
      if (elected) {
        ptx::arrive_expect_bytes(full, bytes);
        if (by_tap) {
          ptx::load_pixels_of_tap(to, a.x, channel, origin.x, origin.y, origin.n, b.dx, b.dy, full);
        } else {
          ptx::load_box(to, a.x, channel, origin.x + b.dx, origin.y + b.dy, origin.n, full);
        }
      }
      __syncwarp();
      at.advance_one(stages);
      if (++index == boxes) {
        index = 0;
        channel += kBlockChannels<T>;
      }
    }
  });
}

}  // namespace gable::cuda::wgmma
