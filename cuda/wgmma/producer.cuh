// The producer of the wgmma kernel: one thread that issues all bulk and tensor copies into the pipeline's stages.
#pragma once

#include "cuda/wgmma/pipeline.cuh"
#include "cuda/wgmma/schedule.cuh"

namespace gable::cuda::wgmma {

template <typename T>
class Producer {
 public:
  __device__ Producer(const WgmmaArguments& a, const SharedMemory& m) : a_(a), m_(m) {}

  /// Loads the operands of all items in the order in which the consumers read them.
  __device__ void run() {
    const Rounds rounds = rounds_of(a_);
    const Share share = share_of(a_);
    bool weights_loaded = false;
    for (int first = rounds.begin; first < rounds.end; first += rounds.step) {
      const int tiles = a_.reduction.schedule == WgmmaSchedule::own_tiles ? kConsumers : 1;
      for (int consumer = 0; consumer < tiles; ++consumer) {
        const int item = first + consumer * rounds.partner;
        if (item >= rounds.end) continue;
        load(tile_of(a_, item), share, !weights_loaded);
        weights_loaded = a_.stages.resident_weights;
      }
    }
  }

 private:
  __device__ void load(const Tile& tile, const Share& share, bool weights) {
    const Tile origin = origin_of(a_, tile);
    const int slice = channel_slice(a_, tile, 0);
    first_channel_ = first_input(a_, slice) * a_.reduction.parts;
    int channel_block = share.begin == 0 ? 0 : share.begin / a_.reduction.box_count;
    int index = share.begin - channel_block * a_.reduction.box_count;
    for (int block = share.begin; block < share.end; ++block) {
      const WgmmaBox b = a_.boxes[index];
      if (b.first || block == share.begin) load_box(origin, b, channel_block);
      if (weights) {
        for (int tap = b.first_tap; tap < b.first_tap + b.taps; ++tap) load_weights(slice, channel_block, tap);
      }
      if (++index == a_.reduction.box_count) {
        index = 0;
        ++channel_block;
      }
    }
  }

  __device__ void load_box(const Tile& origin, const WgmmaBox& b, int channel_block) {
    const std::uint32_t full = m_.box_full(box_.slot), to = m_.box(box_.slot);
    const int channel = first_channel_ + (channel_block * a_.reduction.parts + b.part) * kBlockChannels<T>;
    ptx::wait(m_.box_empty(box_.slot), box_.round ^ 1);
    ptx::arrive_expect_bytes(full, a_.stages.box_bytes);
    if (a_.tiles.by_tap) {
      ptx::load_pixels_of_tap(to, a_.x, channel, origin.x, origin.y, origin.n, b.dx, b.dy, full);
    } else {
      ptx::load_box(to, a_.x, channel, origin.x + b.dx, origin.y + b.dy, origin.n, full);
    }
    box_.advance_one(a_.stages.boxes);
  }

  __device__ void load_weights(int first_slice, int channel_block, int tap) {
    const std::uint32_t full = m_.weights_full(weights_.slot);
    if (!a_.stages.resident_weights) ptx::wait(m_.weights_empty(weights_.slot), weights_.round ^ 1);
    ptx::arrive_expect_bytes(full, m_.slices * kWgmmaWeightBytes);
    for (int slice = 0; slice < m_.slices; ++slice) {
      const std::size_t stage =
          (static_cast<std::size_t>(first_slice + slice) * a_.reduction.channel_blocks + channel_block) *
              a_.reduction.tap_count +
          tap;
      ptx::load_bulk(m_.weights(weights_.slot, slice), a_.weights + stage * kWgmmaWeightBytes, kWgmmaWeightBytes, full);
    }
    weights_.advance_one(a_.stages.weights);
  }

  const WgmmaArguments& a_;
  const SharedMemory& m_;
  Cursor box_, weights_;
  int first_channel_ = 0;  // of the tile, in the input as it is read
};

}  // namespace gable::cuda::wgmma
